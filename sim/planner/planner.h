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
    std::vector<program::PlanResult> results;  // the best feasible ones by step time, then the infeasible ones
    std::int64_t considered = 0;               // candidates that divide as they must
    std::int64_t left_out = 0;   // others, whose micro-batch is above 32 and within an eighth of a considered one
    std::int64_t simulated = 0;  // candidates that fit and whose lower bound was good enough
    std::int64_t simulated_exactly = 0;  // of them, with all their micro-batches; the others to 2e-3
};

/// The best `keep` (> 0) plans. Memory is settled first, on few micro-batches. What fits is simulated in the order of a
/// lower bound on its step (its compute alone), until no remaining bound beats the worst plan kept: the same plans as
/// if all were simulated. `results` ends with the infeasible candidates; of those whose micro-batch is larger than one
/// that does not fit, nothing is computed. Throws InputError when no candidate divides as it must or the request breaks
/// a rule of check_plan, InfeasibleError when none fits, each naming what is in the way.
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
