// Answers of capacity planning as people read them.
#pragma once

#include <string>

#include "sim/program/capacity_answer.h"

namespace orrery::reports {

/// "15 T", "300 B": a number of tokens.
[[nodiscard]] std::string tokens_text(double tokens);

/// The answers as a table, then for the first one its parts, its failures, what sets its size and the sizes looked at,
/// and where the figures are from. `date_after`: the date so many days after the start; not called if there is none.
/// Ends in a newline.
[[nodiscard]] std::string capacity_text(const program::Capacity& capacity,
                                        std::string (*date_after)(const std::string& start, double days));

}  // namespace orrery::reports
