// The simulator: a discrete-event interpreter of a Program.
//
// Each rank issues its instructions in list order. A stream is a FIFO in issue order; an instruction starts when it is
// at its stream's head, the host has issued it, and what it waits for has completed. The host spends device.launch_us
// (times the implementation's factor) on each instruction that it launches. It runs ahead of the device, but not of its
// own instructions: those of the host stream and, on a CPU, what is computed and copied. Such a one begins when the
// host has issued everything before it in the list and what it waits for has completed; whatever stands behind it is
// issued only after it. Communication is a rendezvous: it begins when all members are there and ends for all of them
// together, one operation at a time on a communicator. What runs draws on shared resources, divided max-min fairly by
// symmetry.h's loads and sim/sharing's levels.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "sim/cost/cost_model.h"
#include "sim/engine/communication_cost.h"
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
    std::vector<std::int64_t> devices;  // that it has to itself, see place_ranks()
};

struct SimulateOptions {
    bool full = false;          // simulate every rank, not one of each kind; the result is the same
    int steps = 3;              // run back to back, >= 1; the last period is the step time of a job that runs alone
    bool record_spans = false;  // keep every instruction of the last step
    /// Where to put the derivatives of the step's time, of a job that runs alone; null: they are not asked for.
    program::Sensitivity* sensitivity = nullptr;
};

/// The record of the last step: times from the first moment that one of its instructions was ready. RankRecords are one
/// for each kind of rank, by their lowest rank. Throws BugError naming rank, action and instruction of each stuck
/// stream when the Program cannot finish.
[[nodiscard]] program::RunRecord simulate(const program::Program& program, const topologies::Cluster& cluster,
                                          const CostModel& cost, const CommunicationCost& communication,
                                          const SimulateOptions& options = {});

/// The cluster from some time on.
struct ClusterState {
    Picoseconds from;  // of the first: 0
    const topologies::Cluster* cluster = nullptr;
    const CommunicationCost* communication = nullptr;
};

/// Jobs that begin together and share what links they meet on: ports, NICs, and links of the fabric that they could
/// over-subscribe (fabric_use.h). Each runs at least so many steps, and on until all have. A record has every step's
/// time but the first's, and the details of step number `steps`. The states, of which there is at least one, ascend;
/// all are of one cluster and differ in its links. What is under way when one begins goes on from there as the new
/// state has it, on the routes that are left. Throws InputError when one begins, with jobs under way, that leaves
/// members of a group no way to each other.
[[nodiscard]] std::vector<program::RunRecord> simulate_together(std::span<const Job> jobs,
                                                                std::span<const ClusterState> states,
                                                                const SimulateOptions& options = {});
/// On a cluster that stays as it is.
[[nodiscard]] std::vector<program::RunRecord> simulate_together(std::span<const Job> jobs,
                                                                const topologies::Cluster& cluster,
                                                                const CommunicationCost& communication,
                                                                const SimulateOptions& options = {});

/// One job with given durations in place of costs. Every rank is simulated, since each has durations of its own, and
/// nothing is shared: what ranks took from each other is in the durations. Launches cost the host what they cost by the
/// plan. Throws BugError as simulate() does.
[[nodiscard]] program::RunRecord replay(const program::Program& program, const program::Durations& durations,
                                        const SimulateOptions& options = {});

}  // namespace orrery::sim
