// Compares the derivative of a step time by a rate with finite differences.
#pragma once

#include <algorithm>
#include <cmath>
#include <string>

namespace orrery::program {

inline constexpr double kRateStep = 1e-3;  // relative change of the rate for a finite difference
inline constexpr double kSlopeTolerance = 0.01;
/// Slopes below this do not change the step time noticeably.
inline constexpr double kLeastSlope = 1e-3;

struct RateDifference {
    std::string rate;  // full name
    double slope = 0;  // d log(step time) / d log(rate), from one simulation
    double above = 0;  // finite difference to a simulation with a rate higher by kRateStep
    double below = 0;  // the same with a lower rate
    /// Whether the two differences deviate by more than kSlopeTolerance. Then the step time has no derivative, for
    /// example because another stream becomes the one that is waited for.
    [[nodiscard]] bool has_corner() const {
        return std::abs(above - below) > kSlopeTolerance * std::max(std::abs(above), std::abs(below));
    }
    /// Whether the slope is within kSlopeTolerance of the mean of the two differences.
    [[nodiscard]] bool holds() const {
        const double mean = (above + below) / 2;
        return std::abs(slope - mean) <= kSlopeTolerance * std::max(std::abs(mean), kLeastSlope);
    }
};

}  // namespace orrery::program
