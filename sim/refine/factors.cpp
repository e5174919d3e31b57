#include "sim/refine/factors.h"

#include <algorithm>
#include <cmath>

#include "core/error.h"

namespace orrery::sim {
namespace {

constexpr int kMostSweeps = 10'000;
constexpr double kSettledMove = 1e-10;

/// Normal equations: apart from the bounds, the minimum is at matrix * f = right.
struct Equations {
    std::vector<std::vector<double>> matrix;
    std::vector<double> right;
};

Equations equations_of(std::size_t count, std::span<const Observation> observations) {
    Equations equations{std::vector(count, std::vector<double>(count)), std::vector<double>(count)};
    std::vector<double> seen(count);
    for (const Observation& one : observations) {
        ORRERY_CHECK(one.measured_s > 0, "an observation with a measured time that is not positive");
        for (const auto& [k, seconds] : one.predicted_s) {
            for (const auto& [l, others] : one.predicted_s) {
                equations.matrix.at(k).at(l) += seconds * others / one.measured_s;
            }
            equations.right.at(k) += seconds;
            seen.at(k) += seconds;
        }
    }
    for (std::size_t k = 0; k < count; ++k) {
        equations.matrix[k][k] += kPriorShare * seen[k];
        equations.right[k] += kPriorShare * seen[k];
    }
    return equations;
}

}  // namespace

std::vector<double> fit_factors(std::size_t count, std::span<const Observation> observations) {
    const Equations equations = equations_of(count, observations);
    std::vector<double> factors(count, 1.0);
    for (int sweep = 0; sweep < kMostSweeps; ++sweep) {
        double moved = 0;
        for (std::size_t k = 0; k < count; ++k) {
            const double own = equations.matrix[k][k];
            if (own <= 0) continue;
            double rest = equations.right[k] + own * factors[k];
            for (std::size_t l = 0; l < count; ++l) rest -= equations.matrix[k][l] * factors[l];
            const double best = std::clamp(rest / own, kSmallestFactor, kLargestFactor);
            moved = std::max(moved, std::abs(best - factors[k]));
            factors[k] = best;
        }
        if (moved < kSettledMove) break;
    }
    return factors;
}

}  // namespace orrery::sim
