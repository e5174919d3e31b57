// Tornados (which inputs matter) as people read them.
#pragma once

#include <string>

#include "sim/program/tornado.h"

namespace orrery::reports {

/// A table of the inputs that matter, largest effect first, and the names of the others. Ends in a newline.
[[nodiscard]] std::string tornado_text(const program::Tornado& tornado);
/// One row for each input. Ends in a newline.
[[nodiscard]] std::string tornado_csv(const program::Tornado& tornado);

}  // namespace orrery::reports
