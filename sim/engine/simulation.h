// The event loop over a compiled Program and a quotient of its job.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "sim/engine/compiled_program.h"
#include "sim/engine/event_queue.h"
#include "sim/engine/symmetry.h"
#include "sim/program/durations.h"
#include "sim/program/run_record.h"
#include "sim/sharing/max_min.h"

namespace orrery::sim {

/// An operation in a group at full speed.
struct OperationLoad {
    std::int64_t duration_ps = 0;
    /// Demand of each member on each of its resources; a sender has no demand on what comes in, a receiver none on what
    /// goes out.
    std::array<std::int64_t, kResourceKinds> units{};
};

/// Everything that stays fixed while the simulation runs.
struct SimulationInput {
    const program::Program* program = nullptr;
    CompiledProgram compiled;
    const program::Durations* durations =
        nullptr;  // given: those of every rank, in place of the compiled ones and loads
    Quotient quotient;
    std::vector<std::vector<OperationLoad>> loads;  // by placement, then operation of the placement's axis
    std::int64_t launch_ps = 0;
    std::int64_t steps = 1;
    bool record_spans = false;
};

class Simulation {
  public:
    explicit Simulation(const SimulationInput& input);
    void run();

    /// When the last instruction of each step ended, over all ranks.
    [[nodiscard]] const std::vector<std::int64_t>& step_ends() const { return step_ends_; }
    [[nodiscard]] const std::array<program::StreamTime, program::kStreamCount>& stream_times(std::size_t rank) const {
        return ranks_[rank].times;
    }
    /// Of the last step, from its start.
    [[nodiscard]] std::vector<program::Span> spans(std::size_t rank) const;

  private:
    enum class Waiting : std::uint8_t { for_counter, for_host, for_partners, running, finished };

    /// A stream's head.
    struct StreamState {
        const CompiledInstruction* instruction = nullptr;
        const CompiledCall* call = nullptr;
        const CompiledAction* action = nullptr;
        const std::int32_t* action_base = nullptr;  // by counter: of the step before the action
        const std::int32_t* call_base = nullptr;    //   and of the action before the call
        std::int64_t step = 0;
        std::int64_t needed_count = 0;  // for_counter
        std::int64_t ready_ps = 0;
        std::int64_t begin_ps = 0;
        std::int64_t compute_busy_at_ready = 0;
        const std::int32_t* actions = nullptr;  // the class's stream_actions
        std::int32_t action_count = 0;
        std::int32_t stream_action = 0;  // index in them
        std::int32_t next_call = 0;      // index in the class's call_order
        std::int32_t calls_left = 0;     // of the action on the stream, this one excluded
        std::int32_t left = 0;           // instructions of the call on the stream, this one included
        bool starts_call = false, starts_action = false;
        Waiting waiting = Waiting::finished;
    };
    struct RankState {
        const CompiledClass* rank_class = nullptr;
        const std::int64_t* given_durations = nullptr;  // in issue order; null: none are given
        StreamState* streams = nullptr;                 // by stream counter
        std::int64_t* done = nullptr;                   // by counter
        std::uint32_t* waiters = nullptr;               // by counter: bit s set when stream s waits for it
        std::int64_t host_done = 0;                     // of the host's own instructions
        std::int64_t host_end_ps = 0;                   // of the last of them
        std::int64_t compute_busy = 0;                  // of completed instructions
        std::int64_t compute_since = -1;                // begin of the running one; -1: idle
        std::array<program::StreamTime, program::kStreamCount> times{};
        std::vector<program::Span> spans;
    };
    struct GroupState {
        std::int32_t first_operation = 0;  // in group_draws_
        std::int32_t arrived = 0;
        std::int32_t operation = -1;  // of this rendezvous
        bool running = false;
    };
    /// What an activity takes of a resource at full speed, over all real ranks on that one resource.
    struct Draw {
        std::int32_t resource = 0;
        std::int64_t units = 0;
    };
    /// draws_[first, last)
    struct DrawRange {
        std::int32_t first = 0, last = 0;
    };
    struct ResourceState {
        std::int64_t load_units = 0;  // demanded at full speed
        std::int64_t capacity_units = 0;
        std::int32_t index = -1;  // in the problem that settle() is putting together; -1: not in it
        bool is_dirty = false;
    };
    /// Running work: a rank's local instruction (index = rank * local streams + stream) or a group's operation (behind
    /// all of those).
    struct Activity {
        Wide left = 0;  // ps at full speed, times kFullRate
        std::int64_t since_ps = 0;
        std::int64_t rate = kFullRate;
    };

    [[nodiscard]] std::int32_t stream_slot(std::int32_t rank, std::int32_t stream) const {
        return activity_count_ + rank * stream_count_ + stream;
    }
    [[nodiscard]] std::int32_t local_activity(std::int32_t rank, std::int32_t stream) const {
        return rank * local_streams_ + stream;
    }
    [[nodiscard]] std::uint8_t& stream_at_seat(std::int32_t rank, Seat seat) {
        return stream_at_seat_[static_cast<std::size_t>(rank) * kSeatCount + static_cast<std::size_t>(seat)];
    }
    [[nodiscard]] static std::int32_t action_of(const RankState& rank, const StreamState& head) {
        return static_cast<std::int32_t>(head.action - rank.rank_class->actions.data());
    }
    void enter_action(RankState& rank, std::int32_t stream);
    void enter_call(RankState& rank, std::int32_t stream);
    void advance(RankState& rank, std::int32_t stream);
    void consider(std::int32_t rank, std::int32_t stream);
    [[nodiscard]] bool waits_for_counter(RankState& rank, std::int32_t stream);
    [[nodiscard]] std::int64_t issue_time(const RankState& rank, const StreamState& head) const;
    [[nodiscard]] std::int64_t duration_of(const RankState& rank, const StreamState& head) const;
    void start_local(std::int32_t rank, std::int32_t stream);
    void arrive(std::int32_t rank, std::int32_t stream);
    void complete(std::int32_t rank, std::int32_t stream);
    void account(RankState& rank, std::int32_t stream);
    void wake_waiters(std::int32_t rank, std::int32_t counter);
    void finish_activity(std::int32_t activity);

    // Resources.
    void list_draws();
    [[nodiscard]] DrawRange list_group_draws(const Quotient::Group& group, const OperationLoad& load);
    void list_rank_activities();
    void start_activity(std::int32_t activity, std::int64_t duration_ps);
    void change_loads(std::int32_t activity, std::int64_t sign);
    [[nodiscard]] DrawRange draws_of(std::int32_t activity) const;
    [[nodiscard]] bool is_running(std::int32_t activity) const;
    void settle();
    void collect_problem();
    void set_rate(std::int32_t activity, std::int64_t rate);

    void check_finished() const;

    const SimulationInput& input_;
    const CompiledProgram& compiled_;
    const Quotient& quotient_;
    std::int32_t rank_count_, stream_count_, local_streams_;
    std::int32_t activity_count_, first_group_;  // activities; the first of them that is a group's
    std::int64_t now_ = 0;
    EventQueue queue_;  // slots: activities, then streams waiting for their host
    std::vector<RankState> ranks_;
    std::vector<StreamState> streams_;  // by rank, then stream; RankState points into these three
    std::vector<std::int64_t> done_;
    std::vector<std::uint32_t> waiters_;
    std::vector<std::uint8_t> stream_at_seat_;  // by rank, then seat; while at the rendezvous
    std::vector<std::uint8_t> host_own_;        // by stream: whether the host itself runs it
    std::vector<ResourceKind> drawn_kind_;      // by local stream
    std::vector<GroupState> groups_;
    std::vector<Draw> draws_;
    std::vector<DrawRange> local_draws_;  // by local activity
    std::vector<DrawRange> group_draws_;  // by group, then operation of its axis
    std::vector<Activity> activities_;
    std::vector<ResourceState> resources_;
    std::vector<std::int32_t> dirty_;  // resources that are or were over-subscribed and changed
    // What can draw on a rank's resources: rank_activities_[first[rank], first[rank + 1]).
    std::vector<std::int32_t> first_rank_activity_;
    std::vector<std::int32_t> rank_activities_;
    // The problem that settle() is putting together.
    std::vector<std::int32_t> activity_index_;
    std::vector<std::int32_t> problem_resources_;
    std::vector<std::int32_t> problem_activities_;
    std::vector<Wide> problem_capacities_;
    std::vector<std::int64_t> problem_caps_;
    std::vector<Demand> problem_demands_;
    MaxMinSolver solver_;
    std::vector<std::int64_t> step_ends_;
    std::int64_t last_step_begin_ = -1;
};

}  // namespace orrery::sim
