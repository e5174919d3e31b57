// Rule "progress": a dry run without a clock, one rank per class, in which an instruction completes as soon as its
// stream has reached it, its events have happened and, for communication, its partners are there too (sends and
// receives are rendezvous). What completes can only let more complete, so the order of trying does not matter: either
// all of it finishes or the program deadlocks.
//
// One rank stands for its class: ranks of a class do the same, and a pair or group leads from each rank of a class to
// one rank (or the same number) of the other, so a state in which all ranks of each class are equally far is reached
// again by each step of the run, wherever the classes' pairs lead, in a ring too.
#include "sim/program/validate_rules.h"

namespace orrery::program::rules {
namespace {

constexpr std::int32_t kSteps = 2;  // the second step begins while the first one drains

class DryRun {
  public:
    DryRun(const Program& program, const std::vector<Trace>& traces)
        : program_(program), traces_(traces), completed_(traces.size()), partners_(traces.size()) {
        for (std::size_t c = 0; c < traces.size(); ++c) find_partners(c);
    }

    void run() {
        bool moved = true;
        while (moved) {
            moved = false;
            for (std::size_t c = 0; c < traces_.size(); ++c) {
                while (sweep(c)) moved = true;
            }
        }
        report_stuck();
    }

  private:
    [[nodiscard]] const Call* head(std::size_t c, std::size_t stream) const {
        const auto& calls = traces_[c].calls_on[stream];
        const auto count = static_cast<std::int32_t>(calls.size());
        const std::int32_t completed = completed_[c][stream];
        if (completed >= kSteps * count) return nullptr;
        return &traces_[c].calls[static_cast<std::size_t>(calls[static_cast<std::size_t>(completed % count)])];
    }

    /// The event that the head of the stream lacks; null when it lacks none.
    [[nodiscard]] const Event* missing(std::size_t c, const Call& call) const {
        const Trace& trace = traces_[c];
        const std::int32_t step = completed_[c][static_cast<std::size_t>(call.stream)] / trace.count_on(call.stream);
        for (std::int32_t e = 0; e < call.event_count; ++e) {
            const Event& event = trace.events[static_cast<std::size_t>(call.first_event + e)];
            const std::int32_t earlier_steps = step - event.steps_back;
            if (earlier_steps < 0) continue;
            const std::int32_t needed = earlier_steps * trace.count_on(event.stream) + event.count;
            if (completed_[c][static_cast<std::size_t>(event.stream)] < needed) return &event;
        }
        return nullptr;
    }

    /// Other classes that the communication at the head of `stream` meets; none when all partners are in the same
    /// class and so at the same point.
    [[nodiscard]] const std::vector<std::int32_t>& others(std::size_t c, const Communication& comm,
                                                          Stream stream) const {
        if (is_pipeline(stream)) return partners_[c].by_stream[static_cast<std::size_t>(stream)];
        return partners_[c].by_axis[static_cast<std::size_t>(comm.axis)];
    }

    void find_partners(std::size_t c) {
        const auto own = static_cast<std::int32_t>(c);
        const std::int64_t rank = representative(program_, own);
        for (std::size_t a = 0; a < kAxisCount; ++a) {
            const auto axis = static_cast<GroupAxis>(a);
            if (is_pair(axis)) continue;
            for (const std::int32_t other : classes_of_group(program_, axis, own)) {
                if (other != own) partners_[c].by_axis[a].push_back(other);
            }
        }
        for (std::size_t s = 0; s < kStreamCount; ++s) {
            const auto stream = static_cast<Stream>(s);
            if (!is_pipeline(stream) || traces_[c].count_on(stream) == 0) continue;
            partners_[c].by_stream[s] = {program_.class_of(program_.peer_of(stream, rank))};
        }
    }

    /// Whether the class waits on its stream for the same communication, with its events met. Collectives of one
    /// communicator stand in the same order in each class (rule "collective order").
    [[nodiscard]] bool is_there(std::size_t other, const Communication& comm, Stream stream) const {
        const Stream theirs = is_pipeline(stream) ? opposite(stream) : stream;
        const Call* call = head(other, static_cast<std::size_t>(theirs));
        if (call == nullptr || missing(other, *call) != nullptr) return false;
        return instruction_of(program_, *call).communication.axis == comm.axis;
    }

    bool sweep(std::size_t c) {
        bool moved = false;
        for (std::size_t s = 0; s < kStreamCount; ++s) {
            while (advance(c, s)) moved = true;
        }
        return moved;
    }

    bool advance(std::size_t c, std::size_t s) {
        const Call* call = head(c, s);
        if (call == nullptr || missing(c, *call) != nullptr) return false;
        const Stream stream = call->stream;
        if (!is_local(stream)) {
            const Communication& comm = instruction_of(program_, *call).communication;
            const std::vector<std::int32_t>& met = others(c, comm, stream);
            for (const std::int32_t other : met) {
                if (!is_there(static_cast<std::size_t>(other), comm, stream)) return false;
            }
            const auto theirs = static_cast<std::size_t>(is_pipeline(stream) ? opposite(stream) : stream);
            for (const std::int32_t other : met) ++completed_[static_cast<std::size_t>(other)][theirs];
        }
        ++completed_[c][s];
        return true;
    }

    void report_stuck() const {
        std::string text;
        Site first;
        for (std::size_t c = 0; c < traces_.size(); ++c) {
            for (std::size_t s = 0; s < kStreamCount; ++s) {
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
        if (!text.empty()) fail(program_, "progress", first, "the dry run stops; stuck are:" + text);
    }

    const Program& program_;
    const std::vector<Trace>& traces_;
    std::vector<PerStream<std::int32_t>> completed_;
    struct Partners {
        PerStream<std::vector<std::int32_t>> by_stream;
        PerAxis<std::vector<std::int32_t>> by_axis;
    };
    std::vector<Partners> partners_;  // by class
};

}  // namespace

void check_progress(const Program& program, const std::vector<Trace>& traces) {
    DryRun(program, traces).run();
}

}  // namespace orrery::program::rules
