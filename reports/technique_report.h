// How far each technique of parallelism scales alone, as people read it.
#pragma once

#include <string>

#include "sim/program/technique_curves.h"

namespace orrery::reports {

/// A table of the speed-ups, how far each technique pays, why plans are missing, and what the figures mean. Ends in a
/// newline.
[[nodiscard]] std::string techniques_text(const program::TechniqueCurves& curves);

/// One row for each technique and number of devices: the columns of scaling_csv between the technique and the obstacle.
[[nodiscard]] std::string techniques_csv(const program::TechniqueCurves& curves);

}  // namespace orrery::reports
