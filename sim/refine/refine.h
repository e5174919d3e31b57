// Refines a cluster's timings with measured runs of plans: each kind of operator, and each collective among a given
// number of ranks, gets its own factor.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "sim/program/program.h"
#include "sim/program/run_record.h"
#include "topologies/cluster_spec.h"

namespace orrery::sim {

/// An executed run; the program is lowered for the cluster that is refined.
struct MeasuredRun {
    std::string name;
    program::Program program;
    program::RunRecord record;  // executed, with the spans of every rank
};

struct TimingFactor {
    std::string op;                 // "linear_forward", "all_reduce"
    std::string of;                 // "bf16", "2 ranks"
    double factor = 1;              // by which timings are multiplied
    std::int64_t instructions = 0;  // instructions in which it was observed
    double predicted_s = 0;         // time predicted for it in these instructions, before refining
};

struct RefinedRun {
    std::string name;
    bool is_fitted = false;  // false: more ranks than cores, so its times include waiting for a core
    double measured_s = 0;   // step time
    double before_s = 0;     // predicted with the cluster as it was
    double after_s = 0;      // predicted with factors from other runs
};

struct Refinement {
    topologies::ClusterSpec cluster;  // refined with all fitted runs
    std::vector<TimingFactor> factors;
    std::vector<RefinedRun> runs;  // in the given order
};

/// Factors are fitted to computations, each predicted as the sum of its operators, and to communications for which the
/// cluster has timings; instructions that overlap others are ignored. Timings of observed operators and collectives are
/// multiplied by their factors; observed operators without timings get some. For cross-validation the runs are split
/// into two halves (alternately), and each half is predicted with the factors of the other. Throws InputError naming
/// the run if a record lacks spans, and if fewer than two runs can be fitted.
[[nodiscard]] Refinement refine(const topologies::ClusterSpec& cluster, const std::vector<MeasuredRun>& runs);

}  // namespace orrery::sim
