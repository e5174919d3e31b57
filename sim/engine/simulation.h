// The event loop over a compiled Program and a quotient of its job.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "sim/engine/compiled_program.h"
#include "sim/engine/event_queue.h"
#include "sim/engine/max_min.h"
#include "sim/engine/symmetry.h"
#include "sim/program/run_record.h"

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
    [[nodiscard]] const std::array<program::StreamTime, kStreams>& stream_times(std::size_t rank) const {
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
        std::int64_t step = 0;
        std::int64_t needed_count = 0;  // for_counter
        std::int64_t ready_ps = 0;
        std::int64_t begin_ps = 0;
        std::int64_t compute_busy_at_ready = 0;
        std::int32_t stream_call = 0;  // index in the class's stream_calls
        std::int32_t position = 0;     // in the body's list of the stream
        Waiting waiting = Waiting::finished;
    };
    struct RankState {
        const CompiledClass* rank_class = nullptr;
        std::array<std::int64_t, kCounters> done{};
        std::array<std::uint8_t, kCounters> waiters{};  // per counter: bit s set when stream s waits for it
        std::array<StreamState, kStreams> streams;
        std::array<std::uint8_t, kSeatCount> stream_at_seat{};  // while at the rendezvous
        std::int64_t last_compute_end = 0;
        std::int64_t compute_busy = 0;    // of completed instructions
        std::int64_t compute_since = -1;  // begin of the running one; -1: idle
        std::array<program::StreamTime, kStreams> times{};
        std::vector<program::Span> spans;
    };
    /// What one member of a group's operation draws on.
    struct MemberDraw {
        Quotient::Attachment attachment;
        std::size_t kind = 0;  // ResourceKind: index in OperationLoad::units
    };
    struct GroupState {
        std::int32_t first_draw = 0;  // draws_[first, first + count)
        std::int32_t draw_count = 0;
        std::int32_t arrived = 0;
        std::int32_t operation = -1;  // of this rendezvous
        bool running = false;
    };
    /// Running work: a rank's compute instruction (index = rank) or a group's operation (index = ranks + group).
    struct Activity {
        Wide left = 0;  // ps at full speed, times kFullRate
        std::int64_t since_ps = 0;
        std::int64_t rate = kFullRate;
    };

    [[nodiscard]] std::int32_t stream_slot(std::int32_t rank, std::size_t stream) const;
    void set_head(RankState& rank, std::size_t stream);
    void advance(RankState& rank, std::size_t stream);
    void consider(std::int32_t rank, std::size_t stream);
    [[nodiscard]] bool waits_for_counter(RankState& rank, std::size_t stream);
    [[nodiscard]] std::int64_t issue_time(const RankState& rank, const StreamState& head) const;
    void start_compute(std::int32_t rank);
    void arrive(std::int32_t rank, std::size_t stream);
    void complete(std::int32_t rank, std::size_t stream);
    void account(RankState& rank, std::size_t stream);
    void wake_waiters(std::int32_t rank, std::size_t counter);
    void finish_activity(std::int32_t activity);

    // Resources.
    void list_draws();
    void start_activity(std::int32_t activity, std::int64_t duration_ps);
    void change_loads(std::int32_t activity, std::int64_t sign);
    void change_load(const Quotient::Attachment& attachment, std::int64_t units);
    template <typename Visit>
    void for_each_demand(std::int32_t activity, Visit&& visit) const;
    [[nodiscard]] bool is_running(std::int32_t activity) const;
    void settle();
    void set_rate(std::int32_t activity, std::int64_t rate);

    void check_finished() const;

    const SimulationInput& input_;
    const CompiledProgram& compiled_;
    const Quotient& quotient_;
    std::int32_t rank_count_;
    std::int64_t now_ = 0;
    EventQueue queue_;  // slots: activities, then streams waiting for their host
    std::vector<RankState> ranks_;
    std::vector<GroupState> groups_;
    std::vector<MemberDraw> draws_;
    std::vector<Activity> activities_;
    std::vector<std::int64_t> resource_loads_;  // units demanded at full speed
    std::vector<std::int32_t> dirty_;           // resources that are or were over-subscribed and changed
    std::vector<std::uint8_t> is_dirty_;
    std::vector<std::int32_t> resource_index_;  // in the problem that settle() is putting together; -1: not in it
    std::vector<std::int32_t> activity_index_;
    std::vector<std::int64_t> step_ends_;
    std::int64_t last_step_begin_ = -1;
};

}  // namespace orrery::sim
