// Rule "progress": a dry run without a clock, one rank per class, in which an instruction completes as soon as its
// stream has reached it, its events have happened and, for communication, its partners are there too (sends and
// receives are rendezvous). What completes can only let more complete, so the order of trying does not matter: either
// all of it finishes or the program deadlocks.
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

    /// Class that the communication meets; the class itself when all partners are in the same class and so are at the
    /// same point.
    [[nodiscard]] std::size_t partner(std::size_t c, const Communication& comm, Stream stream) const {
        if (is_pipeline(stream)) return partners_[c].by_stream[static_cast<std::size_t>(stream)];
        return comm.axis == GroupAxis::embedding ? partners_[c].embedding : c;
    }

    void find_partners(std::size_t c) {
        const std::int64_t rank = program_.rank_at({0, 0, static_cast<std::int64_t>(c)});
        partners_[c].embedding = c;
        for (const std::int64_t member : program_.group_of(GroupAxis::embedding, rank)) {
            const auto other = static_cast<std::size_t>(program_.class_of(member));
            if (other != c) partners_[c].embedding = other;
        }
        for (std::size_t s = 0; s < kStreamCount; ++s) {
            const auto stream = static_cast<Stream>(s);
            if (!is_pipeline(stream) || traces_[c].count_on(stream) == 0) continue;
            partners_[c].by_stream[s] = static_cast<std::size_t>(program_.class_of(program_.peer_of(stream, rank)));
        }
    }

    /// Stream of `other` on which the partner of `stream` waits with its events met; -1: not there yet.
    [[nodiscard]] int partner_stream(std::size_t other, const Communication& comm, Stream stream) const {
        for (std::size_t s = 1; s < kStreamCount; ++s) {
            const auto candidate = static_cast<Stream>(s);
            if (is_pipeline(stream) != is_pipeline(candidate)) continue;
            const Call* call = head(other, s);
            if (call == nullptr) continue;
            const Communication& theirs = instruction_of(program_, traces_[other], *call).communication;
            if (theirs.axis != comm.axis) continue;
            // A send meets a receive, a collective its like.
            const bool send_meets_recv = theirs.kind != comm.kind;
            if (is_pipeline(stream) != send_meets_recv || missing(other, *call) != nullptr) continue;
            return static_cast<int>(s);
        }
        return -1;
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
        if (call->stream != Stream::compute) {
            const Communication& comm = instruction_of(program_, traces_[c], *call).communication;
            const std::size_t other = partner(c, comm, call->stream);
            if (other != c) {
                const int theirs = partner_stream(other, comm, call->stream);
                if (theirs < 0) return false;
                ++completed_[other][static_cast<std::size_t>(theirs)];
            }
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
                const Site site = traces_[c].site(*call);
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
    std::vector<std::array<std::int32_t, kStreamCount>> completed_;
    struct Partners {
        std::array<std::size_t, kStreamCount> by_stream{};
        std::size_t embedding = 0;
    };
    std::vector<Partners> partners_;  // by class
};

}  // namespace

void check_progress(const Program& program, const std::vector<Trace>& traces) {
    DryRun(program, traces).run();
}

}  // namespace orrery::program::rules
