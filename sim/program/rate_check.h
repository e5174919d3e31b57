// Limits on a catalogue of rates. Predictions shall depend on few fitted rates, each determined by many runs.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "sim/program/rates.h"

namespace orrery::program {

inline constexpr std::size_t kMostFittedRates = 110;
/// The least Rate::information of a fitted rate, and the fewest groups of runs that move it.
inline constexpr double kLeastInformation = 0.5;
inline constexpr std::size_t kFewestGroups = 4;
/// The largest standard deviation of a prior's logarithm, unless the key's row in rate_rows() has a larger one.
inline constexpr double kWidestPrior = 0.5;

/// The number of fitted rates.
[[nodiscard]] std::size_t fitted_rates(const RateCatalogue& catalogue);
/// One line for each fault, with the name of the rate; empty if the catalogue is within the limits and each fitted rate
/// has a prior, and a source that states how many runs of how many groups it was fitted to.
[[nodiscard]] std::vector<std::string> rate_faults(const RateCatalogue& catalogue);

}  // namespace orrery::program
