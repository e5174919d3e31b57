// Private to the planner: when the passes of a pipeline end, if nothing but their inputs, their rank and, optionally,
// the communication beside them delays them.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "sim/program/schedule.h"

namespace orrery::sim {

/// Factor of a lower bound that is a sum of durations: allows for rounding of the sum, and of the simulator's
/// instructions to a picosecond.
inline constexpr double kRounding = 1 - 1e-6;

/// In pipelines with more passes the walk takes too long for a bound; the ramp and the slowest rank are tight enough.
inline constexpr std::int64_t kMostWalkedPasses = 1 << 17;

/// The passes of each rank in the order in which it runs them.
struct PassOrders {
    std::vector<std::vector<program::ComputeTask>> tasks;  // by rank
    /// By rank and task: whether it begins only when what the task before it sends has arrived. Empty: none does.
    std::vector<std::vector<bool>> awaits_send;
};
/// `fuses`: whether a send and the next receive are one call (program::fuses_transfers). Not for schedules that depend
/// on durations, nor for a vocabulary that is sharded over the stages.
[[nodiscard]] PassOrders pass_orders(const program::ScheduleShape& shape, bool fuses);

/// What a rank communicates beside its passes. A slowdown is the duration of computation beside the communication over
/// that without it, at least 1.
struct RankTraffic {
    /// Of one chunk. Durations are those of an idle network.
    struct OfChunk {
        double reduction_s = 0, reduction_nic_s = 0;      // of its gradients, within a set of shards
        double replication_s = 0, replication_nic_s = 0;  // among the sets, at the end of the step
        double gather_s = 0, gather_nic_s = 0;            // of its parameters, before a pass
        double regather_s = 0;                            // of its updated parameters, under the next step's forwards
        double regather_lead_s = 0;                       // of these, before its first forward begins
        double staging_s = 0;                             // casts of its gradients before their reduction
        double before_gradients_s = 0;                    // of a backward pass, at most: before its first gradients
        bool has_experts = false;
        double units = 1;   // that are gathered one after the other
        double pieces = 1;  // in which its gradients are reduced one after the other, at most
        /// Of a chunk that is one unit: which of the two places for unstaged gradients it takes; -1: not known.
        int gradient_place = 0;
    };
    std::vector<OfChunk> chunks;
    bool reduces_each = false;      // after every backward pass; otherwise after the last one of the chunk
    bool reduces_at_end = false;    // after the last one of the rank
    bool stages_gradients = false;  // casts them into a buffer at the end of a pass, from which they are reduced
    bool gathers_forward = false;   // zero3
    bool gathers_backward = false;
    double reduction_slowdown = 1, gather_slowdown = 1, regather_slowdown = 1;
    double previous_slowdown = 1, next_slowdown = 1;  // beside transfers from or to the previous and the next stage
    double update_s = 0;
    double regather_nic_s = 0;  // of all chunks
};

/// What copies of offloaded activations add to the passes of a chunk. A forward ends its copies before the next pass
/// begins. A backward begins its copies after the pass before it and its copies. Communication that delays a pass also
/// hides its waits for copies.
struct ChunkCopies {
    double forward_waits_s = 0, backward_waits_s = 0;  // parts of the passes in which they wait for copies
    double after_s = 0;                                // copies that remain after a forward
    double before_s = 0;                               // by how much a backward is longer whose copies begin with it
    double uncopied_s = 0;  // what a backward computes before it needs copies, beyond the first of them
    bool offloads = false;
};

struct PassCosts {
    /// Of one chunk of a rank: seconds by ComputeTask::Kind.
    using OfChunk = std::array<double, 4>;
    std::vector<std::vector<std::size_t>> stages;  // by rank: the virtual stage of each of its chunks
    std::vector<std::vector<OfChunk>> seconds;     // by rank and chunk
    /// By rank and chunk: of the first forward of the step; empty: as of all others.
    std::vector<std::vector<double>> first_forward_s;
    /// By sending rank: to that of the next stage (forward) and of the one before (backward).
    std::vector<double> forward_transfer_s, backward_transfer_s;
    /// If passes overlap: what a pass takes in a block with another.
    struct InBlock {
        double computation_s = 0, tokens_s = 0;
        double alone_s = 0;  // and also outside of blocks
    };
    /// By rank and chunk, forward and backward. Empty: no pass overlaps.
    std::vector<std::vector<std::array<InBlock, 2>>> in_blocks;
    std::vector<std::vector<ChunkCopies>> copies;  // by rank and chunk; empty: none
    bool copies_after_input = false;               // copies of a backward begin when its input has been received
    double transfer_nic_s = 0;                     // part of a transfer in which the NIC is busy
    std::vector<RankTraffic> traffic;              // by rank; empty: passes run undisturbed
    /// By rank, with traffic: when the step before ended there, after which it gathers updated parameters. Empty: all
    /// begin at 0 with their parameters.
    std::vector<double> begin_s;
    bool regathers_after_input = false;  // gathers of a chunk's parameters begin when it has received its first input
};
struct PassEnds {
    double last_start_s = 0, end_s = 0;  // of a rank's last pass
    double step_end_s = 0;               // of its update, after the reductions; equals end_s without traffic
};
/// Walks the graph of passes: each rank runs in its own order, each pass after the pass of the stage that feeds it. By
/// rank. With traffic, a rank's reductions and gathers queue on its NIC, slow down the passes that they run beside, and
/// share the NIC with the transfers. Throws BugError for orders that deadlock.
[[nodiscard]] std::vector<PassEnds> walk_passes(const PassOrders& orders, const PassCosts& costs);

}  // namespace orrery::sim
