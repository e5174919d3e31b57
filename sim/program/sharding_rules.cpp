// What a plan's data parallelism comes to: who reduces gradients with whom, in what form, and what lies in shards.
#include <algorithm>

#include "sim/program/rank_layout.h"

namespace orrery::program {

DType gradient_dtype(const Plan& plan, const ShardingRules& rules) {
    const Precision& precision = plan.training.precision;
    return rules.reduces_units && plan.parallelism.shards_parameters() ? precision.parameter : precision.gradient;
}

ShardingRules sharding_rules(const Plan& plan, const Mesh& mesh, std::int64_t pp_index) {
    const Parallelism& p = plan.parallelism;
    const Precision& precision = plan.training.precision;
    const models::DataParallelChoices& choices = plan.implementation.data_parallel;
    ShardingRules rules;
    rules.dense_ranks = mesh.group_size(GroupAxis::dp);
    rules.expert_ranks = std::max<std::int64_t>(1, mesh.group_size(GroupAxis::edp));
    if (p.data_parallel == DataParallel::dp) return rules;  // exchanged by the master, see its lowering
    rules.reduces_dense = rules.dense_ranks > 1;
    rules.reduces_expert = plan.model.has_experts() && rules.expert_ranks > 1;
    const bool replicates = p.has_shard_sets();
    const bool any = rules.reduces_dense || rules.reduces_expert;
    rules.shards_states = p.shards_optimizer() && any;
    rules.gathers_units = p.shards_parameters() && any;
    // A split backward pass writes gradients of norms and biases long before those of the products: they stay whole.
    rules.reduces_units =
        p.shards_gradients() && any && p.reduces_every_micro_batch && !row_of(p.schedule).splits_backward();
    if (rules.shards_states) {
        rules.dense_shards = replicates ? p.dp_shard : rules.dense_ranks;
        rules.expert_shards = rules.expert_ranks;
    }
    const bool mirrored = p.model_copies() > 1;
    const bool interlaced = p.vocabulary_parallel == VocabularyParallel::interlaced;  // gradients without a backward
    rules.overlaps =
        choices.overlaps_backward && !mirrored && !interlaced && (!choices.overlaps_first_stage_only || pp_index == 0);
    const bool scatters = rules.shards_states && (choices.reduces_to_owner || p.shards_gradients());
    const DType made = gradient_dtype(plan, rules);
    ReductionForm form{.kind = scatters ? CommKind::reduce_scatter : CommKind::all_reduce,
                       .dtype = precision.reduction,
                       .shard_dtype = rules.reduces_units ? precision.gradient : made,
                       .staged = precision.reduction != made || choices.fusion_buffer || rules.gathers_units,
                       .accumulates = rules.reduces_units};
    // Staging buffers take turns in the order of the chunks' last passes, which a spread vocabulary does not keep.
    const bool spread = p.vocabulary_parallel != VocabularyParallel::none;
    if (spread && form.staged && !scatters) rules.overlaps = false;
    rules.dense = form;
    rules.dense.axis = replicates && scatters ? GroupAxis::dp_shard : GroupAxis::dp;
    rules.dense.replicates = replicates && scatters;
    rules.expert = form;
    rules.expert.axis = GroupAxis::edp;
    return rules;
}

}  // namespace orrery::program
