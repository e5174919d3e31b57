// The fields of a plan file, object by object (core/json_fields.h).
#pragma once

#include <array>
#include <limits>
#include <string>

#include "core/json_fields.h"
#include "sim/program/plan.h"
#include "sim/program/plan_names.h"

namespace orrery::models {

template <Either<ExpertLoad> Object>
void visit_fields(Object& l, auto&& visit) {
    visit("shares", l.shares, kNotNegative);
    visit("imbalance", l.imbalance, kNotNegative);
    visit("capacity_factor", l.capacity_factor, kNotNegative);
    visit("pads_to_capacity", l.pads_to_capacity);
    visit("largest", l.largest, kNotNegative);
}

}  // namespace orrery::models

namespace orrery::program {

using MeshOrder = std::array<MeshAxis, kMeshAxes>;

// Limits on the numbers in a plan: far above any real training, and low enough that no product of sizes overflows.
inline constexpr IntegerRange kDegreeLimits{1, 1 << 20};
inline constexpr IntegerRange kSequenceLimits{1, 1 << 24};
inline constexpr IntegerRange kBatchLimits{1, 1 << 20};  // sequences in a step or a micro-batch
inline constexpr IntegerRange kStageLayerLimits{0, 1 << 14};
inline constexpr std::int64_t kLargestMicroBatchTokens = 1 << 27;
// These fit into products of two; check_plan has narrower limits that depend on other fields.
inline constexpr IntegerRange kNumber{0, 1 << 20};
inline constexpr IntegerRange kNumberOrAll{-1, 1 << 20};
inline constexpr IntegerRange kSeed{0, std::numeric_limits<std::int64_t>::max()};

inline const OneOf kStoredTypes{{"fp32", "bf16", "fp16"}};
inline const OneOf kComputeTypes{{"fp32", "tf32", "bf16", "fp16"}};
inline const OneOf kMomentTypes{moment_types()};

/// As a list of axes, or as their names with commas between.
void read_field(const JsonReader& reader, const std::string& key, MeshOrder& order);
[[nodiscard]] JsonValue field_json(const MeshOrder& order);

template <Either<ScheduleTimes> Object>
void visit_fields(Object& t, auto&& visit) {
    visit("forward_ms", t.forward_ms, kNotNegative);
    visit("input_ms", t.input_ms, kNotNegative);
    visit("weight_ms", t.weight_ms, kNotNegative);
    visit("transfer_ms", t.transfer_ms, kNotNegative);
}

/// The degrees, in the order of a plan file.
template <Either<Parallelism> Object>
void visit_degrees(Object& p, auto&& visit) {
    visit("dp", p.dp, kDegreeLimits);
    visit("tp", p.tp, kDegreeLimits);
    visit("pp", p.pp, kDegreeLimits);
    visit("cp", p.cp, kDegreeLimits);
    visit("ep", p.ep, kDegreeLimits);
    visit("etp", p.etp, kDegreeLimits);
}

template <Either<Parallelism> Object>
void visit_fields(Object& p, auto&& visit) {
    visit_degrees(p, visit);
    visit("overlaps_experts", p.overlaps_experts, kIfChanged);
    visit("sequence_parallel", p.sequence_parallel);
    visit("context_parallel", p.context_parallel);
    visit("schedule", p.schedule);
    visit("chunks", p.chunks, kDegreeLimits);
    visit("interleave_group", p.interleave_group, kNumber);
    visit("vocabulary_parallel", p.vocabulary_parallel);
    visit("schedule_times", p.schedule_times);
    visit("stage_layers", p.stage_layers, kStageLayerLimits);
    visit("data_parallel", p.data_parallel);
    visit("dp_shard", p.dp_shard, kNumber);
    visit("reshard_after_forward", p.reshard_after_forward);
    visit("reduces_every_micro_batch", p.reduces_every_micro_batch);
    visit("order", p.order);
    visit("placement", p.placement, kNumber);
}

template <Either<Optimizer> Object>
void visit_fields(Object& o, auto&& visit) {
    visit("kind", o.kind);
    visit("learning_rate", o.learning_rate, kNotNegative);
    visit("beta1", o.beta1, kBelowOne);
    visit("beta2", o.beta2, kBelowOne);
    visit("epsilon", o.epsilon, kPositive);
    visit("momentum", o.momentum, kBelowOne);
    visit("weight_decay", o.weight_decay, kNotNegative);
    visit("clip_norm", o.clip_norm, kNotNegative);
    visit("post_validation", o.post_validation);
}

template <Either<MemorySavings> Object>
void visit_fields(Object& m, auto&& visit) {
    visit("recompute", m.recompute);
    visit("recompute_layers", m.recompute_layers, kNumberOrAll);
    visit("recompute_parts", m.recompute_parts);
    visit("shards_checkpoints", m.shards_checkpoints);
    visit("offload_layers", m.offload_layers, kNumber);
    visit("offload_optimizer", m.offload_optimizer);
    visit("offload_parameters", m.offload_parameters);
}

template <Either<Precision> Object>
void visit_fields(Object& p, auto&& visit) {
    visit("parameter", p.parameter, kRequired, kStoredTypes);
    visit("activation", p.activation, kRequired, kStoredTypes);
    visit("gradient", p.gradient, kRequired, kStoredTypes);
    visit("reduction", p.reduction, kStoredTypes);
    visit("compute", p.compute, kComputeTypes);
    visit("fp8", p.fp8);
    visit("fp8_parameters", p.fp8_parameters);
    visit("moments", p.moments, kMomentTypes);
    visit("master_weights", p.master_weights, kRequired);
    visit("loss_scaling", p.loss_scaling);
}

template <Either<Training> Object>
void visit_fields(Object& t, auto&& visit) {
    visit("sequence_length", t.sequence_length, kRequired, kSequenceLimits);
    visit("micro_batch_size", t.micro_batch_size, kBatchLimits);
    visit("global_batch_size", t.global_batch_size, kRequired, kBatchLimits);
    visit("precision", t.precision);
    visit("optimizer", t.optimizer);
    visit("memory", t.memory);
    visit("expert_load", t.expert_load);
    visit("dropout", t.dropout, kBelowOne);
    visit("seed", t.seed, kSeed);
    visit("data", t.data);
}

}  // namespace orrery::program
