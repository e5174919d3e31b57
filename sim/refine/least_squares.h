// Figures, all greater than 0, by which predictions come closest to measurements, in ratios.
#pragma once

#include <cstddef>
#include <functional>
#include <span>
#include <vector>

namespace orrery::sim {

/// Of each observation log(predicted / measured), by figures in the order of `start`.
using LogErrors = std::function<std::vector<double>(std::span<const double> figures)>;

struct FigureFit {
    std::vector<double> figures;
    std::vector<std::size_t> rows;  // by figure: observations that it moves; fewer than kFewestRows: it was held
};

/// A figure that fewer observations speak of stays as it is.
inline constexpr std::size_t kFewestRows = 4;
/// Errors beyond this count by their size rather than by its square (of a logarithm).
inline constexpr double kSoftError = 0.05;

/// Minimises the sum of 2 s^2 (sqrt(1 + (error / s)^2) - 1), s = kSoftError, over the logarithms of the figures, none
/// above its `most` (infinity: no bound), by Levenberg's and Marquardt's steps with weights that follow the errors.
[[nodiscard]] FigureFit fit_figures(std::span<const double> start, std::span<const double> most,
                                    const LogErrors& errors);

}  // namespace orrery::sim
