// The simulator: a discrete-event interpreter of a Program.
//
// Each rank issues its instructions in list order. A stream is a FIFO in issue order: an instruction starts when it is
// at the head of its stream, the host has issued it, and its dependencies have completed. The host spends
// device.launch_us (times the implementation's factor) on each instruction that it launches. It runs ahead of the
// device, but not of its own instructions: those of the host stream and, on a CPU, computation and copies. One of the
// host's own instructions starts when the host has issued everything before it in the list and its dependencies have
// completed; everything after it is issued only when it has completed. Communication is a rendezvous: an operation
// starts when all members have arrived and ends for all of them at the same time, and a communicator runs one operation
// at a time. Running work draws on shared resources (symmetry.h), which are divided max-min fairly (sim/sharing).
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "sim/cost/cost_model.h"
#include "sim/engine/communication_cost.h"
#include "sim/engine/symmetry.h"
#include "sim/program/durations.h"
#include "sim/program/program.h"
#include "sim/program/run_record.h"
#include "sim/program/sensitivity.h"
#include "topologies/cluster.h"

namespace orrery::sim {

/// One of several jobs on a cluster.
struct Job {
    const program::Program* program = nullptr;
    const CostModel* cost = nullptr;
    std::vector<std::int64_t> devices;  // used by this job alone, see place_ranks()
};

/// How long everything that a job does takes at full speed, in picoseconds, and what it draws on meanwhile.
struct WorkTimes {
    struct Operation {
        std::int64_t duration_ps = 0;
        std::int64_t held_units = 0;  // of a device's compute units
        PerResourceKind<std::int64_t> units{};
    };
    std::vector<std::int64_t> instructions_ps;
    std::vector<Operation> operations;        // communication
    std::int64_t launch_ps = 0, pass_ps = 0;  // host time of a launch, and of a pass over a block
    [[nodiscard]] bool has_shape_of(const WorkTimes& other) const {
        return instructions_ps.size() == other.instructions_ps.size() && operations.size() == other.operations.size();
    }
};
[[nodiscard]] WorkTimes work_times(const program::Program& program, const topologies::Cluster& cluster,
                                   const CostModel& cost, const CommunicationCost& communication);

/// What an input changes. Two effects have no derivative: on the share of its device that computation takes, which is
/// rounded to a few steps, and on the load of links of the fabric.
struct InputChange {
    WorkTimes less, more;  // with a smaller and a larger value of the input; both have the shape of the job's own
    double log_ratio = 0;  // ln(larger value / smaller value)
};

struct SimulateOptions {
    bool full = false;  // simulate every rank, not one of each kind; the result is the same
    int steps = 3;      // >= 1, back to back; a job that runs alone has the last one's duration as its step time
    bool record_spans = false;  // record every instruction of the last step
    /// Receives the derivatives of the step time of a job that runs alone; null: none are computed.
    program::Sensitivity* sensitivity = nullptr;
    /// With `changes`: receives for each d(step time) / d ln(input), in seconds; no value where it has grown without
    /// bounds (Tangents). Not together with `sensitivity`.
    std::span<const InputChange> changes;
    std::vector<std::optional<double>>* change_derivatives = nullptr;
    /// Receives the time of the first step of a job that runs alone, which finds all ranks idle; null: nothing.
    double* first_step_s = nullptr;
};

/// The record of the last step. Times count from the moment when the first of its instructions was ready. There is one
/// RankRecord for each kind of rank, that of its lowest rank. If the Program deadlocks, throws BugError naming rank,
/// action and instruction of the stuck streams.
[[nodiscard]] program::RunRecord simulate(const program::Program& program, const topologies::Cluster& cluster,
                                          const CostModel& cost, const CommunicationCost& communication,
                                          const SimulateOptions& options = {});

/// A state of the cluster, which lasts until the next one begins.
struct ClusterState {
    Picoseconds from;  // 0 for the first state
    const topologies::Cluster* cluster = nullptr;
    const CommunicationCost* communication = nullptr;
};

/// Simulates jobs that begin together and share the cores of nodes, NICs, and links that they may oversubscribe
/// (fabric_use.h). Each job runs at least options.steps steps, and continues until all jobs have done so. A record has
/// the time of every step but the first, and the details of step options.steps; the record of a job that runs alone on
/// an unchanging cluster has the time of that step only.
///
/// There is at least one state, and states are in order of time. They describe the same cluster and differ only in its
/// links. When a state begins, the rest of each running operation takes the routes and the time of the new state.
/// Throws InputError if a state without a route between members of a group begins before all jobs have finished.
[[nodiscard]] std::vector<program::RunRecord> simulate_together(std::span<const Job> jobs,
                                                                std::span<const ClusterState> states,
                                                                const SimulateOptions& options = {});

/// Simulates one job with given durations instead of costs. Every rank is simulated, since each has its own durations.
/// No resource is shared, since the durations already include contention. Host times are those of the plan. Throws
/// BugError if the Program deadlocks.
[[nodiscard]] program::RunRecord replay(const program::Program& program, const program::Durations& durations,
                                        const SimulateOptions& options = {});

}  // namespace orrery::sim
