// Private to the planner: the candidates that a request excludes.
#pragma once

#include <span>

#include "sim/planner/candidates.h"
#include "sim/planner/exclusion.h"

namespace orrery::sim {

/// The fields by which the listing of candidates tells apart pipelines, and shardings of a pipeline.
inline constexpr std::array kPipelineFields{
    PlanField::dp, PlanField::tp,       PlanField::cp,     PlanField::ep,     PlanField::etp,       PlanField::pp,
    PlanField::sp, PlanField::schedule, PlanField::chunks, PlanField::stages, PlanField::vocabulary};
inline constexpr std::array kShardingFields{PlanField::data, PlanField::shards, PlanField::gathered, PlanField::order};
inline constexpr std::array kMicroBatchField{PlanField::micro_batch};
inline constexpr std::array kRecomputeField{PlanField::recompute};

/// Whether the request excludes the choice's value of one of the fields.
[[nodiscard]] bool is_excluded(const PlanRequest& request, const Choice& choice, std::span<const PlanField> fields);

}  // namespace orrery::sim
