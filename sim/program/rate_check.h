// What a catalogue of rates has to keep to, so that few figures, each told by many runs, carry the predictions.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "sim/program/rates.h"

namespace orrery::program {

inline constexpr std::size_t kMostFittedRates = 110;
/// A fitted figure has so much of its information from runs, and runs of so many groups move it.
inline constexpr double kLeastInformation = 0.5;
inline constexpr std::size_t kFewestGroups = 4;
/// Of a prior's logarithm; a key that needs more says so in its row of rate_rows().
inline constexpr double kWidestPrior = 0.5;

[[nodiscard]] std::size_t fitted_rates(const RateCatalogue& catalogue);
/// One line for each fault, with the name of the figure; empty: it keeps to all of this, and each fitted figure has a
/// prior and a source that says how many runs of how many groups it was fitted to.
[[nodiscard]] std::vector<std::string> rate_faults(const RateCatalogue& catalogue);

}  // namespace orrery::program
