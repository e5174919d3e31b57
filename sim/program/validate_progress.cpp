// Rule "progress": a dry run without a clock, with one rank per class. An instruction completes as soon as it is at the
// head of its stream, its events have happened and, for communication, all its partners have reached it too
// (rendezvous). A completion never blocks another one, so the order in which instructions are tried does not matter:
// either all finish or the Program deadlocks.
//
// One rank may stand for its class. The ranks of a class execute the same actions, and each of them is paired or
// grouped with the same number of ranks of another class. So if all ranks of each class are equally far, they still are
// after the next completion, even if the pairs of the classes form a ring.
//
// On GPUs the executor's communicators share buffers (exec/cuda/communicators.h), so that NCCL may run the collectives
// of a rank one after the other, in issue order. A second dry run lets them complete in this order only. Transfers, and
// the collectives of a vocabulary over the stages, have buffers of their own.
#include "sim/program/device_memory.h"
#include "sim/program/validate_rules.h"

namespace orrery::program::rules {
namespace {

constexpr std::int32_t kSteps = 2;  // the second step may begin before the first one has ended

class DryRun {
  public:
    /// `shares_buffers`: whether NCCL's communicators do.
    DryRun(const Program& program, const Traces& traces, bool shares_buffers)
        : program_(program),
          traces_(traces),
          shares_buffers_(shares_buffers),
          completed_(traces.size()),
          partners_(traces.size()),
          turns_(traces.size()) {
        for (const ClassIndex c : traces.indices()) find_partners(c);
        if (!shares_buffers) return;
        for (const ClassIndex c : traces.indices()) find_turns(c);
    }

    void run() {
        for (bool moved = true; moved;) {
            moved = false;
            for (const ClassIndex c : traces_.indices()) {
                while (sweep(c)) moved = true;
            }
        }
        report_stuck();
    }

  private:
    /// The next instruction of the stream; null after the last step.
    [[nodiscard]] const Call* head(ClassIndex c, Stream stream) const {
        const std::int32_t count = traces_[c].count_on(stream), completed = completed_[c][stream];
        if (completed >= kSteps * count) return nullptr;
        return &call_of(traces_[c], traces_[c].calls_on[stream][static_cast<std::size_t>(completed % count)]);
    }

    /// The first event of the call, the head of its stream, that has not happened; null if all have.
    [[nodiscard]] const Event* missing(ClassIndex c, const Call& call) const {
        const Trace& trace = traces_[c];
        const std::int32_t step = completed_[c][call.stream] / trace.count_on(call.stream);
        for (const Event& event : events_of(trace, call)) {
            const std::int32_t earlier_steps = step - event.steps_back;
            if (earlier_steps < 0) continue;
            const std::int32_t needed = earlier_steps * trace.count_on(event.stream) + event.count;
            if (completed_[c][event.stream] < needed) return &event;
        }
        return nullptr;
    }
    /// The head of the stream if all its events have happened and it need not wait for its turn, otherwise null.
    [[nodiscard]] const Call* ready_head(ClassIndex c, Stream stream) const {
        const Call* call = head(c, stream);
        return call == nullptr || missing(c, *call) != nullptr || awaits_turn(c, *call) ? nullptr : call;
    }

    /// Finds the collectives that share buffers.
    void find_turns(ClassIndex c) {
        const std::int64_t rank = representative(program_, c);
        const std::vector<std::int64_t> stages = program_.group_of(GroupAxis::pipeline, rank);
        const bool stages_have_own = stages_have_own_buffers(program_.plan->parallelism);
        PerAxis<bool> shares{};
        for (const GroupAxis axis : kAxes) {
            if (is_pair(axis)) continue;
            const std::vector<std::int64_t> group = program_.group_of(axis, rank);
            // Axes with the same members share a communicator.
            shares[axis] = group.size() > 1 && !(stages_have_own && group == stages);
        }
        Turns& turns = turns_[c];
        for (const Call& call : traces_[c].calls) {
            const Instruction& one = instruction_of(program_, call);
            const bool in_turn = one.is_communication && shares[one.communication.axis];
            turns.is_in_turn.push_back(in_turn);
            if (in_turn) turns.calls.push_back(&call);
        }
    }
    [[nodiscard]] bool is_in_turn(ClassIndex c, const Call& call) const {
        return shares_buffers_ && turns_[c].is_in_turn[static_cast<std::size_t>(&call - traces_[c].calls.data())];
    }
    [[nodiscard]] bool awaits_turn(ClassIndex c, const Call& call) const {
        return is_in_turn(c, call) && turns_[c].calls[turns_[c].completed % turns_[c].calls.size()] != &call;
    }

    void complete(ClassIndex c, Stream stream) {
        if (is_in_turn(c, *head(c, stream))) ++turns_[c].completed;
        ++completed_[c][stream];
    }

    void find_partners(ClassIndex c) {
        for (const GroupAxis axis : kAxes) {
            if (is_pair(axis)) continue;
            for (const ClassIndex other : classes_of_group(program_, axis, c)) {
                if (other != c) partners_[c].by_axis[axis].push_back(other);
            }
        }
        const std::int64_t rank = representative(program_, c);
        for (const Stream stream : kStreams) {
            if (traces_[c].count_on(stream) == 0) continue;
            partners_[c].streams.push_back(stream);
            if (!is_pipeline(stream)) continue;
            partners_[c].by_stream[stream] = {program_.class_of(program_.peer_of(stream, rank))};
        }
    }

    /// Completes what can complete on the class's streams; whether anything has.
    bool sweep(ClassIndex c) {
        bool moved = false;
        for (const Stream s : partners_[c].streams) {
            while (advance(c, s)) moved = true;
        }
        return moved;
    }

    /// Completes the next instruction of the stream if it can, for all classes that take part in it.
    bool advance(ClassIndex c, Stream stream) {
        const Call* call = ready_head(c, stream);
        if (call == nullptr) return false;
        if (!is_local(stream)) {
            // Partners of the same class are always at the same instruction. By the rule "collective order", every
            // class issues the collectives of a communicator in the same order.
            const GroupAxis axis = instruction_of(program_, *call).communication.axis;
            const bool paired = is_pipeline(stream);
            const Stream theirs = paired ? opposite(stream) : stream;
            const auto& others = paired ? partners_[c].by_stream[stream] : partners_[c].by_axis[axis];
            for (const ClassIndex other : others) {
                const Call* reached = ready_head(other, theirs);
                if (reached == nullptr || instruction_of(program_, *reached).communication.axis != axis) return false;
            }
            for (const ClassIndex other : others) complete(other, theirs);
        }
        complete(c, stream);
        return true;
    }

    void report_stuck() const {
        std::string stuck;
        Site first;
        for (const ClassIndex c : traces_.indices()) {
            for (const Stream s : kStreams) {
                const Call* call = head(c, s);
                if (call == nullptr) continue;
                const Site site = site_of(traces_[c], *call);
                if (first.rank_class < 0) first = site;
                const Event* event = missing(c, *call);
                stuck += text("\n  {} waits for {}", describe(program_, site),
                              event != nullptr ? text("instruction {} of the stream {}", event->count, event->stream)
                              : awaits_turn(c, *call) ? "an earlier collective, whose NCCL buffers it shares"
                                                      : "its partner");
            }
        }
        if (stuck.empty()) return;
        fail(program_, "progress", first, "the dry run deadlocks; these instructions are stuck:{}", stuck);
    }

    const Program& program_;
    const Traces& traces_;
    const bool shares_buffers_;
    IndexedVector<ClassIndex, PerStream<std::int32_t>> completed_;
    struct Partners {
        std::vector<Stream> streams;  // that the class uses
        // The other classes that take part in a communication.
        PerStream<std::vector<ClassIndex>> by_stream;
        PerAxis<std::vector<ClassIndex>> by_axis;
    };
    IndexedVector<ClassIndex, Partners> partners_;
    /// Of the class's collectives that share buffers.
    struct Turns {
        std::vector<bool> is_in_turn;  // by call
        std::vector<const Call*> calls;
        std::size_t completed = 0;  // in all steps
    };
    IndexedVector<ClassIndex, Turns> turns_;
};

}  // namespace

void check_progress(const Program& program, const Traces& traces) {
    DryRun(program, traces, false).run();
    const bool on_gpus = program.plan->implementation.executable && !program.plan->cluster.device.host_runs_compute;
    if (on_gpus) DryRun(program, traces, true).run();
}

}  // namespace orrery::program::rules
