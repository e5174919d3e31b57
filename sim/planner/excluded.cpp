#include "sim/planner/excluded.h"

#include <algorithm>

namespace orrery::sim {
namespace {

/// The value of a field that does not apply to a choice.
constexpr std::int64_t kNone = -1;

bool has_even_stages(const PlanRequest& request, const Choice& choice) {
    const std::vector<std::int64_t> stages = stage_layers_of(request, choice);
    const std::int64_t layers = request.model.layers;
    return std::ssize(stages) <= layers && stages == program::even_stages(layers, std::ssize(stages));
}

/// As Exclusion::value.
std::int64_t value_of(const PlanRequest& request, const Choice& choice, PlanField field) {
    const Sharding& sharding = choice.sharding;
    const program::DataParallelRow& kind = row_of(sharding.data_parallel);
    switch (field) {
        case PlanField::stack:    // a request has one
        case PlanField::offload:  // excluded from what the request allows
            break;
        case PlanField::dp:
            return choice.dp;
        case PlanField::tp:
            return choice.tp;
        case PlanField::cp:
            return choice.cp;
        case PlanField::ep:
            return choice.ep;
        case PlanField::etp:
            return choice.etp;
        case PlanField::pp:
            return choice.pp;
        case PlanField::sp:
            return choice.sequence_parallel ? 1 : 0;
        case PlanField::data:
            return static_cast<std::int64_t>(sharding.data_parallel);
        case PlanField::shards:
            if (!kind.shards_states) break;
            return sharding.dp_shard > 0 ? sharding.dp_shard : choice.dp * choice.cp;
        case PlanField::gathered:
            if (!kind.shards_parameters) break;
            return sharding.reshards ? 1 : 0;
        case PlanField::order:
            return sharding.pp_before_dp ? 1 : 0;
        case PlanField::schedule:
            if (choice.pp == 1) break;
            return static_cast<std::int64_t>(choice.schedule);
        case PlanField::chunks:
            return choice.chunks;
        case PlanField::vocabulary:
            return static_cast<std::int64_t>(choice.vocabulary);
        case PlanField::stages:
            return has_even_stages(request, choice) ? 0 : 1;
        case PlanField::recompute:
            return static_cast<std::int64_t>(choice.recompute);
        case PlanField::micro_batch:
            return choice.micro_batch;
    }
    return kNone;
}

}  // namespace

bool is_excluded(const PlanRequest& request, const Choice& choice, std::span<const PlanField> fields) {
    return std::any_of(request.excluded.begin(), request.excluded.end(), [&](const Exclusion& exclusion) {
        return std::find(fields.begin(), fields.end(), exclusion.field) != fields.end() &&
               value_of(request, choice, exclusion.field) == exclusion.value;
    });
}

}  // namespace orrery::sim
