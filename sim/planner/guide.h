// The field's decision guide with a request's own figures: fits on one device? Then replicas; else sharding; else
// tensor parallelism inside the node; pipelines across nodes; context parallelism for length; expert parallelism for
// experts. The rules of thumb are those of the guides of Megatron-LM, PyTorch and the Ultra-Scale Playbook.
#pragma once

#include "sim/planner/nearest_plan.h"
#include "sim/program/plan_answers.h"

namespace orrery::sim {

/// `best`: rank 1 of the whole search, or null if nothing fits. Each option is a search restricted to its kind of plan
/// (pipelines with 1f1b), so its figures are those of the best plan of that kind, or of the one that lacks the least
/// memory.
[[nodiscard]] program::PlanGuide decision_guide(const RequestsFor& requests, std::int64_t devices,
                                                const program::PlanResult* best);

}  // namespace orrery::sim
