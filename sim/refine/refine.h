// A cluster's timings made better by what plans took that ran on it: each kind of operator, and each collective among
// as many ranks, by a factor of its own.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "sim/program/program.h"
#include "sim/program/run_record.h"
#include "topologies/cluster_spec.h"

namespace orrery::sim {

/// Lowered for the cluster that is to be refined.
struct MeasuredRun {
    std::string name;
    program::Program program;
    program::RunRecord record;  // executed, with the spans of every rank
};

struct TimingFactor {
    std::string op;                 // "linear_forward", "all_reduce"
    std::string of;                 // "bf16", "2 ranks"
    double factor = 1;              // by which timings are stretched
    std::int64_t instructions = 0;  // in which it was seen
    double predicted_s = 0;         // in these, before
};

struct RefinedRun {
    std::string name;
    bool is_fitted = false;  // else more ranks than cores ran: its times say as much of turns as of work
    double measured_s = 0;   // a step
    double before_s = 0;     // predicted by the cluster as it was
    double after_s = 0;      // predicted with factors from runs of which this one is none
};

struct Refinement {
    topologies::ClusterSpec cluster;  // by all runs that are fitted
    std::vector<TimingFactor> factors;
    std::vector<RefinedRun> runs;  // in the order given
};

/// Factors come from instructions that compute, each the sum of its operators' predicted times, and, where the cluster
/// has timings of transfers, from communications; of both from those that a rank did not run side by side. Timings of
/// what was seen are stretched; operators that were seen and have no timings get some. To show what refining is worth,
/// the runs are divided in two by turns, and each half is predicted with the factors of the other. Throws InputError
/// naming the run when a record lacks spans, and when fewer than two runs can be fitted.
[[nodiscard]] Refinement refine(const topologies::ClusterSpec& cluster, const std::vector<MeasuredRun>& runs);

}  // namespace orrery::sim
