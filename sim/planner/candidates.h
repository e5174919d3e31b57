// Private to the planner: the plans that a request allows.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "sim/planner/planner.h"
#include "sim/program/stage_layout.h"

namespace orrery::sim {

/// Every divisor up to this is tried as micro-batch size. Larger sizes lie at least an eighth apart: efficiency hardly
/// changes between neighbours, and a batch with many divisors would multiply the search.
inline constexpr std::int64_t kEveryMicroBatch = 32;
/// Context parallelism is tried only if each rank keeps at least this many positions: with fewer, exchanging keys and
/// values costs more than it saves.
inline constexpr std::int64_t kLeastContextPositions = 8192;

/// The properties that distinguish candidates; the rest comes from the request.
struct Choice {
    std::int64_t dp = 1, tp = 1, pp = 1, cp = 1, ep = 1;
    bool sequence_parallel = false;
    program::Schedule schedule = program::Schedule::one_f_one_b;
    std::int64_t chunks = 1;
    program::EndWeights ends;  // the layout of the stages; none: as even as possible
    program::DataParallel data_parallel = program::DataParallel::ddp;
    program::Recompute recompute = program::Recompute::none;
    /// Full recomputation: recomputed blocks of each chunk. -1: all, or not decided yet (the search then takes the
    /// fewest that fit).
    std::int64_t recompute_layers = -1;
    std::int64_t micro_batch = 1;
    auto operator<=>(const Choice&) const = default;
};

struct Family {
    Choice choice;                            // without the micro-batch size
    std::vector<std::int64_t> micro_batches;  // ascending
};

struct CandidateList {
    /// In the order of tp, pp, cp, ep, sp, schedule, chunks, layout, data parallelism, recompute.
    std::vector<Family> families;
    std::int64_t considered = 0;  // candidates in the families
    std::int64_t left_out = 0;    // candidates whose micro-batch size divides but lies close to one that is tried
};

/// Throws InputError if no plan divides evenly, if all plans break a rule of check_plan, or if the implementation
/// cannot use that many nodes.
[[nodiscard]] CandidateList list_candidates(const PlanRequest& request);

/// The blocks of each virtual stage: the request's, if it gives as many. Empty if there are too many stages.
[[nodiscard]] std::vector<std::int64_t> stage_layers_of(const PlanRequest& request, const Choice& choice);

/// The complete plan, named after its choice.
[[nodiscard]] program::Plan plan_of(const PlanRequest& request, const Choice& choice);

/// Parts of a block that selective recomputation computes again: the request's, if it names any. Otherwise norms and
/// the activation, which cost next to nothing and hold a third of what a block saves, and the attention core unless
/// attention is fused, which holds most of the rest (Korthikanti et al. 2022, arXiv 2205.05198).
[[nodiscard]] std::vector<std::string> selective_parts(const PlanRequest& request);

/// The divisors of n, ascending.
[[nodiscard]] std::vector<std::int64_t> divisors(std::int64_t n);

}  // namespace orrery::sim
