// Derives from a plan's data parallelism which ranks reduce gradients together and how, and what is sharded.
#include <algorithm>

#include "sim/program/rank_layout.h"

namespace orrery::program {

ShardingRules sharding_rules(const Plan& plan, const Mesh& mesh, std::int64_t pp_index) {
    const Parallelism& p = plan.parallelism;
    const Precision& precision = plan.training.precision;
    const models::DataParallelChoices& choices = plan.implementation.data_parallel;
    ShardingRules rules{.gradient_dtype = precision.gradient};
    rules.dense.ranks = mesh.group_size(GroupAxis::dp);
    rules.expert.ranks = std::max<std::int64_t>(1, mesh.group_size(GroupAxis::edp));
    if (p.data_parallel == DataParallel::dp) return rules;  // lower_replicas exchanges gradients with the master
    rules.dense.reduces = rules.dense.ranks > 1;
    rules.expert.reduces = plan.model.has_experts() && rules.expert.ranks > 1;
    const bool replicates = p.has_shard_sets();
    const bool any = rules.dense.reduces || rules.expert.reduces;
    rules.shards_states = p.shards_optimizer() && any;
    rules.gathers_units = p.shards_parameters() && any;
    // A split backward pass writes the gradients of norms and biases long before those of the GEMMs, so that a unit's
    // gradients cannot be reduced together: they stay whole.
    rules.reduces_units =
        p.shards_gradients() && any && p.reduces_every_micro_batch && !row_of(p.schedule).splits_backward();
    if (rules.reduces_units && p.shards_parameters()) rules.gradient_dtype = precision.parameter;
    if (rules.shards_states) {
        rules.dense.shards = replicates ? p.dp_shard : rules.dense.ranks;
        rules.expert.shards = rules.expert.ranks;
    }
    const bool mirrored = p.model_copies() > 1;
    // An interlaced vocabulary computes its gradients in the forward pass, so that no backward pass can reduce them.
    const bool interlaced = p.vocabulary_parallel == VocabularyParallel::interlaced;
    rules.overlaps =
        choices.overlaps_backward && !mirrored && !interlaced && (!choices.overlaps_first_stage_only || pp_index == 0);
    const bool scatters = rules.shards_states && (choices.reduces_to_owner || p.shards_gradients());
    Reduction reduction{
        .kind = scatters ? CommKind::reduce_scatter : CommKind::all_reduce,
        .dtype = precision.reduction,
        .gradient_dtype = rules.gradient_dtype,
        .shard_dtype = precision.gradient,
        .staged = precision.reduction != rules.gradient_dtype || choices.fusion_buffer || rules.gathers_units,
        .accumulates = rules.reduces_units};
    // Staging buffers are reused in the order of the chunks' last passes, which vocabulary parallelism does not keep.
    if (p.spreads_vocabulary() && reduction.staged && !scatters) rules.overlaps = false;
    rules.dense.reduction = rules.expert.reduction = reduction;
    rules.dense.reduction.axis = replicates && scatters ? GroupAxis::dp_shard : GroupAxis::dp;
    rules.dense.reduction.replicates = replicates && scatters;
    rules.expert.reduction.axis = GroupAxis::edp;
    return rules;
}

}  // namespace orrery::program
