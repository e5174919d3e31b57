// A derivative of a step in a rate beside finite differences of the same.
#pragma once

#include <string>

namespace orrery::program {

inline constexpr double kRateStep = 1e-3;
inline constexpr double kSlopeTolerance = 0.01;
/// Smaller slopes move the step by nothing that matters.
inline constexpr double kLeastSlope = 1e-3;

struct RateDifference {
    std::string rate;  // its full name
    double slope = 0;  // d log(step) / d log(rate), of one simulation
    double above = 0;  // the same by a simulation with the rate kRateStep higher
    double below = 0;  //   lower
    /// Where the two sides differ by more than kSlopeTolerance the step has a corner, such as a wait that goes over to
    /// another stream: no derivative.
    [[nodiscard]] bool has_corner() const;
    /// Within kSlopeTolerance of the mean of the two.
    [[nodiscard]] bool holds() const;
};

}  // namespace orrery::program
