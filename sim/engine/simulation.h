// One job in a simulation: the streams of its ranks, over a compiled Program and a quotient of the job. What it runs
// shares resources with other jobs' work, on one clock.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "sim/engine/compiled_program.h"
#include "sim/engine/symmetry.h"
#include "sim/program/durations.h"
#include "sim/program/run_record.h"
#include "sim/sharing/shared_work.h"

namespace orrery::sim {

/// An operation in a group at full speed.
struct OperationLoad {
    std::int64_t duration_ps = 0;
    /// Demand of each member on each of its resources; a sender has no demand on what comes in, a receiver none on what
    /// goes out.
    std::array<std::int64_t, kResourceKinds> units{};
    /// Of each member's compute units, kept from start to end; not in `units`.
    std::int64_t held_compute_units = 0;
    std::optional<FabricRate> links;
    double held_by_rate = 0;      // share of held_compute_units that is program::hidden_key's
    std::int32_t held_cell = -1;  // its cell, as `cell`
    std::int32_t cell = -1;       // of CompiledProgram::cells; -1: no derivatives are asked for
    std::int64_t wait_ps = 0;     // part of the duration: members that come late
    std::int32_t wait_cell = -1;  // its cell, as `cell`
};
/// By state of the cluster, then placement, then operation of the placement's axis.
using OperationLoads = std::vector<std::vector<std::vector<OperationLoad>>>;

/// How many of the jobs that share a cluster have not come to the end of their steps yet.
struct Company {
    std::int64_t unfinished = 0;
};

/// Everything that stays fixed while the simulation runs.
struct SimulationInput {
    const program::Program* program = nullptr;
    CompiledProgram compiled;
    const program::Durations* durations =
        nullptr;  // given: those of every rank, in place of the compiled ones and loads
    Quotient quotient;
    OperationLoads loads;
    HostTimes host;
    /// Of CompiledProgram::cells, as OperationLoad::cell: of HostTimes' members.
    std::array<std::int32_t, 3> host_cells{-1, -1, -1};
    std::int64_t steps = 1;  // the last of these is recorded
    bool record_spans = false;
};

class Simulation {
  public:
    /// Adds the job's work to what runs on the cluster; its resources are there, the quotient's numbers are theirs.
    /// Input, work and company outlive this. A job goes on beyond its steps while others have not finished theirs, so
    /// that none ever runs without the others before all have.
    Simulation(const SimulationInput& input, SharedWork& work, Company& company);
    /// After SharedWork::seal(), with so many slots for each job one behind the other.
    [[nodiscard]] std::int32_t own_slots() const { return rank_count_ * stream_count_; }
    void begin(std::int32_t first_own_slot);
    /// The job's activities, and its own slots.
    [[nodiscard]] bool has_activity(std::int32_t activity) const {
        return activity >= first_activity_ && activity < first_activity_ + activity_count_;
    }
    [[nodiscard]] bool has_own_slot(std::int32_t slot) const {
        return slot >= first_own_slot_ && slot < first_own_slot_ + own_slots();
    }
    /// The event of one of the two has come.
    void finish_activity(std::int32_t activity);
    void wake(std::int32_t own_slot);
    /// The cluster changes to its next state: what is under way goes on as that state has it.
    void enter_next_state();
    /// Throws BugError when something waits though nothing is under way.
    void check_finished() const;

    /// When the last instruction of each step ended, over all ranks; the last of them are those beyond its own.
    [[nodiscard]] const std::vector<std::int64_t>& step_ends() const { return step_ends_; }
    /// By how many picoseconds the last step grows when a cell's work takes twice as long, to first order.
    [[nodiscard]] std::vector<double> step_derivatives() const;
    [[nodiscard]] const program::PerStream<program::StreamTime>& stream_times(std::size_t rank) const {
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
        Tangents::Moment host_end;                      //   where derivatives are carried
        std::int64_t compute_busy = 0;                  // of completed instructions
        std::int64_t compute_since = -1;                // begin of the running one; -1: idle
        program::PerStream<program::StreamTime> times{};
        std::vector<program::Span> spans;
    };
    struct GroupState {
        std::int32_t first_operation = 0;  // in group_draws_, of the first state
        std::int32_t operation_count = 0;
        std::int32_t arrived = 0;
        std::int32_t operation = -1;  // of this rendezvous
        bool running = false;
    };
    struct GroupDraws {
        SharedWork::Draws draws, held;
    };
    [[nodiscard]] std::int32_t own_slot(std::int32_t rank, std::int32_t stream) const {
        return first_own_slot_ + rank * stream_count_ + stream;
    }
    // A rank's local instruction, or a group's operation, behind all of those.
    [[nodiscard]] std::int32_t local_activity(std::int32_t rank, std::int32_t stream) const {
        return first_activity_ + rank * local_streams_ + stream;
    }
    [[nodiscard]] std::int32_t group_activity(std::size_t group) const {
        return first_group_ + static_cast<std::int32_t>(group);
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
    [[nodiscard]] bool end_step(StreamState& head);
    void consider(std::int32_t rank, std::int32_t stream);
    [[nodiscard]] bool waits_for_counter(RankState& rank, std::int32_t stream);
    [[nodiscard]] std::int64_t issue_time(const RankState& rank, const StreamState& head) const;
    [[nodiscard]] bool host_has_passed(const RankState& rank, const StreamState& head) const;
    [[nodiscard]] HostWork issues_of(const RankState& rank, const StreamState& head) const;
    [[nodiscard]] const OperationLoad& load_of(const GroupState& group, std::int32_t placement,
                                               std::size_t state) const {
        return input_.loads[state][static_cast<std::size_t>(placement)][static_cast<std::size_t>(group.operation)];
    }
    [[nodiscard]] const GroupDraws& draws_of(const GroupState& group) const {
        return group_draws_[static_cast<std::size_t>(group.first_operation + group.operation) +
                            state_ * static_cast<std::size_t>(group.operation_count)];
    }
    [[nodiscard]] static std::size_t duration_place(const StreamState& head);
    [[nodiscard]] std::int64_t duration_of(const RankState& rank, const StreamState& head) const;
    [[nodiscard]] std::span<const Tangents::Term> terms_of(const StreamState& head) const;
    void start_local(std::int32_t rank, std::int32_t stream);
    void arrive(std::int32_t rank, std::int32_t stream);
    void hold_while_waiting(const GroupState& rendezvous, std::int32_t placement, std::int32_t rank, std::int64_t sign);
    void complete(std::int32_t rank, std::int32_t stream);
    void account(RankState& rank, std::int32_t stream);
    void wake_waiters(std::int32_t rank, std::int32_t counter);

    // What work draws on.
    void list_draws();
    void list_local_draws();
    void list_device_draws();
    [[nodiscard]] SharedWork::Draws list_group_draws(const Quotient::Group& group, const OperationLoad& load);
    void add_link_draws(const Quotient::Group& group, const FabricRate& rate);
    [[nodiscard]] SharedWork::Draws list_held(const Quotient::Group& group, const OperationLoad& load);
    [[nodiscard]] SharedWork::Draws draws_of_local(std::int32_t rank, std::int32_t stream) const;

    const SimulationInput& input_;
    const CompiledProgram& compiled_;
    const Quotient& quotient_;
    SharedWork& work_;
    Tangents* tangents_;  // null: no derivatives are carried
    const EventQueue& clock_;
    std::int32_t rank_count_, stream_count_, local_streams_;
    std::int32_t activity_count_;
    std::int32_t first_activity_, first_group_;
    std::int32_t first_own_slot_ = 0;  // of streams waiting for their host
    std::vector<RankState> ranks_;
    std::vector<StreamState> streams_;  // by rank, then stream; RankState points into these three
    std::vector<std::int64_t> done_;
    std::vector<std::uint32_t> waiters_;
    std::vector<std::uint8_t> stream_at_seat_;  // by rank, then seat; while at the rendezvous
    std::vector<std::uint8_t> host_own_;        // by stream: whether the host itself runs it
    std::vector<ResourceKind> drawn_kind_;      // by local stream
    std::vector<GroupState> groups_;
    std::vector<SharedWork::Draw> draw_list_;
    std::vector<SharedWork::Draws> local_draws_;   // by rank, then local stream
    std::vector<SharedWork::Draws> device_draws_;  // by rank, then CompiledProgram::device_draws; empty: none
    std::vector<GroupDraws> group_draws_;          // by group, then state, then operation of its axis
    std::size_t state_ = 0;                        // of the cluster
    Company& company_;
    std::int64_t step_limit_;
    std::int64_t streams_unfinished_ = 0;  // that have not come to the end of the job's steps
    std::vector<std::int64_t> step_ends_;
    std::vector<Tangents::Moment> step_end_moments_;
    std::int64_t last_step_begin_ = -1;
};

}  // namespace orrery::sim
