// Rule "bytes": what each rank communicates in a step equals the closed forms of the plan, by axis and kind.
#include <algorithm>

#include "sim/program/validate_forms.h"
#include "sim/program/validate_rules.h"

namespace orrery::program::rules {
namespace {

/// Message bytes of one step of the class.
BytesByKind issued_bytes(const Program& program, const RankClass& ranks) {
    std::vector<std::int64_t> list_calls(ranks.segment_lists.size());
    for (const Action& action : ranks.actions) ++list_calls[static_cast<std::size_t>(action.segments)];
    std::vector<std::int64_t> calls(program.bodies.size());
    for (std::size_t list = 0; list < list_calls.size(); ++list) {
        for (const Segment& segment : ranks.segment_lists[list]) {
            calls[static_cast<std::size_t>(segment.body)] += list_calls[list];
        }
    }
    BytesByKind bytes;
    for (std::size_t b = 0; b < calls.size(); ++b) {
        if (calls[b] == 0) continue;
        for (const Instruction& instruction : program.bodies[b].instructions) {
            const Communication& comm = instruction.communication;
            if (instruction.is_communication) bytes[{comm.axis, comm.kind}] += calls[b] * comm.bytes();
        }
    }
    return bytes;
}

/// Layers -1 (embedding) and L (head) stay gathered from the forward to the backward pass where they are a unit of
/// their own.
bool is_root(const Plan& plan, const RankClass& ranks, const Bucket& bucket) {
    if (!plan.implementation.data_parallel.keeps_root_gathered && !plan.model.tied_embeddings) return false;
    return std::any_of(ranks.parameters.begin(), ranks.parameters.end(), [&](const Parameter& parameter) {
        const bool inside = parameter.offset >= bucket.offset && parameter.offset < bucket.offset + bucket.elements;
        return inside && (parameter.layer < 0 || parameter.layer == plan.model.layers);
    });
}

/// Gradients and parameters across data-parallel ranks. The padding of buckets is checked by the
/// rule "parameters".
void add_data_parallel(const Forms& forms, const RankClass& ranks, BytesByKind& bytes) {
    const Plan& plan = forms.plan();
    const Sharding& sharding = forms.sharding();
    const Precision& precision = plan.training.precision;
    for (const Bucket& bucket : ranks.buckets) {
        const bool expert = bucket.range == ParameterRange::expert;
        if (!sharding.sums(expert)) continue;
        const auto first = std::find_if(ranks.parameters.begin(), ranks.parameters.end(),
                                        [&](const Parameter& parameter) { return parameter.offset == bucket.offset; });
        const Chunk& chunk = ranks.chunks[first->chunk];
        const bool sets = !expert && sharding.replicates;
        const GroupAxis axis = expert ? GroupAxis::edp : sets ? GroupAxis::dp_shard : GroupAxis::dp;
        const std::int64_t reduced = forms.reductions(ranks, chunk);
        bytes[{axis, sharding.scatters ? CommKind::reduce_scatter : CommKind::all_reduce}] +=
            reduced * bucket.elements * size_of(precision.reduction);
        if (sets) {  // in the type in which the shards are kept
            const DType kept = sharding.reduces ? precision.gradient : sharding.made;
            const std::int64_t times = sharding.reduces ? 1 : reduced;  // shards add up before
            bytes[{GroupAxis::dp_replicate, CommKind::all_reduce}] += times * bucket.shard_elements * size_of(kept);
        }
        if (!sharding.states) continue;
        // Ranks that share a set of shards gather from one another, however gradients came there.
        const std::int64_t group = expert ? sharding.expert_shards : sharding.dense_shards;
        const GroupAxis gathers = !expert && group < sharding.dense_ranks ? GroupAxis::dp_shard : axis;
        const bool root = sharding.gathers && is_root(plan, ranks, bucket);
        const DType sent = precision.fp8_parameters && !root ? DType::fp8 : precision.parameter;
        std::int64_t times = 1;  // a step: what the optimizer has updated
        if (sharding.gathers) {
            times = forms.passes(chunk) * (plan.parallelism.reshard_after_forward && !root ? 2 : 1);
        }
        bytes[{gathers, CommKind::all_gather}] += times * bucket.elements * size_of(sent);
    }
}

/// torch.nn.DataParallel: inputs, parameters, outputs, their gradients, and the parameters'
/// gradients, for each batch.
void add_replicas(const Forms& forms, const RankClass& ranks, BytesByKind& bytes) {
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
    const Forms forms(*program.plan);
    for (std::size_t i = 0; i < program.classes.size(); ++i) {
        const RankClass& ranks = program.classes[i];
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
            fail(program, "bytes", {.rank_class = static_cast<std::int32_t>(i)},
                 std::string(name_of(key.second)) + " on the axis " + std::string(name_of(key.first)) + " moves " +
                     std::to_string(bytes) + " bytes a step; by the closed form it is " +
                     std::to_string(expected[key]));
        }
    }
}

}  // namespace orrery::program::rules
