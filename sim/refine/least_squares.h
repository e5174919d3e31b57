// Least-squares fit of positive figures to the ratios of predictions to measurements.
#pragma once

#include <cstddef>
#include <functional>
#include <span>
#include <vector>

namespace orrery::sim {

/// Returns log(predicted / measured) of each observation for given figures, in the order of `start`.
using LogErrors = std::function<std::vector<double>(std::span<const double> figures)>;

struct FigureFit {
    std::vector<double> figures;
    std::vector<std::size_t> rows;  // by figure: observations that it affects; with fewer than kFewestRows it is held
};

/// A figure that affects fewer observations is held: it keeps its start value.
inline constexpr std::size_t kFewestRows = 4;
/// Errors of a logarithm beyond this count linearly instead of quadratically.
inline constexpr double kSoftError = 0.05;

/// Minimises the sum of 2 s^2 (sqrt(1 + (error / s)^2) - 1), s = kSoftError, over the logarithms of the figures, each
/// at most its `most` (infinity: no bound), by iteratively reweighted Levenberg-Marquardt steps.
[[nodiscard]] FigureFit fit_figures(std::span<const double> start, std::span<const double> most,
                                    const LogErrors& errors);

}  // namespace orrery::sim
