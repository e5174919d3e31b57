// Searches for the best parallelism: lists the plans that a request allows, drops those that do not fit in memory,
// simulates the others and ranks them by step time.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "sim/planner/exclusion.h"
#include "sim/planner/offload.h"
#include "sim/program/plan.h"
#include "sim/program/plan_result.h"
#include "sim/program/run_record.h"
#include "sim/program/search_summary.h"
#include "sim/program/sensitivity.h"
#include "topologies/cluster.h"

namespace orrery::sim {

/// How far a search has come.
struct SearchProgress {
    std::string implementation;
    std::int64_t considered = 0, decided = 0;  // candidates; decided ones are simulated, excluded or do not fit
    double best_step_s = 0;                    // of the last plan to be proven; infinite while there is none
    double least_open_s = 0;                   // lower bound for all candidates that are not decided
    double elapsed_s = 0;                      // since the search began
    bool is_over = false;                      // the last report of this search
};

struct PlanRequest {
    models::ModelSpec model;
    topologies::ClusterSpec cluster;
    models::Implementation implementation;
    std::int64_t devices = 1;    // world size of every candidate
    program::Rates rates;        // calibrated rates that predict step times
    program::Training training;  // micro_batch_size is chosen by the search
    // Techniques that candidates may use; see allow_every_technique.
    std::vector<program::Schedule> schedules{program::Schedule::one_f_one_b};
    std::vector<program::DataParallel> data_parallel{program::DataParallel::ddp};
    std::vector<program::Recompute> recompute{program::Recompute::none};
    std::vector<program::VocabularyParallel> vocabulary_parallel{program::VocabularyParallel::none};
    /// More than `none` is tried only where a candidate does not fit without it (if `none` is allowed), because it is
    /// never faster.
    std::vector<Offload> offload{Offload::none};
    bool tries_shard_groups = false;        // HSDP
    bool tries_keeping_parameters = false;  // zero3: also without freeing parameters after the forward pass
    bool tries_rank_orders = false;         // also pp before dp
    bool tries_part_sets = false;           // selective recomputation of more or fewer parts than selective_parts()
    bool tries_expert_overlap = false;      // also passes that compute while the tokens of another pass travel
    bool tries_expert_tensor = false;  // also experts that are sharded over some or all tensor-parallel ranks (etp)
    // 0: any; otherwise only plans with this degree or micro-batch size.
    std::int64_t tp = 0, pp = 0, dp = 0, cp = 0, ep = 0, micro_batch_size = 0, chunks = 0, dp_shard = 0;
    std::int64_t etp = 0;                                     // 0: 1, or any if tries_expert_tensor
    std::optional<bool> reshard_after_forward, pp_before_dp;  // empty: any
    std::optional<bool> overlaps_experts;                     // empty: false, or any if tries_expert_overlap
    std::vector<std::int64_t> stage_layers;                   // blocks of each virtual stage; empty: any
    std::map<std::string, std::string> origins;
    std::optional<double> memory_margin_gib;  // see memory_per_rank_bytes
    /// A limit on the peak memory of a rank below what the device leaves it; 0: none.
    std::int64_t max_memory_bytes = 0;
    std::vector<Exclusion> excluded;  // candidates that have one of these values are not considered
    /// Only plans that may take at most this long are looked for. If there is none, no result is found, although
    /// slower plans may fit.
    double most_step_s = std::numeric_limits<double>::infinity();
    /// Called a few times a second while the search goes on, and at its end if it was called before.
    std::function<void(const SearchProgress&)> observer{};
};

/// The order of the mesh's axes in which neighbouring stages lie next to each other. The search tries it beside
/// Parallelism's own.
inline constexpr std::array<program::MeshAxis, program::kMeshAxes> kStagesBeforeReplicas{
    program::MeshAxis::tp, program::MeshAxis::cp, program::MeshAxis::ep, program::MeshAxis::pp, program::MeshAxis::dp};
/// Context parallelism is tried only if each rank keeps at least this many positions: with fewer, exchanging keys and
/// values costs more than it saves.
inline constexpr std::int64_t kLeastContextPositions = 1024;

/// Allows every technique of the implementation that is worth searching: the schedules and kinds of data parallelism
/// whose rows say so (is_searched), or those that it has if it has none of these; every kind of recomputation; sets of
/// shards, kept parameters, both orders of ranks and all sets of recomputed parts. If updates are validated afterwards
/// (Optimizer::post_validation), zb-h2 and zb-2p are searched too. The other schedules are searched only on request:
/// 1f1b covers gpipe and naive; zb-1p and the dualpipes need twice the memory of zb-v or an order that takes long to
/// find.
void allow_every_technique(PlanRequest& request);

/// Also allows passes that compute while the tokens of another pass travel, if model and implementation have them.
void allow_expert_overlap(PlanRequest& request);

/// Also allows what the implementation has of expert tensor parallelism, DualPipe-V, vocabulary parallelism and
/// offload. A request that allows every technique is left as it is otherwise.
void allow_full_space(PlanRequest& request);

struct PlanSearch {
    /// The best feasible plans by step time. Then, for each mesh (tp, pp, dp, cp, ep) on which nothing fits, the
    /// candidate that needs the least memory.
    std::vector<program::PlanResult> results;
    std::int64_t considered = 0;  // candidates that divide evenly
    std::int64_t left_out = 0;    // skipped: their micro-batch is above 32 and within an eighth of a considered one
    std::int64_t bounded = 0;     // candidates that were given bounds of their own; the others belong to pipelines or
                                  // blocks whose computation alone takes too long, or that fit with less recomputation
    std::int64_t too_large = 0;   // candidates among them that do not fit in memory
    /// Lowerings on one stage of a few blocks, from whose costs every candidate's analytic bounds are summed.
    std::int64_t layer_lowerings = 0;
    std::int64_t candidate_lowerings = 0;  // lowerings that gave a candidate's exact memory
    std::int64_t simulated = 0;            // candidates that fit and whose lower bound was good enough
    /// A lower bound on the step time that a simulation would find of any other candidate that may fit; infinite if
    /// there is none. The error of extrapolated step times, kStepTolerance, is taken off.
    double least_open_s = std::numeric_limits<double>::infinity();
    std::vector<program::SearchSpace> spaces;  // by implementation
    std::int64_t memory_limit_bytes = 0;       // the most that a rank may use
    /// Numbers of devices whose plans were searched; empty if the request has only one number (see search_at_most).
    std::set<std::int64_t> device_counts;
};

/// A step time found by the search is right to this share: the second step is the one simulated, from which later ones
/// may differ a little with uneven stages, and long steps are extrapolated.
inline constexpr double kStepTolerance = 2e-3;
/// The number of leading results for which it is proven that no other candidate is faster by more than kStepTolerance.
[[nodiscard]] std::size_t proven_results(const PlanSearch& search);
/// By what share of its step time a candidate that was not simulated may be faster than the best one at most; 0 if
/// none can be.
[[nodiscard]] double proven_gap(const PlanSearch& search);
/// For the objective of least time.
[[nodiscard]] program::SearchSummary summary_of(const PlanSearch& search);
/// Sets PlanResult::to_first of every feasible result; the first one is the one with rank 1.
void compare_with_first(std::vector<program::PlanResult>& results);

/// The best plans, by branch and bound: `keep` (> 0) of them, of which the first `prove` (1 to keep) are proven to be
/// the best; the further ones are the best of those that were simulated. Candidates with the same pipeline and
/// micro-batch size form a block, which has a bound by its computation alone, as have its pipeline and its mesh. In the
/// order of their bounds, the candidates of a block get analytic bounds of their own on memory and step time, then the
/// critical path of their schedule, and then a lowering with few micro-batches, which gives the exact memory and a
/// tighter bound. For those with many micro-batches two short simulations give one that is tighter still. Those that
/// fit are simulated, until there are `keep` and no remaining bound beats the worst to be proven. So the proven results
/// are the same as if every candidate were simulated, to kStepTolerance. Recomputation is tried only where the
/// candidate does not fit without it (provided the request allows Recompute::none), and then only of the fewest parts,
/// or of the fewest blocks, that make it fit. Throws InputError if no candidate divides evenly, if all that do are
/// excluded or if the request breaks a rule of check_plan, and InfeasibleError if none fits; both name the cause.
/// `rivals`: step times of plans that were found elsewhere, ascending, and compete for the `keep` places. The results
/// are those of this search that hold their own among them, possibly none. Lowerings and simulations run on the threads
/// of the caller's task arena (oneTBB), ahead of their turn. The result does not depend on the number of threads.
[[nodiscard]] PlanSearch search_plans(const PlanRequest& request, const topologies::Cluster& cluster, std::size_t keep,
                                      std::size_t prove, std::span<const double> rivals = {});

/// Implementations to search if the user names none: Orrery itself on CPU ranks and on GPUs that `orrery calibrate` has
/// measured, else Megatron-Core and FSDP2.
[[nodiscard]] std::vector<std::string> default_implementations(const topologies::ClusterSpec& cluster);

/// Step times of the search's feasible results, ascending: the rivals of the next search.
[[nodiscard]] std::vector<double> step_times(const PlanSearch& search);
/// Merges the search of another implementation: ranks the plans of both, keeps the best `keep`, and adds the counts.
void merge(PlanSearch& into, PlanSearch from, std::size_t keep);

/// Default margin left free on a GPU: an allocator's overhead beyond the tensors at the peak varies from step to step.
/// With this margin 97.4% of the published runs that ran are predicted to fit, and 7.8% of those that ran out of memory
/// (docs/accuracy.md).
inline constexpr double kDefaultMemoryMarginGib = 0.5;
/// Memory that one rank may use, in bytes: the usable memory of the device less the margin, divided among the ranks of
/// a node where ranks share a device. The margin defaults to kDefaultMemoryMarginGib, and to 0 if the host computes.
[[nodiscard]] std::int64_t memory_per_rank_bytes(const program::Plan& plan, std::optional<double> margin_gib = {});

/// The rule by which every command decides whether a plan fits.
[[nodiscard]] program::MemoryFit memory_fit(const program::Program& program, std::optional<double> margin_gib = {});

struct EvaluateOptions {
    bool record_spans = false;
    bool full = false;
    bool derivatives = false;
    std::optional<double> memory_margin_gib;  // see memory_per_rank_bytes
};

/// One plan with every rank class simulated; `feasible` is false when the memory does not fit.
struct Evaluation {
    program::PlanResult result;
    program::RunRecord record;
    program::MemoryFit memory;
    program::Sensitivity sensitivity;  // EvaluateOptions::derivatives
};
[[nodiscard]] Evaluation evaluate(const program::Program& program, const topologies::Cluster& cluster,
                                  const EvaluateOptions& options = {});

/// Limit on the instructions of one step over all simulated ranks; simulating that many takes about 0.6 GiB.
inline constexpr std::int64_t kMostInstructions = std::int64_t{1} << 22;
/// Two numbers of micro-batches from which a longer step is extrapolated: in steady state the step time is affine in
/// their number.
struct ShorterSteps {
    std::int64_t few = 0, more = 0;
};
/// No value for a step of at most kMostInstructions, which is lowered and simulated whole.
[[nodiscard]] std::optional<ShorterSteps> shorter_steps(const program::Plan& plan);
/// The plan's evaluation extrapolated from these steps; without spans.
[[nodiscard]] Evaluation evaluate_from(const ShorterSteps& steps, const program::Plan& plan,
                                       const topologies::Cluster& cluster, const EvaluateOptions& options = {});
/// The plan with another number of micro-batches.
[[nodiscard]] program::Plan with_micro_batches(const program::Plan& plan, std::int64_t micro_batches);

/// Changed plans that fit, with as few changes as possible; at most `most` of them, fastest first. Changes are a
/// smaller micro-batch, sequence parallelism, sharding, recomputation, optimizer states on the host, and twice the
/// tensor- or pipeline-parallel degree in place of replicas. Every result satisfies check_plan, which includes the
/// implementation's limits. Empty if three changes do not suffice.
[[nodiscard]] std::vector<program::Remedy> remedies(const program::Plan& plan, const topologies::Cluster& cluster,
                                                    std::size_t most, std::optional<double> margin_gib = {});

}  // namespace orrery::sim
