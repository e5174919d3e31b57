// What-if sweeps as people read them.
#pragma once

#include <string>

#include "sim/program/input_sweep.h"

namespace orrery::reports {

/// A table of the points below the base, and the reasons of points without figures. Ends in a newline.
[[nodiscard]] std::string sweep_text(const program::InputSweep& sweep);
/// One row for the base and for each point. Ends in a newline.
[[nodiscard]] std::string sweep_csv(const program::InputSweep& sweep);

}  // namespace orrery::reports
