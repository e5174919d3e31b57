// Which parallelism? Lists the plans that a request allows, drops those that do not fit, simulates the others and ranks
// them by step time.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "sim/program/plan.h"
#include "sim/program/plan_result.h"
#include "sim/program/run_record.h"
#include "sim/program/sensitivity.h"
#include "topologies/cluster.h"

namespace orrery::sim {

struct PlanRequest {
    models::ModelSpec model;
    topologies::ClusterSpec cluster;
    models::Implementation implementation;
    std::int64_t devices = 1;    // world size of every candidate
    program::Rates rates;        // what time is predicted with
    program::Training training;  // micro_batch_size is chosen by the search
    // Only plans with one of these; see allow_every_technique.
    std::vector<program::Schedule> schedules{program::Schedule::one_f_one_b};
    std::vector<program::DataParallel> data_parallel{program::DataParallel::ddp};
    std::vector<program::Recompute> recompute{program::Recompute::none};
    // 0: any. Otherwise only plans with this degree or micro-batch size.
    std::int64_t tp = 0, pp = 0, dp = 0, cp = 0, ep = 0, micro_batch_size = 0;
    std::map<std::string, std::string> origins;
    std::optional<double> memory_margin_gib;  // see memory_per_rank_bytes
};

/// Of what the implementation has: schedules 1f1b, interleaved-1f1b, zb-h1 and zb-v; data parallelism ddp, zero1 and
/// zero3; recomputation none, selective and full. Where it has none of these schedules or kinds, what it has. Left out,
/// though they may be asked for: zero2, which costs a reduction each micro-batch and saves less than zero3; gpipe and
/// naive, which 1f1b covers; zb-h2, zb-1p, zb-2p and the dualpipes, whose memory is twice that of zb-v or whose order
/// takes long to find.
void allow_every_technique(PlanRequest& request);

struct PlanSearch {
    /// The best feasible ones by step time. Then, of each mesh (tp, pp, dp, cp, ep) on which nothing fits, the
    /// candidate that needs least.
    std::vector<program::PlanResult> results;
    std::int64_t considered = 0;  // candidates that divide as they must
    std::int64_t left_out = 0;    // others, whose micro-batch is above 32 and within an eighth of a considered one
    std::int64_t too_large = 0;   // candidates that were found not to fit
    std::int64_t outlined = 0;    // lowerings of the model on one stage, from which all candidates are outlined
    std::int64_t sketched = 0;    // lowerings that settled a candidate's memory exactly
    std::int64_t simulated = 0;   // candidates that fit and whose lower bound was good enough
    std::int64_t simulated_exactly = 0;  // of them, with all their micro-batches; the others to 2e-3
};

/// The best `keep` (> 0) plans, by branch and bound. Every candidate is outlined: bounds of its memory and of its step,
/// from the costs of its layers. In the order of that bound what may fit is sketched (its memory exactly, a tighter
/// bound), and what fits is simulated, until no remaining bound beats the worst plan kept: the same plans as if all
/// were simulated. Recomputation is tried only where the candidate does not fit without (if the request allows
/// without), and full recomputation of the fewest blocks that make it fit. Throws InputError when no candidate divides
/// as it must or the request breaks a rule of check_plan, InfeasibleError when none fits, each naming what is in the
/// way.
[[nodiscard]] PlanSearch search_plans(const PlanRequest& request, const topologies::Cluster& cluster, std::size_t keep);

/// Names of what people train with on such a cluster: Megatron-Core and FSDP2. Orrery itself on ranks of this machine,
/// and on GPUs that `orrery calibrate` has measured.
[[nodiscard]] std::vector<std::string> default_implementations(const topologies::ClusterSpec& cluster);

/// Adds what another search found, of another implementation: its plans are ranked among those that are there, of which
/// the best `keep` remain, and its counts are added.
void merge(PlanSearch& into, PlanSearch from, std::size_t keep);

/// Left free on a GPU unless another margin is given: what an allocator needs beyond the tensors at its peak differs
/// from step to step. With it 97.4% of the published runs that ran are said to fit, and 7.8% of those that ran out of
/// memory (docs/accuracy.md).
inline constexpr double kDefaultMemoryMarginGib = 0.5;
/// Memory that one rank may use, in bytes: what the device lets processes take, or the rank's share of the node where
/// ranks share one, less the margin. Without one given: kDefaultMemoryMarginGib, and none where the host computes.
[[nodiscard]] std::int64_t memory_per_rank_bytes(const program::Plan& plan, std::optional<double> margin_gib = {});

/// By the one rule of every command.
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

/// Of a step, on the ranks that are simulated: simulating so many takes some 0.6 GiB.
inline constexpr std::int64_t kMostInstructions = std::int64_t{1} << 22;
/// Numbers of micro-batches from which a longer step is predicted: once a pipeline has settled, it is affine in them.
struct ShorterSteps {
    std::int64_t few = 0, more = 0;
};
/// Nothing for a step of at most kMostInstructions, which is lowered and simulated whole.
[[nodiscard]] std::optional<ShorterSteps> shorter_steps(const program::Plan& plan);
/// The plan's evaluation from those; without spans.
[[nodiscard]] Evaluation evaluate_from(const ShorterSteps& steps, const program::Plan& plan,
                                       const topologies::Cluster& cluster, const EvaluateOptions& options = {});
/// The plan with fewer (or more) of them.
[[nodiscard]] program::Plan with_micro_batches(const program::Plan& plan, std::int64_t micro_batches);

/// Those of the fewest changes, at most `most` and the fastest first: a smaller micro-batch, sequence parallelism,
/// sharding, recomputation, states on the host, twice the tensor- or pipeline-parallel degree in place of replicas.
/// Each keeps the rules of check_plan, which are also the implementation's. None where three changes do not suffice.
[[nodiscard]] std::vector<program::Remedy> remedies(const program::Plan& plan, const topologies::Cluster& cluster,
                                                    std::size_t most, std::optional<double> margin_gib = {});

}  // namespace orrery::sim
