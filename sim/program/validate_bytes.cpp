// Rule "bytes": the bytes that each rank communicates in a step equal the plan's closed forms, by axis and kind.
#include <algorithm>

#include "sim/program/validate_forms.h"
#include "sim/program/validate_rules.h"

namespace orrery::program::rules {
namespace {

/// The message bytes that a rank of the class issues in one step.
BytesByKind issued_bytes(const Program& program, const RankClass& ranks) {
    IndexedVector<SegmentListId, std::int64_t> list_calls(ranks.segment_lists.size());
    for (const Action& action : ranks.actions) ++list_calls[action.segments];
    IndexedVector<BodyId, std::int64_t> calls(program.bodies.size());
    for (const SegmentListId list : list_calls.indices()) {
        for (const Segment& segment : ranks.segment_lists[list]) calls[segment.body] += list_calls[list];
    }
    BytesByKind bytes;
    for (const BodyId b : calls.indices()) {
        if (calls[b] == 0) continue;
        for (const Instruction& instruction : program.bodies[b].instructions) {
            const Communication& comm = instruction.communication;
            if (instruction.is_communication) bytes[{comm.axis, comm.kind}] += calls[b] * comm.bytes();
        }
    }
    return bytes;
}

/// Whether the bucket holds the embedding (layer -1) or the head (layer L) as a root unit, which stays gathered from
/// the forward to the backward pass.
bool is_root(const Plan& plan, const RankClass& ranks, const Bucket& bucket) {
    if (!plan.implementation.data_parallel.keeps_root_gathered && !plan.model.tied_embeddings) return false;
    return std::any_of(ranks.parameters.begin(), ranks.parameters.end(), [&](const Parameter& parameter) {
        const bool inside = parameter.offset >= bucket.offset && parameter.offset < bucket.offset + bucket.elements;
        return inside && (parameter.layer < 0 || parameter.layer == plan.model.layers);
    });
}

/// Reductions of gradients and gathers of parameters over data-parallel ranks. Bucket sizes, padding included, are
/// taken from the Program: the rule "parameters" checks them.
void add_data_parallel(const ClosedForms& forms, const RankClass& ranks, BytesByKind& bytes) {
    const Plan& plan = forms.plan();
    const Sharding& sharding = forms.sharding();
    const Precision& precision = plan.training.precision;
    for (const Bucket& bucket : ranks.buckets) {
        const bool expert = bucket.range == ParameterRange::expert;
        if (!sharding.reduces(expert)) continue;
        const auto first = std::find_if(ranks.parameters.begin(), ranks.parameters.end(),
                                        [&](const Parameter& parameter) { return parameter.offset == bucket.offset; });
        const Chunk& chunk = ranks.chunks[first->chunk];
        const bool sets = !expert && sharding.replicates;
        const GroupAxis axis = expert ? GroupAxis::edp : sets ? GroupAxis::dp_shard : GroupAxis::dp;
        const std::int64_t reduced = forms.reductions(ranks, chunk);
        bytes[{axis, sharding.reduce_scatters ? CommKind::reduce_scatter : CommKind::all_reduce}] +=
            reduced * bucket.elements * size_of(precision.reduction);
        if (sets) {  // in the type of the shards
            const DType kept = sharding.reduces_units ? precision.gradient : sharding.gradient_dtype;
            const std::int64_t times = sharding.reduces_units ? 1 : reduced;  // micro-batches add to the shard first
            bytes[{GroupAxis::dp_replicate, CommKind::all_reduce}] += times * bucket.shard_elements * size_of(kept);
        }
        if (!sharding.shards_states) continue;
        // Parameters are gathered among the ranks of one set of shards, whatever the axis of the gradient reduction.
        const std::int64_t group = expert ? sharding.expert_shards : sharding.dense_shards;
        const GroupAxis gathers = !expert && group < sharding.dense_ranks ? GroupAxis::dp_shard : axis;
        const bool root = sharding.gathers_units && is_root(plan, ranks, bucket);
        const DType sent = precision.fp8_parameters && !root ? DType::fp8 : precision.parameter;
        std::int64_t times = 1;  // after the update
        if (sharding.gathers_units) {
            times = forms.passes(chunk) * (plan.parallelism.reshard_after_forward && !root ? 2 : 1);
        }
        bytes[{gathers, CommKind::all_gather}] += times * bucket.elements * size_of(sent);
    }
}

/// torch.nn.DataParallel: for each batch, inputs and parameters to the replicas, outputs back to the master, their
/// gradients to the replicas, and the parameters' gradients to the master.
void add_replicas(const ClosedForms& forms, const RankClass& ranks, BytesByKind& bytes) {
    const Plan& plan = forms.plan();
    const Precision& precision = plan.training.precision;
    const std::int64_t n = plan.parallelism.dp, m = plan.micro_batches();
    if (n == 1) return;
    const std::int64_t tokens = n * plan.training.sequence_length * plan.training.micro_batch_size;
    const bool narrow = !plan.implementation.kernels.fused_cross_entropy;
    const std::int64_t logits =
        tokens * forms.padded_vocabulary() * size_of(narrow ? precision.activation : DType::fp32);
    bytes[{GroupAxis::dp, CommKind::scatter}] += m * (tokens * size_of(DType::int32) + logits);
    bytes[{GroupAxis::dp, CommKind::gather}] += m * logits;
    bytes[{GroupAxis::dp, CommKind::broadcast}] += m * forms.element_count(ranks) * size_of(precision.parameter);
    bytes[{GroupAxis::dp, CommKind::reduce}] += m * forms.element_count(ranks) * size_of(precision.gradient);
}

}  // namespace

void check_bytes(const Program& program) {
    const ClosedForms forms(*program.plan);
    for (const ClassIndex c : program.classes.indices()) {
        const RankClass& ranks = program.classes[c];
        BytesByKind issued = issued_bytes(program, ranks);
        BytesByKind expected;
        if (is_replicated(program)) {
            add_replicas(forms, ranks, expected);
        } else {
            expected = forms.model_bytes(ranks);
            add_data_parallel(forms, ranks, expected);
        }
        for (const auto& [key, bytes] : expected) issued[key] += 0;
        for (const auto& [key, bytes] : issued) {
            if (bytes == expected[key]) continue;
            fail(program, "bytes", {.rank_class = c},
                 std::string(name_of(key.second)) + " on the axis " + std::string(name_of(key.first)) + " moves " +
                     std::to_string(bytes) + " bytes a step; the closed form gives " + std::to_string(expected[key]));
        }
    }
}

}  // namespace orrery::program::rules
