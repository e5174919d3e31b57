// Crossovers (which plan is the fastest, by an input) as people read them.
#pragma once

#include <string>

#include "sim/program/crossover.h"

namespace orrery::reports {

/// A table of the ranges, and a sentence for each value at which the fastest plan changes. Ends in a newline.
[[nodiscard]] std::string crossover_text(const program::Crossover& crossover);
/// One row for each range. Ends in a newline.
[[nodiscard]] std::string crossover_csv(const program::Crossover& crossover);

}  // namespace orrery::reports
