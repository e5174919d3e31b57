// Rule "bytes": the bytes that each rank communicates in a step equal the plan's closed forms, by axis and kind.
#include "sim/program/validate_forms.h"
#include "sim/program/validate_rules.h"

namespace orrery::program::rules {
namespace {

/// The message bytes that a rank of the class issues in one step.
BytesByKind issued_bytes(const Program& program, ClassIndex c) {
    BytesByKind bytes;
    const auto calls = calls_of_bodies(program, c);
    for (const BodyId b : calls.indices()) {
        if (calls[b] == 0) continue;
        for (const Instruction& instruction : program.bodies[b].instructions) {
            const Communication& comm = instruction.communication;
            if (instruction.is_communication) bytes[{comm.axis, comm.kind}] += calls[b] * comm.bytes();
        }
    }
    return bytes;
}

/// Reductions of gradients and gathers of parameters over data-parallel ranks. Bucket sizes, padding included, are
/// taken from the Program: the rule "parameters" checks them.
void add_data_parallel(const ClosedForms& forms, const RankClass& ranks, BytesByKind& bytes) {
    const Plan& plan = forms.plan();
    const Sharding& sharding = forms.sharding();
    const Precision& precision = plan.training.precision;
    for (const Bucket& bucket : ranks.buckets) {
        if (!sharding.reduces(bucket.range)) continue;
        const BucketContents contents = contents_of(plan, ranks, bucket);
        const Chunk& chunk = ranks.chunks[contents.chunk];
        const bool expert = bucket.range == ParameterRange::expert;
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
        const bool in_sets = !expert && sharding.dense_shards < sharding.dense_ranks;
        const bool root = sharding.gathers_units && contents.is_root;
        const DType sent = precision.fp8_parameters && !root ? DType::fp8 : precision.parameter;
        std::int64_t times = 1;  // after the update
        if (sharding.gathers_units) {
            times = forms.passes(chunk) * (plan.parallelism.reshard_after_forward && !root ? 2 : 1);
        }
        bytes[{in_sets ? GroupAxis::dp_shard : axis, CommKind::all_gather}] += times * bucket.elements * size_of(sent);
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
    const std::int64_t elements = forms.element_count(ranks);
    bytes[{GroupAxis::dp, CommKind::scatter}] += m * (tokens * size_of(DType::int32) + logits);
    bytes[{GroupAxis::dp, CommKind::gather}] += m * logits;
    bytes[{GroupAxis::dp, CommKind::broadcast}] += m * elements * size_of(precision.parameter);
    bytes[{GroupAxis::dp, CommKind::reduce}] += m * elements * size_of(precision.gradient);
}

}  // namespace

void check_bytes(const Program& program) {
    const ClosedForms forms(*program.plan);
    for (const ClassIndex c : program.classes.indices()) {
        const RankClass& ranks = program.classes[c];
        BytesByKind expected;
        if (is_replicated(program)) {
            add_replicas(forms, ranks, expected);
        } else {
            expected = model_bytes(forms, ranks);
            add_data_parallel(forms, ranks, expected);
        }
        BytesByKind issued = issued_bytes(program, c);
        for (const auto& [key, bytes] : expected) issued[key] += 0;
        for (const auto& [key, bytes] : issued) {
            if (bytes == expected[key]) continue;
            fail(program, "bytes", {.rank_class = c},
                 "{} on the axis {} moves {} bytes a step; the closed form gives {}", key.second, key.first, bytes,
                 expected[key]);
        }
    }
}

}  // namespace orrery::program::rules
