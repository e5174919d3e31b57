#include "sim/planner/candidates.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>
#include <set>
#include <tuple>
#include <type_traits>
#include <utility>

#include "core/error.h"
#include "sim/planner/excluded.h"
#include "sim/planner/tried_degrees.h"
#include "sim/program/mesh.h"
#include "sim/program/pass_pairs.h"
#include "sim/program/plan_fields.h"
#include "sim/program/schedule.h"

namespace orrery::sim {

namespace {

using program::DataParallel;
using program::EndWeights;
using program::Recompute;
using program::Schedule;
using program::VocabularyParallel;

struct MicroBatchSizes {
    std::vector<std::int64_t> tried;
    std::int64_t left_out = 0;  // others that divide
};
MicroBatchSizes micro_batch_sizes(std::int64_t samples, std::int64_t wanted) {
    if (wanted != 0) return {samples % wanted == 0 ? std::vector<std::int64_t>{wanted} : std::vector<std::int64_t>{}};
    MicroBatchSizes sizes;
    for (const std::int64_t size : divisors(samples)) {
        if (size <= kEveryMicroBatch || 8 * size >= 9 * sizes.tried.back()) {
            sizes.tried.push_back(size);
        } else {
            ++sizes.left_out;
        }
    }
    return sizes;
}

/// The degrees that the request fixes, for the error message.
std::string fixed_degrees(const PlanRequest& request) {
    std::string text;
    const auto add = [&](const char* name, std::int64_t value) {
        if (value != 0) text += (text.empty() ? " with " : ", ") + std::string(name) + " " + std::to_string(value);
    };
    add("tp", request.tp);
    add("pp", request.pp);
    add("dp", request.dp);
    add("cp", request.cp);
    add("ep", request.ep);
    add("etp", request.etp);
    add("chunks", request.chunks);
    add("dp_shard", request.dp_shard);
    add("micro-batch", request.micro_batch_size);
    const auto add_kind = [&](const char* name, const auto& tried) {
        using Kind = std::decay_t<decltype(tried.front())>;
        if (tried.size() == 1 && tried.front() != Kind::none)
            text += (text.empty() ? " with " : ", ") + std::string(name) + " " + std::string(name_of(tried.front()));
    };
    add_kind("vocabulary parallelism", request.vocabulary_parallel);
    add_kind("offload", request.offload);
    if (!request.stage_layers.empty()) {
        text += std::string(text.empty() ? " with" : " and") + " a stage layout of " +
                std::to_string(request.stage_layers.size()) + " stages";
    }
    return text;
}

/// What the embedding and the head may count for when stages are balanced: nothing, or about as many blocks as the head
/// has FLOPs. The embedding has none, but a block less on its rank saves memory.
std::vector<EndWeights> end_weights(const PlanRequest& request) {
    std::vector<EndWeights> weights{{}};
    if (!lays_out_stages(request)) return weights;
    const models::ModelSpec& model = request.model;
    const std::int64_t length = request.training.sequence_length;
    const double head =
        6 * static_cast<double>(model.vocab) * static_cast<double>(model.hidden) * static_cast<double>(length);
    const double blocks = model_flops_per_sequence(model, length, models::FlopsConvention::causal_half) - head;
    const double ratio = head / (blocks / static_cast<double>(model.layers));
    for (const double blocks_of_head : {std::floor(ratio), std::ceil(ratio)}) {
        for (const std::int64_t embedding : {0, 1}) {
            weights.push_back({embedding, static_cast<std::int64_t>(blocks_of_head)});
        }
    }
    return weights;
}

class Lister {
  public:
    explicit Lister(const PlanRequest& request)
        : request_(request),
          model_(request.model),
          tried_(request),
          end_weights_(end_weights(request)),
          offload_(request.offload) {
        std::erase_if(offload_, [&](Offload kind) {
            const auto is_of_kind = [&](const Exclusion& exclusion) {
                return exclusion.field == PlanField::offload && exclusion.value == static_cast<std::int64_t>(kind);
            };
            const bool dropped = std::ranges::any_of(request.excluded, is_of_kind);
            drops_any_ |= dropped;
            return dropped;
        });
        list_.keeps_on_device = tries(Offload::none);
    }

    CandidateList list() {
        const models::Support& supports = request_.implementation.supports;
        if (supports.most_nodes > 0 && request_.cluster.nodes > supports.most_nodes) {
            throw InputError("the request", "/cluster/nodes", std::to_string(request_.cluster.nodes),
                             "at most " + std::to_string(supports.most_nodes) +
                                 ", which is all that implementation \"" + request_.implementation.name + "\" can use");
        }
        if (!request_.stage_layers.empty() && !lays_out_stages(request_)) {
            throw InputError(
                "the request", "/parallelism/stage_layers", program::stage_layout_text(request_.stage_layers),
                "none, since the stages of implementation \"" + request_.implementation.name + "\" cannot be given");
        }
        tried_.any_mesh(request_.devices, [this](const Choice& mesh) {
            list_experts(mesh);
            return false;
        });
        if (list_.considered > 0) return std::move(list_);
        if (drops_any_) {
            std::string texts;
            for (const Exclusion& exclusion : request_.excluded)
                texts += (texts.empty() ? "" : ", ") + text_of(exclusion);
            throw InputError("the request", "excluded", texts,
                             "values that some plan does without; every one is excluded");
        }
        if (problem_.has_value()) throw InputError(*problem_);
        throw InputError(model_.name + ": no plan divides" + fixed_degrees(request_) + ": " +
                         std::to_string(request_.devices) + " devices into dp * tp * pp with heads " +
                         std::to_string(model_.heads) + ", kv_heads " + std::to_string(model_.kv_heads) +
                         " and ffn_hidden " + std::to_string(model_.ffn_hidden) + " multiples of tp, pp at most " +
                         std::to_string(most_stages(request_)) + ", and the global batch " +
                         std::to_string(request_.training.global_batch_size) + " a multiple of dp * micro-batch" +
                         tried_.missing_axes());
    }

  private:
    void list_experts(Choice mesh) {
        for (const std::int64_t ep : tried_.expert_degrees()) {
            if ((mesh.tp * mesh.cp * mesh.dp) % ep != 0) continue;
            mesh.ep = ep;
            for (const std::int64_t etp : tried_.expert_tensor_degrees(mesh.tp)) {
                if ((mesh.tp * mesh.cp * mesh.dp) % (ep * etp) != 0) continue;
                mesh.etp = etp;
                for (const bool sequence_parallel : {false, true}) {
                    mesh.sequence_parallel = sequence_parallel;
                    if (tried_.sequence_parallel(sequence_parallel, mesh.tp)) list_schedules(mesh);
                }
            }
        }
    }

    void list_schedules(Choice choice) {
        bool has_one_stage = false;
        for (const Schedule schedule : request_.schedules) {
            choice.schedule = choice.pp == 1 ? Schedule::one_f_one_b : schedule;
            // With one stage all schedules are the same.
            if (choice.pp == 1 && std::exchange(has_one_stage, true)) continue;
            for (const std::int64_t chunks : chunk_counts(choice)) {
                if (!is_wanted(request_.chunks, chunks)) continue;
                choice.chunks = chunks;
                list_overlaps(choice);
            }
        }
    }

    /// Whether passes overlap with the tokens of another pass; tried only where check_plan may allow it.
    void list_overlaps(Choice choice) {
        const bool may_overlap = choice.ep > 1 && program::has_pairs_on(choice.schedule, choice.pp);
        for (const bool overlaps : either(request_.overlaps_experts, request_.tries_expert_overlap && may_overlap)) {
            choice.overlaps_experts = overlaps;
            list_vocabularies(choice);
        }
    }

    /// A kind that is not the only one is tried only where check_plan may allow it.
    void list_vocabularies(Choice choice) {
        const bool may_spread =
            choice.pp > 1 && choice.schedule == Schedule::one_f_one_b && choice.tp == 1 && choice.cp == 1;
        for (const VocabularyParallel kind : request_.vocabulary_parallel) {
            choice.vocabulary = kind;
            if (!choice.spreads_vocabulary() || may_spread || request_.vocabulary_parallel.size() == 1) {
                list_layouts(choice);
            }
        }
    }

    /// Numbers of chunks per rank that the schedule allows: those with equal stages, and for each size of the largest
    /// stage the fewest with uneven ones.
    [[nodiscard]] std::vector<std::int64_t> chunk_counts(const Choice& choice) const {
        const std::int64_t chunks = row_of(choice.schedule).chunks, layers = model_.layers, pp = choice.pp;
        if (chunks != program::ScheduleRow::kAnyChunks) return {chunks};
        std::set<std::int64_t> counts;
        if (layers % pp == 0) {
            for (const std::int64_t count : divisors(layers / pp)) counts.insert(count);
        }
        if (lays_out_stages(request_)) {
            for (std::int64_t blocks = 1; blocks * pp < layers; ++blocks) {
                counts.insert((layers + blocks * pp - 1) / (blocks * pp));
            }
        }
        counts.erase(1);  // one chunk is 1F1B
        return {counts.begin(), counts.end()};
    }

    /// Layouts of the stages that differ.
    void list_layouts(Choice choice) {
        const std::int64_t stages = row_of(choice.schedule).virtual_stages(choice.pp, choice.chunks);
        if (!request_.stage_layers.empty()) {
            if (std::ssize(request_.stage_layers) == stages) list_family(choice);
            return;
        }
        for (const EndWeights ends : distinct_layouts(choice)) {
            // A vocabulary that is sharded over all stages weighs nothing.
            if (choice.spreads_vocabulary() && ends != EndWeights()) continue;
            choice.ends = ends;
            list_family(choice);
        }
    }

    /// Of each layout that the schedule's stages may have, the first of the weights that give it.
    const std::vector<EndWeights>& distinct_layouts(Choice choice) {
        const auto [entry, fresh] = layouts_.try_emplace({choice.schedule, choice.pp, choice.chunks});
        if (!fresh) return entry->second;
        std::set<std::vector<std::int64_t>> known;
        for (const EndWeights ends : end_weights_) {
            choice.ends = ends;
            const std::vector<std::int64_t> layout = stage_layers_of(request_, choice);
            if (!layout.empty() && known.insert(layout).second) entry->second.push_back(ends);
        }
        return entry->second;
    }

    void list_family(Choice choice) {
        if (drops(choice, kPipelineFields)) return;
        auto [sizes, left_out] = scheduled_sizes(choice);
        if (sizes.empty()) return;
        choice.micro_batch = sizes.front();
        const std::optional<DataParallel> kind = valid_kind(choice);
        if (!kind.has_value()) return;
        if (!recompute_known_) find_recompute(choice, *kind);
        if (!offload_known_) find_offload(choice, *kind);
        std::erase_if(sizes, [&](std::int64_t size) { return tried_.is_too_large(size); });
        std::erase_if(sizes, [&](std::int64_t size) {
            choice.micro_batch = size;
            return drops(choice, kMicroBatchField);
        });
        if (sizes.empty()) return;
        choice.micro_batch = sizes.front();
        const std::size_t shardings = shardings_for(choice);
        std::int64_t combinations = 0;
        for (const Sharding& sharding : list_.shardings[shardings]) combinations += list_.savings_of(choice, sharding);
        if (combinations == 0) return;
        list_.considered += std::ssize(sizes) * combinations;
        list_.left_out += left_out * combinations;
        choice.micro_batch = 1;
        list_.families.push_back({choice, std::move(sizes), shardings});
    }

    /// Sizes that give numbers of micro-batches for the schedule.
    const MicroBatchSizes& scheduled_sizes(const Choice& choice) {
        const auto [entry, fresh] = sizes_.try_emplace({choice.schedule, choice.pp, choice.chunks, choice.dp});
        MicroBatchSizes& sizes = entry->second;
        if (!fresh) return sizes;
        const std::int64_t samples = request_.training.global_batch_size / choice.dp;
        sizes = micro_batch_sizes(samples, request_.micro_batch_size);
        std::erase_if(sizes.tried, [&](std::int64_t size) {
            const program::ScheduleShape shape{.schedule = choice.schedule,
                                               .ranks = choice.pp,
                                               .chunks = choice.chunks,
                                               .micro_batches = samples / size};
            return !program::schedule_problem(shape).empty();
        });
        return sizes;
    }

    bool drops(const Choice& choice, std::span<const PlanField> fields) {
        const bool dropped = is_excluded(request_, choice, fields);
        drops_any_ |= dropped;
        return dropped;
    }

    bool is_valid(const Choice& choice) {
        try {
            program::check_plan(plan_of(request_, choice), "the request");
            return true;
        } catch (const InputError& error) {
            if (!problem_.has_value()) problem_ = error.what();
            return false;
        }
    }

    /// Numbers of ranks that share one set of shards: all, or those of a whole number of nodes, one of each range of
    /// kShardSizeStep. None if the request fixes the number and the kind shards nothing.
    [[nodiscard]] std::vector<std::int64_t> shard_sizes(const Choice& choice, DataParallel kind) const {
        const std::int64_t ranks = choice.dp * choice.cp, asked = request_.dp_shard;
        const bool shards = row_of(kind).shards_states;
        if (asked != 0 && !shards) return {};
        if (asked != 0) return {asked == ranks ? 0 : asked};
        std::vector<std::int64_t> sizes{0};
        std::int64_t next = 2;  // the least of the next range
        if (!request_.tries_shard_groups || !shards || choice.ep > 1) return sizes;
        for (const std::int64_t size : divisors(ranks)) {
            if (size < 2 || size == ranks || size * choice.tp % request_.cluster.devices_per_node != 0) continue;
            if (size < next) continue;
            sizes.push_back(size);
            while (next <= size) next *= kShardSizeStep;
        }
        return sizes;
    }

    void find_recompute(Choice choice, DataParallel kind) {
        recompute_known_ = true;
        choice.sharding.data_parallel = kind;
        for (const Recompute recompute : request_.recompute) {
            choice.recompute = recompute;
            if (!drops(choice, kRecomputeField) && is_valid(choice)) list_.recompute.push_back(recompute);
        }
    }

    /// Whether activations may be offloaded, which depends on the pipeline only in that split backward passes may not.
    void find_offload(Choice choice, DataParallel kind) {
        if (row_of(choice.schedule).splits_backward()) return;
        offload_known_ = true;
        const bool recomputes_nothing = std::ranges::find(list_.recompute, Recompute::none) != list_.recompute.end();
        choice.sharding.data_parallel = kind;
        choice.offload_layers = 1;
        list_.offloads_activations = tries(Offload::activations) && recomputes_nothing && is_valid(choice);
    }

    [[nodiscard]] bool tries(Offload kind) const { return std::ranges::find(offload_, kind) != offload_.end(); }

    /// What may be on the host beside activations.
    [[nodiscard]] std::vector<Offload> offloads_of(DataParallel kind) const {
        std::vector<Offload> found;
        if (tries(Offload::none) || tries(Offload::activations)) found.push_back(Offload::none);
        if (tries(Offload::optimizer)) found.push_back(Offload::optimizer);
        if (tries(Offload::parameters) && row_of(kind).shards_parameters) found.push_back(Offload::parameters);
        return found;
    }

    /// Of all layouts with several chunks one is checked; the others obey the same rules.
    static Choice validity_key(Choice choice) {
        choice.ends = {};
        choice.chunks = std::min<std::int64_t>(2, choice.chunks);
        choice.micro_batch = 1;
        return choice;
    }

    /// The first kind of data parallelism with which the pipeline is valid.
    std::optional<DataParallel> valid_kind(Choice choice) {
        const auto [known, fresh] = valid_kinds_.add(validity_key(choice));
        if (!fresh) return known;
        for (const DataParallel kind : kinds_for(choice)) {
            choice.sharding.data_parallel = kind;
            if (!is_valid(choice)) continue;
            known = kind;
            break;
        }
        return known;
    }

    /// With a single replica nothing can be sharded.
    [[nodiscard]] std::vector<DataParallel> kinds_for(const Choice& choice) const {
        if (choice.dp * choice.cp == 1) return {DataParallel::ddp};
        return request_.data_parallel;
    }

    /// Index of the shardings that a valid pipeline may have.
    std::size_t shardings_for(const Choice& choice) {
        const auto [known, fresh] = shardings_.add(validity_key(choice), 0);
        if (fresh) known = list_shardings(choice);
        return known;
    }

    std::size_t list_shardings(Choice choice) {
        std::vector<Sharding> found;
        Sharding& sharding = choice.sharding;
        const std::vector<bool> orders = choice.pp > 1 && choice.dp > 1
                                             ? either(request_.pp_before_dp, request_.tries_rank_orders)
                                             : std::vector<bool>{false};
        for (const DataParallel kind : kinds_for(choice)) {
            sharding.data_parallel = kind;
            for (const std::int64_t size : shard_sizes(choice, kind)) {
                sharding.dp_shard = size;
                for (const bool reshards : reshardings(kind)) {
                    sharding.reshards = reshards;
                    for (const bool pp_before_dp : orders) {
                        sharding.pp_before_dp = pp_before_dp;
                        for (const Offload offload : offloads_of(kind)) {
                            sharding.offload = offload;
                            if (!drops(choice, kShardingFields) && is_valid_sharding(choice)) found.push_back(sharding);
                        }
                    }
                }
            }
        }
        const auto same = std::find(list_.shardings.begin(), list_.shardings.end(), found);
        const auto index = static_cast<std::size_t>(same - list_.shardings.begin());
        if (same == list_.shardings.end()) list_.shardings.push_back(std::move(found));
        return index;
    }

    /// The value that the request fixes; otherwise false, and true too if the request tries it.
    static std::vector<bool> either(std::optional<bool> asked, bool tries) {
        if (asked.has_value()) return {*asked};
        return tries ? std::vector<bool>{false, true} : std::vector<bool>{false};
    }

    /// Values of Sharding::reshards. None if the request fixes it and the kind gathers no parameters.
    [[nodiscard]] std::vector<bool> reshardings(DataParallel kind) const {
        const std::optional<bool> asked = request_.reshard_after_forward;
        if (!row_of(kind).shards_parameters) return asked.has_value() ? std::vector<bool>{} : std::vector<bool>{true};
        if (asked.has_value()) return {*asked};
        return request_.tries_keeping_parameters ? std::vector<bool>{true, false} : std::vector<bool>{true};
    }

    /// With every kind of recomputation. Apart from the order of ranks, the rules about shardings depend on which
    /// degrees are above 1.
    bool is_valid_sharding(Choice choice) {
        if (choice.sharding.dp_shard > 0 && choice.dp * choice.cp % choice.sharding.dp_shard != 0) return false;
        if (choice.sharding.pp_before_dp && model_.has_experts() &&
            !program::mesh_problem(mesh_of(request_, choice)).empty())
            return false;
        Choice key = validity_key(choice);
        for (std::int64_t* degree : {&key.dp, &key.tp, &key.pp, &key.cp, &key.ep, &key.etp}) {
            *degree = std::min<std::int64_t>(2, *degree);
        }
        if (choice.sharding.dp_shard > 0)
            key.sharding.dp_shard = choice.sharding.dp_shard < choice.dp * choice.cp ? 1 : 2;
        const auto [known, fresh] = valid_shardings_.add(key, false);
        if (fresh) {
            known = std::all_of(list_.recompute.begin(), list_.recompute.end(), [&](Recompute recompute) {
                choice.recompute = recompute;
                return is_valid(choice);
            });
        }
        return known;
    }

    const PlanRequest& request_;
    const models::ModelSpec& model_;
    TriedDegrees tried_;
    std::vector<EndWeights> end_weights_;
    std::map<std::tuple<Schedule, std::int64_t, std::int64_t>, std::vector<EndWeights>> layouts_;  // distinct_layouts
    /// By schedule, pp, chunks and dp: scheduled_sizes.
    std::map<std::tuple<Schedule, std::int64_t, std::int64_t, std::int64_t>, MicroBatchSizes> sizes_;
    std::vector<Offload> offload_;  // those of the request that it does not exclude
    CandidateList list_;
    ByChoice<std::optional<DataParallel>> valid_kinds_;
    ByChoice<bool> valid_shardings_;
    ByChoice<std::size_t> shardings_;  // indices into CandidateList::shardings
    bool recompute_known_ = false, offload_known_ = false;
    bool drops_any_ = false;              // because the request excludes it
    std::optional<std::string> problem_;  // the first error of check_plan
};

}  // namespace

std::uint64_t hash_of(const Choice& choice) {
    std::uint64_t hash = 0;
    const auto mix = [&](auto... values) {
        std::uint64_t word = 0;
        ((word = (word << 12) ^ static_cast<std::uint64_t>(values)), ...);
        hash = (hash ^ word) * 0x9e3779b97f4a7c15;
        hash ^= hash >> 29;
    };
    const Sharding& sharding = choice.sharding;
    mix(choice.dp, choice.tp, choice.pp, choice.cp);
    mix(choice.ep, choice.etp, choice.chunks, choice.micro_batch);
    mix(choice.ends.embedding, choice.ends.head, choice.recompute_layers, choice.offload_layers);
    mix(choice.schedule, choice.vocabulary, choice.overlaps_experts, choice.sequence_parallel);
    mix(choice.recompute, choice.recompute_parts, sharding.dp_shard);
    mix(sharding.data_parallel, sharding.reshards, sharding.pp_before_dp, sharding.offload);
    return hash;
}

std::vector<std::int64_t> divisors(std::int64_t n) {
    std::vector<std::int64_t> low, high;
    for (std::int64_t d = 1; d * d <= n; ++d) {
        if (n % d != 0) continue;
        low.push_back(d);
        if (d != n / d) high.push_back(n / d);
    }
    low.insert(low.end(), high.rbegin(), high.rend());
    return low;
}

Choice degrees_of(const Choice& choice) {
    return {.tp = choice.tp,
            .pp = choice.pp,
            .cp = choice.cp,
            .ep = choice.ep,
            .etp = choice.etp,
            .overlaps_experts = choice.overlaps_experts,
            .sequence_parallel = choice.sequence_parallel};
}

std::vector<Choice> halves_of(const Choice& choice) {
    std::vector<Choice> halves;
    for (std::int64_t Choice::*degree : {&Choice::tp, &Choice::cp, &Choice::etp}) {
        if (choice.*degree % 2 != 0) continue;
        Choice& half = halves.emplace_back(degrees_of(choice));
        half.*degree /= 2;
        half.sequence_parallel = half.sequence_parallel && half.tp > 1;
    }
    return halves;
}

std::size_t CandidateList::mesh_end(std::size_t family) const {
    const Choice mesh = degrees_of(families[family].choice);
    std::size_t end = family + 1;
    while (end < families.size() && degrees_of(families[end].choice) == mesh) ++end;
    return end;
}

CandidateList list_candidates(const PlanRequest& request) {
    return Lister(request).list();
}

}  // namespace orrery::sim
