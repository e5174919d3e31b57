// Private to the planner: plans that differ from a plan in one choice.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "sim/program/plan.h"

namespace orrery::sim {

struct PlanChange {
    std::string description;  // such as "micro-batch 2 instead of 1"
    program::Plan plan;
};

/// The plans that differ from `plan` in one choice: the next smaller and larger micro-batch, a factor of two between
/// two degrees (tp only inside a node), the expert-parallel degree, the kind of sharding, recomputation, the schedule
/// or its number of chunks, sequence parallelism, the order of ranks. What a choice entails changes with it: stages are
/// cut anew for another pipeline, and a micro-batch that no longer divides is made smaller. All satisfy check_plan.
[[nodiscard]] std::vector<PlanChange> single_changes(const program::Plan& plan);

/// "NAME VALUE instead of OF".
[[nodiscard]] std::string instead(const std::string& name, const std::string& value, const std::string& of);

/// Cuts stages as evenly as possible. Recomputes all blocks if recompute_layers exceeds a chunk's number of blocks.
void cut_stages(program::Plan& plan);

/// Sets the kind of data parallelism and what follows from it.
void set_sharding(program::Plan& plan, program::DataParallel kind);

}  // namespace orrery::sim
