// Factors by which predicted times become measured ones, fitted over many instructions at once.
#pragma once

#include <cstddef>
#include <span>
#include <utility>
#include <vector>

namespace orrery::sim {

/// What one instruction took, and what was predicted of it: the sum of these, each with the index of its factor.
struct Observation {
    double measured_s = 0;                                    // > 0
    std::vector<std::pair<std::size_t, double>> predicted_s;  // > 0 each
};

/// Factors stay between these: beyond, something else was measured than what was predicted.
inline constexpr double kSmallestFactor = 0.2;
inline constexpr double kLargestFactor = 5.0;
/// What speaks for a factor of 1, as a share of what speaks for another: of all the seconds predicted under it.
inline constexpr double kPriorShare = 0.01;

/// The factors f[0, count) that minimise
///   sum over observations of (measured - sum_k f_k predicted_k)^2 / measured
///     + kPriorShare * sum_k (seconds predicted under k) (f_k - 1)^2
/// within the bounds, by coordinate descent, which ends at the one minimum of this convex sum. An instruction counts by
/// its square root: neither only the longest ones do, nor only the many short ones. 1 where nothing was seen.
[[nodiscard]] std::vector<double> fit_factors(std::size_t count, std::span<const Observation> observations);

}  // namespace orrery::sim
