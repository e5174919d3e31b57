// The folder of `orrery plan --shortlist`: plan files, a launch script each, and an index; and `--pick`, which reads
// the records of their runs.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "sim/planner/planner.h"

namespace orrery::cli {

/// The index in the folder, an orrery.shortlist/1.
inline constexpr const char* kShortlistIndex = "shortlist.json";

/// Throws InputError if the folder exists and is not empty, or cannot be created.
void check_shortlist_folder(const std::string& folder);

/// Finds the plans, and writes the folder as a whole: it gets its name once it is complete. Prints what was written;
/// with `json` nothing.
void write_shortlist(const std::vector<sim::PlanRequest>& requests, std::size_t count, const std::string& folder,
                     bool json);

/// Chooses the plan with the shortest measured step among the complete records. `folder`: of the shortlist; empty: that
/// of the first record. Writes the chosen plan to `output`, unless it is empty. Prints the comparison, with `json` as
/// orrery.pick/1. Throws InputError if a record is not one of the shortlist's plans, if two records are of one plan, or
/// if records cannot be compared: predicted and measured ones, paced ones, or of different machines.
int pick_plan(const std::vector<std::string>& records, const std::string& folder, const std::string& output, bool json);

}  // namespace orrery::cli
