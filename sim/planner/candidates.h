// Private to the planner: the plans that a request allows.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "sim/planner/planner.h"
#include "sim/program/stage_layout.h"

namespace orrery::sim {

/// Every divisor up to this is tried as micro-batch size. Larger sizes lie at least an eighth apart: efficiency hardly
/// changes between neighbours, and a batch with many divisors would multiply the search.
inline constexpr std::int64_t kEveryMicroBatch = 32;
/// Of the sizes of sets of shards from 2 to 7, from 8 to 31 and so on, each range this times as large as the one
/// before, the smallest is tried: the reduction among the sets and the memory change little within a range. All meshes
/// of a cluster try the same sizes where they can.
inline constexpr std::int64_t kShardSizeStep = 4;

/// Parts of a block, one bit for each models::BlockPart.
using PartSet = std::uint16_t;

/// How the ranks of a stage share parameters, gradients and optimizer states, and how ranks are numbered.
struct Sharding {
    program::DataParallel data_parallel = program::DataParallel::ddp;
    std::int64_t dp_shard = 0;        // Parallelism::dp_shard
    bool reshards = true;             // Parallelism::reshard_after_forward
    bool pp_before_dp = false;        // neighbouring stages lie next to each other, replicas further apart
    Offload offload = Offload::none;  // none, optimizer or parameters
    auto operator<=>(const Sharding&) const = default;
};

/// The properties that distinguish candidates; the rest comes from the request.
struct Choice {
    std::int64_t dp = 1, tp = 1, pp = 1, cp = 1, ep = 1, etp = 1;
    bool overlaps_experts = false;
    bool sequence_parallel = false;
    program::Schedule schedule = program::Schedule::one_f_one_b;
    program::VocabularyParallel vocabulary = program::VocabularyParallel::none;
    std::int64_t chunks = 1;
    program::EndWeights ends;  // the layout of the stages; none: as even as possible
    Sharding sharding;
    program::Recompute recompute = program::Recompute::none;
    PartSet recompute_parts = 0;  // of selective recomputation; 0: selective_parts()
    /// Full recomputation: recomputed blocks of each chunk. -1: all, or not decided yet (the search then takes the
    /// fewest that fit).
    std::int64_t recompute_layers = -1;
    /// Blocks of each chunk whose activations are offloaded. -1: all, or not decided yet, as with recompute_layers.
    std::int64_t offload_layers = 0;
    std::int64_t micro_batch = 1;
    auto operator<=>(const Choice&) const = default;

    /// The number of blocks of each chunk that are offloaded, if any are, or else recomputed.
    [[nodiscard]] std::int64_t& relieved_layers() { return offload_layers != 0 ? offload_layers : recompute_layers; }
    [[nodiscard]] bool spreads_vocabulary() const { return vocabulary != program::VocabularyParallel::none; }
};
[[nodiscard]] std::uint64_t hash_of(const Choice& choice);
/// Values by choice, in the order of hashes: choices have many fields, of which most are the same.
template <typename Value>
class ByChoice {
  public:
    /// The value of the choice, and whether it has just been added.
    template <typename... Arguments>
    std::pair<Value&, bool> add(const Choice& choice, Arguments&&... arguments) {
        const auto [entry, fresh] =
            values_.try_emplace({hash_of(choice), choice}, std::forward<Arguments>(arguments)...);
        return {entry->second, fresh};
    }
    /// Null if the choice has none.
    [[nodiscard]] const Value* find(const Choice& choice) const {
        const auto entry = values_.find({hash_of(choice), choice});
        return entry == values_.end() ? nullptr : &entry->second;
    }
    [[nodiscard]] std::size_t size() const { return values_.size(); }
    void clear() { values_.clear(); }

  private:
    std::map<std::pair<std::uint64_t, Choice>, Value> values_;
};

/// Candidates with the same pipeline.
struct Family {
    Choice choice;                            // without micro-batch size, sharding and recomputation
    std::vector<std::int64_t> micro_batches;  // ascending
    std::size_t shardings = 0;                // index into CandidateList::shardings
};

struct CandidateList {
    /// In the order of tp, pp, cp, ep, etp, sp, schedule, chunks, vocabulary, layout.
    std::vector<Family> families;
    /// The shardings that each micro-batch size and each kind of recomputation is combined with.
    std::vector<std::vector<Sharding>> shardings;
    std::vector<program::Recompute> recompute;  // those of the request that the implementation has
    bool offloads_activations = false;          // beside recomputation, unless backward passes are split
    bool keeps_on_device = true;                // candidates may offload nothing
    std::int64_t considered = 0;  // candidates: a micro-batch size, a sharding and a kind of recomputation of a family
    std::int64_t left_out = 0;    // candidates whose micro-batch size divides but lies close to one that is tried

    /// The end of the families that have the same degrees as this one; they follow one another.
    [[nodiscard]] std::size_t mesh_end(std::size_t family) const;
    [[nodiscard]] const std::vector<Sharding>& shardings_of(const Family& family) const {
        return shardings[family.shardings];
    }
    /// Whether candidates with this pipeline and sharding may offload activations, and whether they have to.
    [[nodiscard]] bool may_offload_activations(const Choice& pipeline) const {
        return offloads_activations && !pipeline.overlaps_experts && !row_of(pipeline.schedule).splits_backward();
    }
    [[nodiscard]] bool must_offload_activations(const Sharding& sharding) const {
        return !keeps_on_device && sharding.offload == Offload::none;
    }
    /// The indices of the shardings that are tried first: all, or, if every one is tried without recomputation
    /// (`keeps_all`), those with the least on the host.
    [[nodiscard]] std::vector<std::size_t> tried_first(const std::vector<Sharding>& all, bool keeps_all) const;
    /// The number of ways in which candidates with this pipeline and sharding save activations.
    [[nodiscard]] std::int64_t savings_of(const Choice& pipeline, const Sharding& sharding) const {
        return (must_offload_activations(sharding) ? 0 : std::ssize(recompute)) +
               (may_offload_activations(pipeline) ? 1 : 0);
    }
};

/// The index of the same sharding with the next more on the host, or the next less; none if the list lacks it.
[[nodiscard]] std::optional<std::size_t> more_offload(const std::vector<Sharding>& shardings, std::size_t index);
[[nodiscard]] std::optional<std::size_t> less_offload(const std::vector<Sharding>& shardings, std::size_t index);

/// Throws InputError if no plan divides evenly, if all plans break a rule of check_plan, or if the implementation
/// cannot use that many nodes.
[[nodiscard]] CandidateList list_candidates(const PlanRequest& request);

/// The choice reduced to the degrees that all pipelines on a mesh have in common, and those with half of its tp, cp or
/// etp.
[[nodiscard]] Choice degrees_of(const Choice& choice);
[[nodiscard]] std::vector<Choice> halves_of(const Choice& choice);
/// Micro-batches of a step.
[[nodiscard]] std::int64_t micro_batches_of(const PlanRequest& request, const Choice& choice);
/// Parallelism::model_copies().
[[nodiscard]] std::int64_t copies_of(const Choice& choice);
/// Whether gradients are sharded unit by unit after every micro-batch, as frameworks do that shard gradients. With a
/// split backward they stay whole until the end of the step.
[[nodiscard]] bool reduces_each_micro_batch(program::DataParallel kind, program::Schedule schedule);

/// The blocks of each virtual stage: the request's, if it gives as many. Empty if there are too many stages.
[[nodiscard]] std::vector<std::int64_t> stage_layers_of(const PlanRequest& request, const Choice& choice);

/// The mesh and the techniques, without the blocks of each stage.
[[nodiscard]] program::Parallelism mesh_of(const PlanRequest& request, const Choice& choice);
[[nodiscard]] program::Parallelism parallelism_of(const PlanRequest& request, const Choice& choice);
/// The complete plan, named after its choice.
[[nodiscard]] program::Plan plan_of(const PlanRequest& request, const Choice& choice);

/// Parts of a block that selective recomputation computes again: the request's, if it names any. Otherwise norms and
/// the activation, which cost next to nothing and hold a third of what a block saves, and the attention core unless
/// attention is fused, which holds most of the rest (Korthikanti et al. 2022, arXiv 2205.05198).
[[nodiscard]] std::vector<std::string> selective_parts(const PlanRequest& request);

/// How plans of the request share attention among context-parallel ranks: by a ring where possible. Unfused attention
/// needs Ulysses, a sliding window an all-gather.
[[nodiscard]] program::ContextParallel context_parallel_of(const PlanRequest& request);

/// The names of the parts in the set.
[[nodiscard]] std::vector<std::string> parts_of(PartSet set);

/// The divisors of n, ascending.
[[nodiscard]] std::vector<std::int64_t> divisors(std::int64_t n);

}  // namespace orrery::sim
