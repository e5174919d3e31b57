// Private to the planner: the plans that a request allows.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "sim/planner/planner.h"

namespace orrery::sim {

/// Every micro-batch size up to here that divides is tried. Above it the sizes tried lie at least an eighth apart,
/// since efficiency hardly changes between two neighbours while a batch with many divisors would multiply the search.
inline constexpr std::int64_t kEveryMicroBatch = 32;
/// Context parallelism is tried as long as it leaves each rank so many positions: below, exchanging keys and values
/// costs more than what it saves.
inline constexpr std::int64_t kLeastContextPositions = 8192;

/// What distinguishes a candidate; everything else is the request's.
struct Choice {
    std::int64_t dp = 1, tp = 1, pp = 1, cp = 1, ep = 1;
    bool sequence_parallel = false;
    program::Schedule schedule = program::Schedule::one_f_one_b;
    std::int64_t chunks = 1;
    program::DataParallel data_parallel = program::DataParallel::ddp;
    program::Recompute recompute = program::Recompute::none;
    /// Of full recomputation: blocks of each chunk; -1: not settled yet (the fewest that fit), all of them at most.
    std::int64_t recompute_layers = -1;
    std::int64_t micro_batch = 1;
    auto operator<=>(const Choice&) const = default;
};

struct Family {
    Choice choice;                            // but for the micro-batch
    std::vector<std::int64_t> micro_batches;  // ascending
};

struct CandidateList {
    std::vector<Family> families;  // in the order of tp, pp, cp, ep, sp, schedule, chunks, data parallelism, recompute
    std::int64_t considered = 0;   // candidates in them
    std::int64_t left_out = 0;     // those whose micro-batch size divides but lies next to one that is tried
};

/// Throws InputError when no plan divides as it must, when all break a rule of check_plan, or when the request names a
/// technique that is not searched.
[[nodiscard]] CandidateList list_candidates(const PlanRequest& request);

/// The whole plan, named after what distinguishes it.
[[nodiscard]] program::Plan plan_of(const PlanRequest& request, const Choice& choice);

/// Parts of a block that selective recomputation computes again: norms and the activation cost next to nothing and hold
/// a third of what a block saves; the scores of an attention that is not fused, most of the rest (Korthikanti et al.
/// 2022, arXiv 2205.05198). The request's own, when it names some.
[[nodiscard]] std::vector<std::string> selective_parts(const PlanRequest& request);

/// Ascending.
[[nodiscard]] std::vector<std::int64_t> divisors(std::int64_t n);

}  // namespace orrery::sim
