// Rule "progress": a dry run without a clock, with one rank per class. An instruction completes as soon as it is at the
// head of its stream, its events have happened and, for communication, all its partners have reached it too
// (rendezvous). A completion never blocks another one, so the order in which instructions are tried does not matter:
// either all finish or the Program deadlocks.
//
// One rank may stand for its class. The ranks of a class execute the same actions, and each of them is paired or
// grouped with the same number of ranks of another class. So if all ranks of each class are equally far, they still are
// after the next completion, even if the pairs of the classes form a ring.
#include "sim/program/validate_rules.h"

namespace orrery::program::rules {
namespace {

constexpr std::int32_t kSteps = 2;  // the second step may begin before the first one has ended

class DryRun {
  public:
    DryRun(const Program& program, const IndexedVector<ClassIndex, Trace>& traces)
        : program_(program), traces_(traces), completed_(traces.size()), partners_(traces.size()) {
        for (const ClassIndex c : traces.indices()) find_partners(c);
    }

    void run() {
        bool moved = true;
        while (moved) {
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
        const auto& calls = traces_[c].calls_on[stream];
        const auto count = static_cast<std::int32_t>(calls.size());
        const std::int32_t completed = completed_[c][stream];
        if (completed >= kSteps * count) return nullptr;
        return &traces_[c].calls[static_cast<std::size_t>(calls[static_cast<std::size_t>(completed % count)])];
    }

    /// The first event of the call, the head of its stream, that has not happened; null if all have.
    [[nodiscard]] const Event* missing(ClassIndex c, const Call& call) const {
        const Trace& trace = traces_[c];
        const std::int32_t step = completed_[c][call.stream] / trace.count_on(call.stream);
        for (std::int32_t e = 0; e < call.event_count; ++e) {
            const Event& event = trace.events[static_cast<std::size_t>(call.first_event + e)];
            const std::int32_t earlier_steps = step - event.steps_back;
            if (earlier_steps < 0) continue;
            const std::int32_t needed = earlier_steps * trace.count_on(event.stream) + event.count;
            if (completed_[c][event.stream] < needed) return &event;
        }
        return nullptr;
    }

    /// The other classes that take part in the communication at the head of `stream`. Partners of the same class are
    /// always at the same instruction.
    [[nodiscard]] const std::vector<ClassIndex>& partner_classes(ClassIndex c, const Communication& comm,
                                                                 Stream stream) const {
        if (is_pipeline(stream)) return partners_[c].by_stream[stream];
        return partners_[c].by_axis[comm.axis];
    }

    void find_partners(ClassIndex c) {
        const std::int64_t rank = representative(program_, c);
        for (const GroupAxis axis : kAxes) {
            if (is_pair(axis)) continue;
            for (const ClassIndex other : classes_of_group(program_, axis, c)) {
                if (other != c) partners_[c].by_axis[axis].push_back(other);
            }
        }
        for (const Stream stream : kStreams) {
            if (!is_pipeline(stream) || traces_[c].count_on(stream) == 0) continue;
            partners_[c].by_stream[stream] = {program_.class_of(program_.peer_of(stream, rank))};
        }
    }

    /// Whether the head of the class's stream is the same communication and all its events have happened. By the rule
    /// "collective order", every class issues the collectives of a communicator in the same order.
    [[nodiscard]] bool has_reached(ClassIndex other, const Communication& comm, Stream stream) const {
        const Stream theirs = is_pipeline(stream) ? opposite(stream) : stream;
        const Call* call = head(other, theirs);
        if (call == nullptr || missing(other, *call) != nullptr) return false;
        return instruction_of(program_, *call).communication.axis == comm.axis;
    }

    /// Completes what can complete on the class's streams; whether anything has.
    bool sweep(ClassIndex c) {
        bool moved = false;
        for (const Stream s : kStreams) {
            while (advance(c, s)) moved = true;
        }
        return moved;
    }

    /// Completes the next instruction of the stream if it can.
    bool advance(ClassIndex c, Stream stream) {
        const Call* call = head(c, stream);
        if (call == nullptr || missing(c, *call) != nullptr) return false;
        if (!is_local(stream)) {
            const Communication& comm = instruction_of(program_, *call).communication;
            const std::vector<ClassIndex>& partners = partner_classes(c, comm, stream);
            for (const ClassIndex other : partners) {
                if (!has_reached(other, comm, stream)) return false;
            }
            const Stream theirs = is_pipeline(stream) ? opposite(stream) : stream;
            for (const ClassIndex other : partners) ++completed_[other][theirs];
        }
        ++completed_[c][stream];
        return true;
    }

    void report_stuck() const {
        std::string text;
        Site first;
        for (const ClassIndex c : traces_.indices()) {
            for (const Stream s : kStreams) {
                const Call* call = head(c, s);
                if (call == nullptr) continue;
                const Site site = site_of(traces_[c], *call);
                if (first.rank_class < 0) first = site;
                const Event* event = missing(c, *call);
                text += "\n  " + describe(program_, site) + " waits for " +
                        (event == nullptr ? std::string("its partner")
                                          : "instruction " + std::to_string(event->count) + " of the stream " +
                                                std::string(name_of(event->stream)));
            }
        }
        if (!text.empty())
            fail(program_, "progress", first, "the dry run deadlocks; these instructions are stuck:" + text);
    }

    const Program& program_;
    const IndexedVector<ClassIndex, Trace>& traces_;
    IndexedVector<ClassIndex, PerStream<std::int32_t>> completed_;
    struct Partners {
        PerStream<std::vector<ClassIndex>> by_stream;
        PerAxis<std::vector<ClassIndex>> by_axis;
    };
    IndexedVector<ClassIndex, Partners> partners_;
};

}  // namespace

void check_progress(const Program& program, const IndexedVector<ClassIndex, Trace>& traces) {
    DryRun(program, traces).run();
}

}  // namespace orrery::program::rules
