// Reads results back that commands have written. Each throws InputError naming `file` if the text is another result.
#pragma once

#include <string>

#include "sim/program/capacity_answer.h"
#include "sim/program/input_sweep.h"
#include "sim/program/plan_diff.h"

namespace orrery::program {

[[nodiscard]] Capacity capacity_from_json_text(const std::string& text, const std::string& file);
[[nodiscard]] InputSweep sweep_from_json_text(const std::string& text, const std::string& file);
[[nodiscard]] PlanDiff diff_from_json_text(const std::string& text, const std::string& file);

}  // namespace orrery::program
