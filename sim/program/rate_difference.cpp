#include "sim/program/rate_difference.h"

#include <algorithm>
#include <cmath>

namespace orrery::program {

bool RateDifference::has_corner() const {
    return std::abs(above - below) > kSlopeTolerance * std::max(std::abs(above), std::abs(below));
}

bool RateDifference::holds() const {
    const double mean = (above + below) / 2;
    return std::abs(slope - mean) <= kSlopeTolerance * std::max(std::abs(mean), kLeastSlope);
}

}  // namespace orrery::program
