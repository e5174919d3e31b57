#include "sim/planner/search_space.h"

#include <algorithm>
#include <functional>
#include <set>
#include <utility>

#include "core/enum_names.h"
#include "sim/program/plan_names.h"

namespace orrery::sim {
namespace {

using program::VocabularyParallel;

std::string numbers(const std::set<std::int64_t>& values) {
    std::vector<std::string> names;
    for (const std::int64_t value : values) names.push_back(std::to_string(value));
    return comma_list(names);
}

/// Collects the values of the candidates.
struct Values {
    std::set<std::int64_t> tp, pp, dp, cp, ep, etp, chunks, micro_batches, shards;
    std::set<program::Schedule> schedules;
    std::set<VocabularyParallel> vocabularies;
    std::set<Offload> offloads;
    std::set<program::DataParallel> kinds;
    bool without_sp = false, with_sp = false, even = false, uneven = false, freed = false, kept = false,
         dp_first = false, pp_first = false, serial = false, overlapping = false;

    explicit Values(const CandidateList& list) {
        std::set<std::pair<std::size_t, bool>> known;  // shardings, and whether they are those of several stages
        const std::vector<std::int64_t>* before = nullptr;
        for (const Family& family : list.families) {
            add(family.choice);
            if (before == nullptr || *before != family.micro_batches) {
                micro_batches.insert(family.micro_batches.begin(), family.micro_batches.end());
            }
            before = &family.micro_batches;
            if (list.may_offload_activations(family.choice)) offloads.insert(Offload::activations);
            if (!known.insert({family.shardings, family.choice.pp > 1}).second) continue;
            for (const Sharding& sharding : list.shardings_of(family)) {
                add(sharding, family.choice);
                if (!list.must_offload_activations(sharding)) offloads.insert(sharding.offload);
            }
        }
    }

  private:
    void add(const Choice& choice) {
        tp.insert(choice.tp);
        pp.insert(choice.pp);
        dp.insert(choice.dp);
        cp.insert(choice.cp);
        ep.insert(choice.ep);
        etp.insert(choice.etp);
        if (choice.pp > 1) {
            schedules.insert(choice.schedule);
            vocabularies.insert(choice.vocabulary);
        }
        chunks.insert(choice.chunks);
        (choice.sequence_parallel ? with_sp : without_sp) = true;
        (choice.overlaps_experts ? overlapping : serial) = true;
        (choice.ends == program::EndWeights() ? even : uneven) = true;
    }
    void add(const Sharding& sharding, const Choice& choice) {
        kinds.insert(sharding.data_parallel);
        if (sharding.dp_shard > 0) shards.insert(sharding.dp_shard);
        if (row_of(sharding.data_parallel).shards_parameters) (sharding.reshards ? freed : kept) = true;
        if (choice.pp > 1) (sharding.pp_before_dp ? pp_first : dp_first) = true;
    }
};

std::string either(bool first, const std::string& first_name, bool second, const std::string& second_name) {
    std::vector<std::string> names;
    if (first) names.push_back(first_name);
    if (second) names.push_back(second_name);
    return comma_list(names);
}

template <typename Values>
std::string names(const Values& values) {
    std::vector<std::string> found;
    for (const auto value : values) found.emplace_back(name_of(value));
    return comma_list(found);
}

std::vector<program::SearchSpace::Choice> searched(const PlanRequest& request, const CandidateList& list) {
    const Values values(list);
    std::vector<program::SearchSpace::Choice> choices;
    const auto add = [&](const std::string& name, const std::string& text) {
        if (!text.empty()) choices.push_back({name, text});
    };
    add("tp", numbers(values.tp));
    add("cp", numbers(values.cp));
    if (request.model.has_experts()) add("ep", numbers(values.ep));
    if (values.etp != std::set<std::int64_t>{1}) add("etp", numbers(values.etp));
    if (values.overlapping) add("expert overlap", either(values.serial, "no", values.overlapping, "yes"));
    add("pp", numbers(values.pp));
    add("dp", numbers(values.dp));
    add("sp", either(values.without_sp, "no", values.with_sp, "yes"));
    add("data", names(values.kinds));
    add("shards", values.shards.empty() ? "" : "all replicas, " + numbers(values.shards));
    add("gathered", either(values.freed, "freed", values.kept, "kept"));
    const std::string dp_first = mesh_order_text(program::Parallelism()),
                      pp_first = mesh_order_text(program::Parallelism{.order = kStagesBeforeReplicas});
    add("order", values.dp_first && values.pp_first ? dp_first + " or " + pp_first
                                                    : either(values.dp_first, dp_first, values.pp_first, pp_first));
    add("schedule", names(values.schedules));
    add("VPP", numbers(values.chunks));
    const bool spreads = !values.vocabularies.empty() && *values.vocabularies.rbegin() != VocabularyParallel::none;
    if (spreads) add("vocabulary", names(values.vocabularies));
    add("stages", request.stage_layers.empty() ? either(values.even, "even", values.uneven, "uneven (balanced)")
                                               : program::stage_layout_text(request.stage_layers));
    std::vector<std::string> recompute;
    for (const program::Recompute kind : list.recompute) {
        const bool only_where_needed = kind != list.recompute.front();
        recompute.push_back(name_of(kind) + (only_where_needed ? " where needed to fit" : ""));
    }
    add("recompute", comma_list(recompute));
    if (values.offloads != std::set{Offload::none}) {
        std::vector<std::string> offloads;
        for (const Offload kind : values.offloads) {
            const bool only_where_needed = kind != *values.offloads.begin() && values.offloads.contains(Offload::none);
            offloads.push_back(std::string(name_of(kind)) + (only_where_needed ? " where needed to fit" : ""));
        }
        add("offload", comma_list(offloads));
    }
    add("micro-batch", numbers(values.micro_batches));
    return choices;
}

/// The names of a list that the implementation supports (all of `known` if it states nothing) and the search left out.
std::vector<std::string> unsearched(const models::Support& supports, const std::vector<std::string>& listed,
                                    const std::vector<std::string>& known, const std::vector<std::string>& tried) {
    std::vector<std::string> names;
    for (const std::string& name : known) {
        const bool has = supports.source.empty() || models::Support::lists(listed, name);
        if (has && std::find(tried.begin(), tried.end(), name) == tried.end()) names.push_back(name);
    }
    return names;
}

std::vector<std::string> outside(const PlanRequest& request, const CandidateList& list) {
    const models::Support& supports = request.implementation.supports;
    std::vector<std::string> texts;
    const auto add_names = [&](const std::string& what, const std::vector<std::string>& left) {
        if (!left.empty()) texts.push_back(what + " " + comma_list(left));
    };
    std::vector<std::string> tried;
    for (const program::Schedule schedule : request.schedules) tried.push_back(name_of(schedule));
    const bool pipelines = std::any_of(list.families.begin(), list.families.end(),
                                       [](const Family& family) { return family.choice.pp > 1; });
    if (pipelines) {
        add_names("schedules", unsearched(supports, supports.schedules, names_of<program::Schedule>(), tried));
        texts.emplace_back("other uneven stages than those that balance embedding and head");
        tried.assign(1, name_of(VocabularyParallel::none));
        for (const VocabularyParallel kind : request.vocabulary_parallel) tried.push_back(name_of(kind));
        add_names("vocabulary parallelism",
                  unsearched(supports, supports.vocabulary_parallel, names_of<VocabularyParallel>(), tried));
    }
    tried.clear();
    for (const program::DataParallel kind : request.data_parallel) tried.push_back(name_of(kind));
    add_names("data parallelism",
              unsearched(supports, supports.data_parallel, names_of<program::DataParallel>(), tried));
    if (list.left_out > 0) {
        texts.push_back("micro-batches above " + std::to_string(kEveryMicroBatch) +
                        " that lie within an eighth of one that is searched");
    }
    const bool offloads_more = request.offload.size() > 1;
    texts.emplace_back(offloads_more
                           ? "recomputation or offload that is not needed to fit, recomputation beside offloaded "
                             "activations, and other sets of recomputed parts or blocks"
                           : "recomputation that is not needed to fit, and other sets of recomputed parts or "
                             "blocks");
    tried.clear();
    for (const Offload kind : request.offload) tried.emplace_back(name_of(kind));
    add_names("offload of", unsearched(supports, supports.offload, {"activations", "optimizer", "parameters"}, tried));
    const bool tries_etp = request.tries_expert_tensor || request.etp != 0;
    if (tries_etp && request.model.has_experts() && request.etp == 0) {
        texts.emplace_back("experts sharded over other numbers of ranks than divisors of tp");
    } else if (!tries_etp && request.model.has_experts() &&
               (supports.source.empty() || models::Support::lists(supports.axes, "etp"))) {
        texts.emplace_back("experts sharded over tensor-parallel ranks (etp)");
    }
    const bool tries_overlap = request.tries_expert_overlap || request.overlaps_experts.has_value();
    if (!tries_overlap && request.model.has_experts() && (supports.source.empty() || supports.overlaps_experts)) {
        texts.emplace_back("passes that compute while the tokens of another pass travel to experts");
    }
    texts.emplace_back("other orders of the mesh's axes, and other placements of ranks");
    for (const Exclusion& exclusion : request.excluded) texts.push_back("excluded: " + text_of(exclusion));
    return texts;
}

}  // namespace

program::SearchSpace space_of(const PlanRequest& request, const CandidateList& list) {
    return {.implementation = request.implementation.name,
            .searched = searched(request, list),
            .outside = outside(request, list)};
}

}  // namespace orrery::sim
