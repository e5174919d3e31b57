// One job in a simulation: the streams of its simulated ranks, which execute a compiled Program. Its work shares
// resources and the clock with that of other jobs.
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

/// An operation of a group at full speed.
struct OperationLoad {
    std::int64_t duration_ps = 0;
    /// Demand of each member on each of its resources, except that a sender has none on incoming resources and a
    /// receiver none on outgoing ones.
    PerResourceKind<std::int64_t> units{};
    /// Units of each member's compute units that are held from start to end; not part of `units`.
    std::int64_t held_compute_units = 0;
    std::optional<FabricRate> links;
    std::int64_t wait_ps = 0;  // part of the duration: the wait for late members (program::wait_s)
    /// What derivatives need; empty: none are computed.
    std::vector<Tangents::Term> terms;  // of the duration
    struct UnitTerm {
        CellIndex cell = -1;
        PerResourceKind<double> units{};  // growth of `units` with the logarithm of the cell
        double held_units = 0;            // that of held_compute_units
    };
    std::vector<UnitTerm> unit_terms;
};
using OperationLoads = IndexedVector<StateIndex, PerOperation<OperationLoad>>;

/// The number of jobs on the cluster that have not finished their steps yet.
struct UnfinishedJobs {
    std::int64_t count = 0;
};

/// Everything that stays fixed while the simulation runs.
struct SimulationInput {
    const program::Program* program = nullptr;
    CompiledProgram compiled;
    /// If not null: the durations of every rank, which replace those of `compiled` and `loads`.
    const program::Durations* durations = nullptr;
    Quotient quotient;
    OperationLoads loads;
    HostTimes host;
    /// The part of the host's time that belongs to a cell.
    struct HostTerm {
        CellIndex cell = -1;
        double launch_ps = 0, pass_ps = 0;  // of each launch and each pass over a block
    };
    std::vector<HostTerm> host_terms;  // empty: no derivatives are computed
    std::int64_t steps = 1;            // the last of these is recorded
    bool record_spans = false;
};

class Simulation {
  public:
    /// Adds the job's activities to `work`, which must already have the quotient's resources. The references must
    /// outlive this object. A job that has finished its steps continues until all other jobs have finished theirs, so
    /// that every measured step runs beside the other jobs.
    Simulation(const SimulationInput& input, SharedWork& work, UnfinishedJobs& unfinished_jobs);
    /// The number of queue slots that the job needs in addition to those of its activities.
    [[nodiscard]] std::int32_t own_slots() const { return rank_count_ * stream_count_; }
    /// To be called after SharedWork::seal().
    void begin(std::int32_t first_own_slot);
    /// Whether the slot is that of one of the job's activities, or its own.
    [[nodiscard]] bool has(std::int32_t slot) const {
        return (slot >= first_activity_ && slot < first_activity_ + activity_count_) ||
               (slot >= first_own_slot_ && slot < first_own_slot_ + own_slots());
    }
    /// To be called when the event of the activity or of the job's own slot has been taken from the queue.
    void finish_activity(std::int32_t activity);
    void wake(std::int32_t own_slot);
    /// Changes running operations to the routes and durations of the cluster's next state.
    void enter_next_state();
    /// To be called when the queue is empty. Throws BugError if a stream has not finished: a deadlock.
    void check_finished() const;

    /// The end of the last instruction of each step, over all ranks. May include steps beyond SimulationInput::steps.
    [[nodiscard]] const std::vector<std::int64_t>& step_ends() const { return step_ends_; }
    /// 0 for step -1, before the first.
    [[nodiscard]] std::int64_t step_end(std::int64_t step) const {
        return step < 0 ? 0 : step_ends_[static_cast<std::size_t>(step)];
    }
    /// Growth in ps of step SimulationInput::steps if a cell's work takes twice as long, to first order.
    [[nodiscard]] IndexedVector<CellIndex, double> step_derivatives() const;
    [[nodiscard]] const program::PerStream<program::StreamTime>& stream_times(SimulatedRank rank) const {
        return ranks_[rank].times;
    }
    /// The spans of step SimulationInput::steps, relative to its start.
    [[nodiscard]] std::vector<program::Span> spans(SimulatedRank rank) const;

  private:
    enum class Waiting : std::uint8_t { for_counter, for_host, for_partners, running, finished };

    /// The instruction at the head of a stream.
    struct StreamState {
        const CompiledInstruction* instruction = nullptr;
        const CompiledCall* call = nullptr;
        const CompiledAction* action = nullptr;
        CounterView<const std::int32_t> action_base;  // CompiledClass::action_base of the action
        CounterView<const std::int32_t> call_base;    // CompiledClass::call_base of the call
        std::int64_t step = 0;
        std::int64_t needed_count = 0;  // if it waits for_counter
        std::int64_t ready_ps = 0;
        std::int64_t begin_ps = 0;
        std::int64_t compute_busy_at_ready = 0;
        const program::ActionIndex* actions = nullptr;  // the class's stream_actions
        std::int32_t action_count = 0;
        std::int32_t stream_action = 0;  // index in `actions`
        StreamCallIndex next_call = 0;
        std::int32_t calls_left = 0;  // of the action on the stream, without the current one
        std::int32_t left = 0;        // instructions of the call on the stream, including the current one
        bool starts_call = false, starts_action = false;
        Waiting waiting = Waiting::finished;
    };
    struct RankState {
        const CompiledClass* rank_class = nullptr;
        const std::int64_t* given_durations = nullptr;  // in issue order; null: none are given
        double slow_down = 1;                           // of its computation (Quotient::slow_down)
        CounterView<StreamState> streams;
        CounterView<std::int64_t> done;
        CounterView<std::uint32_t> waiters;  // bit s is set if stream s waits for the counter
        std::int64_t host_done = 0;          // completed instructions of the host's own
        std::int64_t host_end_ps = 0;        // end of the last of these
        Tangents::Moment host_end;           // tangent of that end, if derivatives are computed
        std::int64_t compute_busy = 0;       // ps, completed instructions of the compute stream
        program::PerStream<program::StreamTime> times{};
        std::vector<program::Span> spans;
    };
    using GroupDrawsIndex = Index<struct GroupDrawsTag>;
    struct GroupState {
        GroupDrawsIndex first_draws = 0;  // of its first operation in the first state
        std::int32_t operation_count = 0;
        std::int32_t arrived = 0;
        OperationIndex operation = -1;  // of the current rendezvous
        bool running = false;
    };
    struct GroupDraws {
        SharedWork::Draws draws, held;
        std::vector<SharedWork::Move> moves;
    };
    [[nodiscard]] std::int32_t own_slot(SimulatedRank rank, CounterIndex stream) const {
        return first_own_slot_ + rank.value() * stream_count_ + stream.value();
    }
    // The activities: local instructions by rank and local stream, then operations by group.
    [[nodiscard]] std::int32_t local_activity(SimulatedRank rank, CounterIndex stream) const {
        return first_activity_ + rank.value() * local_streams_ + stream.value();
    }
    [[nodiscard]] std::int32_t group_activity(SimulatedGroup group) const { return first_group_ + group.value(); }
    [[nodiscard]] StreamState& head_of(const Quotient::RankOfGroup& member) {
        return ranks_[member.rank].streams[stream_at_[member.rank][member.endpoint]];
    }
    [[nodiscard]] static program::ActionIndex action_of(const RankState& rank, const StreamState& head) {
        return program::ActionIndex::of(head.action - rank.rank_class->actions.data());
    }
    /// How long the rank's compute stream has been busy so far.
    [[nodiscard]] std::int64_t compute_busy(const RankState& rank) const {
        const StreamState& head = rank.streams[kComputeCounter];
        return rank.compute_busy + (head.waiting == Waiting::running ? clock_.now() - head.begin_ps : 0);
    }
    void enter_action(RankState& rank, CounterIndex stream);
    void enter_call(RankState& rank, CounterIndex stream);
    void advance(RankState& rank, CounterIndex stream);
    [[nodiscard]] bool end_step(StreamState& head);
    void consider(SimulatedRank rank, CounterIndex stream);
    [[nodiscard]] bool waits_for_counter(RankState& rank, CounterIndex stream);
    [[nodiscard]] std::int64_t issue_time(const RankState& rank, const StreamState& head) const;
    [[nodiscard]] HostWork issues_of(const RankState& rank, const StreamState& head) const;
    [[nodiscard]] const OperationLoad& load_of(const GroupState& group, PlacementIndex placement,
                                               StateIndex state) const {
        return input_.loads[state][placement][group.operation];
    }
    [[nodiscard]] const GroupDraws& draws_of(const GroupState& group) const {
        return group_draws_[group.first_draws + group.operation.value() + state_.value() * group.operation_count];
    }
    [[nodiscard]] static DurationPlace duration_place(const StreamState& head);
    [[nodiscard]] std::int64_t duration_of(const RankState& rank, CounterIndex stream) const;
    /// The terms of that duration.
    [[nodiscard]] std::span<const Tangents::Term> terms_of(const RankState& rank, CounterIndex stream);
    [[nodiscard]] static double slow_down_of(const RankState& rank, CounterIndex stream) {
        return stream == kComputeCounter ? rank.slow_down : 1;
    }
    void start_local(SimulatedRank rank, CounterIndex stream);
    void arrive(SimulatedRank rank, CounterIndex stream);
    void hold_while_waiting(const GroupState& rendezvous, PlacementIndex placement, SimulatedRank rank,
                            std::int64_t sign);
    void complete(SimulatedRank rank, CounterIndex stream);
    void account(RankState& rank, CounterIndex stream);
    void wake_waiters(SimulatedRank rank, CounterIndex counter);

    // Lists of draws on resources (sharing.cpp).
    void list_draws();
    void list_local_draws();
    void list_device_draws();
    [[nodiscard]] SharedWork::Draws list_group_draws(const Quotient::Group& group, const OperationLoad& load);
    void add_link_draws(const Quotient::Group& group, const FabricRate& rate);
    [[nodiscard]] std::vector<SharedWork::Move> moves_of(const Quotient::Group& group, const OperationLoad& load) const;
    [[nodiscard]] SharedWork::Draws list_held(const Quotient::Group& group, const OperationLoad& load);
    [[nodiscard]] SharedWork::Draws draws_of_local(SimulatedRank rank, CounterIndex stream) const;

    const SimulationInput& input_;
    const CompiledProgram& compiled_;
    const Quotient& quotient_;
    SharedWork& work_;
    Tangents* tangents_;                 // null: no derivatives are computed
    std::vector<Tangents::Term> terms_;  // scratch
    const EventQueue& clock_;
    std::int32_t rank_count_, stream_count_, local_streams_;
    std::int32_t activity_count_;
    std::int32_t first_activity_, first_group_;
    std::int32_t first_own_slot_ = 0;  // one slot for each stream, used when it waits for its host
    IndexedVector<SimulatedRank, RankState> ranks_;
    // RankState points into these three.
    std::vector<StreamState> streams_;                                   // by rank, then stream
    std::vector<std::int64_t> done_;                                     // by rank, then counter
    std::vector<std::uint32_t> waiters_;                                 // by rank, then counter
    IndexedVector<SimulatedRank, PerEndpoint<CounterIndex>> stream_at_;  // stream of the operation at the endpoint
    PerCounter<std::uint8_t> host_own_;    // by stream: whether its instructions are the host's own
    PerCounter<ResourceKind> drawn_kind_;  // by local stream
    IndexedVector<SimulatedGroup, GroupState> groups_;
    std::vector<SharedWork::Draw> draw_list_;
    std::vector<SharedWork::Draws> local_draws_;   // by rank, then local stream
    std::vector<SharedWork::Draws> device_draws_;  // by rank, then DeviceDrawIndex; empty: devices are not shared
    IndexedVector<GroupDrawsIndex, GroupDraws> group_draws_;  // by group, then state, then operation of its axis
    StateIndex state_ = 0;
    UnfinishedJobs& unfinished_jobs_;
    std::int64_t step_limit_;
    std::int64_t streams_unfinished_ = 0;  // streams that have not finished the job's steps
    std::vector<std::int64_t> step_ends_;
    std::vector<Tangents::Moment> step_end_moments_;
    std::int64_t last_step_begin_ = -1;
};

}  // namespace orrery::sim
