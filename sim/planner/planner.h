// Which parallelism? Lists the plans that a request allows, drops those that do not fit, simulates the others and ranks
// them by step time.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "sim/program/plan.h"
#include "sim/program/plan_result.h"
#include "sim/program/run_record.h"
#include "topologies/cluster.h"

namespace orrery::sim {

struct PlanRequest {
    models::ModelSpec model;
    topologies::ClusterSpec cluster;
    models::Implementation implementation;
    std::int64_t devices = 1;    // world size of every candidate
    program::Training training;  // micro_batch_size is chosen by the search
    std::vector<program::Schedule> schedules{program::Schedule::one_f_one_b};
    // 0: any. Otherwise only plans with this degree or micro-batch size.
    std::int64_t tp = 0, pp = 0, dp = 0, micro_batch_size = 0;
    std::map<std::string, std::string> origins;
};

struct PlanSearch {
    std::vector<program::PlanResult> results;  // feasible ones by step time, then the infeasible ones
    std::int64_t considered = 0;               // candidates that divide as they must
    std::int64_t simulated_exactly = 0;        // the best ones; only these are in `results` as feasible
};

/// The best `keep` plans. Every candidate is lowered and timed on few micro-batches, of which the steady state repeats
/// (the step is affine in their number from twice the pipeline's depth on); the best ones are then simulated whole.
/// `results` ends with the infeasible candidates. Throws InputError when no candidate divides as it must,
/// InfeasibleError when none fits, each naming what is in the way.
[[nodiscard]] PlanSearch search_plans(const PlanRequest& request, const topologies::Cluster& cluster, std::size_t keep);

/// One plan with every rank class simulated; `feasible` is false when the memory does not fit the device.
struct Evaluation {
    program::PlanResult result;
    program::RunRecord record;
};
[[nodiscard]] Evaluation evaluate(const program::Program& program, const topologies::Cluster& cluster,
                                  bool record_spans = false, bool full = false);

/// Memory that one rank may use, in bytes: of the device, or its share of the node where ranks share one.
[[nodiscard]] std::int64_t memory_per_rank_bytes(const program::Plan& plan);

}  // namespace orrery::sim
