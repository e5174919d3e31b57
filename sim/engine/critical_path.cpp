#include "sim/engine/critical_path.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <optional>
#include <string>
#include <tuple>

#include "core/error.h"
#include "core/units.h"
#include "sim/engine/compiled_program.h"
#include "sim/engine/simulate.h"

namespace orrery::sim {

namespace {

using program::RankRecord;
using program::RunRecord;
using program::Span;

std::size_t at(std::int64_t index) {
    return static_cast<std::size_t>(index);
}

/// The Program is compiled for its order only.
class NoCost final : public CostModel {
  public:
    [[nodiscard]] Picoseconds instruction_time(const InstructionContext&) const override { return Picoseconds(0); }
    [[nodiscard]] bool depends_on_action() const override { return false; }
    [[nodiscard]] std::vector<std::string> notes(const program::Program&) const override { return {}; }
};

/// The spans of one rank in issue order, and where each stands in it.
struct RankSpans {
    struct Place {
        const CompiledInstruction* instruction = nullptr;
        const CompiledAction* action = nullptr;
        const CompiledCall* call = nullptr;
        std::int32_t stream = 0;         // its counter
        std::int32_t ordinal = 0;        // among the step's instructions on its stream
        std::int32_t seat_ordinal = -1;  // among the step's operations at its seat
        bool starts_call = false;        // the first of its call on its stream
        bool starts_action = false;
    };
    const CompiledClass* rank_class = nullptr;
    std::vector<Span> spans;
    std::vector<Place> places;
    std::vector<std::vector<std::int32_t>> on_stream;           // by stream counter: indices in `spans`
    std::array<std::vector<std::int32_t>, kSeatCount> at_seat;  // the same
    std::vector<std::int32_t> of_host;                          // the host's own
};

class Walker {
  public:
    Walker(const program::Program& program, const RunRecord& record)
        : program_(program),
          record_(record),
          compiled_(compile(program, NoCost(), program.plan->cluster.device.host_runs_compute)),
          host_(host_times(*program.plan, program.plan->cluster.device)) {
        index_instructions();
        for (std::size_t r = 0; r < record.ranks.size(); ++r) {
            add_rank(record.ranks[r]);
            record_of_rank_.emplace(record.ranks[r].rank, static_cast<std::int32_t>(r));
        }
    }

    CriticalPath run();

  private:
    struct Here {
        std::int32_t record = 0;
        std::int32_t span = 0;  // in issue order
    };
    struct Release {
        PathCause cause = PathCause::earlier_step;
        std::int32_t span = -1;  // of the same rank; -1: the path ends here
        std::int64_t end_ps = 0;
    };

    void index_instructions();
    void add_rank(const RankRecord& record);
    [[nodiscard]] const Span& span_of(Here here) const { return ranks_[at(here.record)].spans[at(here.span)]; }
    [[nodiscard]] const RankSpans::Place& place_of(Here here) const {
        return ranks_[at(here.record)].places[at(here.span)];
    }
    [[nodiscard]] Here last() const;
    [[nodiscard]] std::optional<Here> late_partner(Here here) const;
    [[nodiscard]] Release release_of(Here here) const;
    [[nodiscard]] Release host_release(Here here) const;

    const program::Program& program_;
    const RunRecord& record_;
    CompiledProgram compiled_;
    HostTimes host_;
    std::vector<std::vector<std::int32_t>> by_index_;  // by body, then instruction: in compiled_.instructions
    std::vector<RankSpans> ranks_;                     // by record
    std::map<std::int64_t, std::int32_t> record_of_rank_;
};

void Walker::index_instructions() {
    for (const CompiledBody& body : compiled_.bodies) {
        std::vector<std::int32_t>& here = by_index_.emplace_back(at(body.instructions));
        for (std::size_t stream = 0; stream < body.first.size(); ++stream) {
            for (std::int32_t i = body.first[stream]; i < body.first[stream] + body.count[stream]; ++i) {
                here[at(compiled_.instructions[at(i)].index)] = i;
            }
        }
    }
}

void Walker::add_rank(const RankRecord& record) {
    RankSpans& rank = ranks_.emplace_back();
    rank.rank_class = &compiled_.classes.at(at(record.rank_class));
    if (static_cast<std::int64_t>(record.spans.size()) != rank.rank_class->instructions) {
        throw InputError("the critical path needs a record of every instruction; rank " + std::to_string(record.rank) +
                         " has " + std::to_string(record.spans.size()) + " of " +
                         std::to_string(rank.rank_class->instructions));
    }
    rank.spans = record.spans;
    std::sort(rank.spans.begin(), rank.spans.end(), [](const Span& a, const Span& b) {
        return std::tie(a.action, a.segment, a.instruction) < std::tie(b.action, b.segment, b.instruction);
    });
    rank.on_stream.resize(compiled_.counters.streams.size());
    for (std::size_t i = 0; i < rank.spans.size(); ++i) {
        const Span& span = rank.spans[i];
        RankSpans::Place place;
        place.action = &rank.rank_class->actions.at(at(span.action));
        place.call =
            &rank.rank_class->calls.at(at(rank.rank_class->lists[at(place.action->list)].first_call + span.segment));
        const std::int32_t index = by_index_.at(at(place.call->body)).at(at(span.instruction));
        place.instruction = &compiled_.instructions[at(index)];
        const CompiledBody& body = compiled_.bodies[at(place.call->body)];
        while (index < body.first[at(place.stream)] ||
               index >= body.first[at(place.stream)] + body.count[at(place.stream)])
            ++place.stream;
        place.starts_call = index == body.first[at(place.stream)];
        const StreamCalls calls = rank.rank_class->calls_on(*place.action, place.stream);
        place.starts_action =
            place.starts_call &&
            &rank.rank_class->calls[at(rank.rank_class->call_order[at(calls.first)].call)] == place.call;
        place.ordinal = static_cast<std::int32_t>(rank.on_stream[at(place.stream)].size());
        rank.on_stream[at(place.stream)].push_back(static_cast<std::int32_t>(i));
        if (place.instruction->seat >= 0) {
            std::vector<std::int32_t>& seat = rank.at_seat[at(place.instruction->seat)];
            place.seat_ordinal = static_cast<std::int32_t>(seat.size());
            seat.push_back(static_cast<std::int32_t>(i));
        }
        const program::Stream stream = compiled_.counters.streams[at(place.stream)];
        if (program::runs_on_host(stream, compiled_.host_runs_compute)) {
            rank.of_host.push_back(static_cast<std::int32_t>(i));
        }
        rank.places.push_back(place);
    }
}

Walker::Here Walker::last() const {
    Here latest{-1, 0};
    for (std::size_t r = 0; r < ranks_.size(); ++r) {
        for (std::size_t i = 0; i < ranks_[r].spans.size(); ++i) {
            if (latest.record < 0 || ranks_[r].spans[i].end_ps > span_of(latest).end_ps) {
                latest = {static_cast<std::int32_t>(r), static_cast<std::int32_t>(i)};
            }
        }
    }
    return latest;
}

/// The member of the operation's group that was ready last, if that was after this one.
std::optional<Walker::Here> Walker::late_partner(Here here) const {
    const RankSpans::Place& place = place_of(here);
    if (place.instruction->seat < 0) return std::nullopt;
    const Span& own = span_of(here);
    const auto seat = static_cast<Seat>(place.instruction->seat);
    const std::int64_t rank = record_.ranks[at(here.record)].rank;
    std::vector<std::int64_t> members;
    Seat their_seat = seat;
    if (program::is_pair(axis_of(seat))) {
        members = {program_.peer_of(compiled_.counters.streams[at(place.stream)], rank)};
        their_seat = seat_on(axis_of(seat), sends(seat));
    } else {
        members = program_.group_of(axis_of(seat), rank);
    }
    std::optional<Here> latest;
    const auto look_at = [&](std::int32_t record, bool stands_in) {
        const RankSpans& rank_spans = ranks_[at(record)];
        const std::vector<std::int32_t>& operations = rank_spans.at_seat[static_cast<std::size_t>(their_seat)];
        if (at(place.seat_ordinal) >= operations.size()) return;
        const Here there{record, operations[at(place.seat_ordinal)]};
        const Span& span = span_of(there);
        if (stands_in && (span.begin_ps != own.begin_ps || span.end_ps != own.end_ps)) return;
        if (span.ready_ps <= (latest ? span_of(*latest).ready_ps : own.ready_ps)) return;
        latest = there;
    };
    std::int32_t looked_at_class = -1;  // members of one class mostly follow each other
    for (const std::int64_t member : members) {
        const auto known = record_of_rank_.find(member);
        if (known != record_of_rank_.end()) {
            look_at(known->second, false);
            continue;
        }
        const program::ClassIndex rank_class = program_.class_of(member);
        if (rank_class == looked_at_class) continue;
        looked_at_class = rank_class;
        for (std::size_t r = 0; r < ranks_.size(); ++r) {
            if (record_.ranks[r].rank_class == rank_class) look_at(static_cast<std::int32_t>(r), true);
        }
    }
    return latest;
}

/// What of its own rank the instruction waited for last before it was ready.
Walker::Release Walker::release_of(Here here) const {
    const RankSpans& rank = ranks_[at(here.record)];
    const RankSpans::Place& place = place_of(here);
    const Span& own = span_of(here);
    Release latest;
    const auto candidate = [&](PathCause cause, const std::vector<std::int32_t>& list, std::int64_t count) {
        if (count <= 0) return;  // before the step
        const std::int32_t span = list.at(at(count - 1));
        const std::int64_t end = rank.spans[at(span)].end_ps;
        if (latest.span < 0 || end > latest.end_ps) latest = {cause, span, end};
    };
    const auto list_of = [&](std::int32_t counter) -> const std::vector<std::int32_t>& {
        if (counter < compiled_.counters.stream_count()) return rank.on_stream[at(counter)];
        return rank.at_seat[at(place.instruction->seat)];  // only its own communicator's operations
    };
    const std::int32_t* action_base = rank.rank_class->action_base(own.action);
    const std::int32_t* call_base =
        rank.rank_class->call_base(static_cast<std::int32_t>(place.call - rank.rank_class->calls.data()));
    const auto add_needs = [&](std::int32_t first, std::int32_t count) {
        for (std::int32_t i = first; i < first + count; ++i) {
            const Need& need = compiled_.needs[at(i)];
            candidate(PathCause::dependency, list_of(need.counter),
                      action_base[need.counter] + call_base[need.counter] + need.count);
        }
    };
    candidate(PathCause::stream, rank.on_stream[at(place.stream)], place.ordinal);
    add_needs(place.instruction->first_need, place.instruction->need_count);
    if (place.starts_call) add_needs(place.call->first_need, place.call->need_count);
    for (std::int32_t w = 0; w < place.action->wait_count && place.starts_action; ++w) {
        const CompiledWait& wait = rank.rank_class->waits[at(place.action->first_wait + w)];
        if ((wait.held_streams >> static_cast<unsigned>(place.stream) & 1U) == 0) continue;
        candidate(PathCause::dependency, rank.on_stream[at(wait.counter)], wait.steps_back > 0 ? 0 : wait.count);
    }
    // A measured instruction begins a little after what it waited for; a simulated one at that very moment.
    const bool exact = record_.maker == program::Maker::simulated;
    if (latest.span >= 0 && (!exact || latest.end_ps == own.ready_ps)) return latest;
    return exact ? host_release(here) : Release{};
}

/// Of a simulated instruction that nothing of its own step holds.
Walker::Release Walker::host_release(Here here) const {
    const RankSpans& rank = ranks_[at(here.record)];
    const RankSpans::Place& place = place_of(here);
    if (host_.is_free()) return {};
    const std::int32_t host_before =
        place.action->host_before + place.call->host_before + place.instruction->host_before;
    if (host_before == 0) {
        // Issued since before the step: by a host that never waits, or else who knows what held that host.
        const bool launches_only = rank.rank_class->host_instructions == 0 && place.ordinal > 0;
        return {launches_only ? PathCause::host : PathCause::earlier_step, -1, 0};
    }
    const std::int32_t anchor = rank.of_host.at(at(host_before) - 1);
    HostWork issues = place.instruction->issues;
    if (place.instruction->after_call_start) {
        issues += place.call->issues_since_host;
        if (place.call->host_before == 0) issues += place.action->issues_since_host;
    }
    const std::int64_t end = rank.spans[at(anchor)].end_ps;
    if (end + host_.of(issues) != span_of(here).ready_ps) return {};
    return {PathCause::host, anchor, end};
}

CriticalPath Walker::run() {
    CriticalPath path;
    Here here = last();
    if (here.record < 0) return path;
    std::int64_t to = span_of(here).end_ps;
    path.length_ps = to;
    const auto add = [&](PathCause cause, std::int64_t from, std::int64_t start) {
        const program::Stream stream = compiled_.counters.streams[at(place_of(here).stream)];
        start = std::clamp(start, std::int64_t{0}, to);
        from = std::clamp(from, std::int64_t{0}, start);
        path.elements.push_back({here.record, span_of(here), stream, cause, from, start, to});
        path.stream_ps[static_cast<std::size_t>(stream)] += to - start;
        path.delay_ps[static_cast<std::size_t>(cause)] += start - from;
        to = from;
    };
    while (true) {
        // An arrival: all that matters of it is when it was ready.
        const bool arrives = !path.elements.empty() && path.elements.back().cause == PathCause::partner;
        if (const std::optional<Here> partner = arrives ? std::nullopt : late_partner(here)) {
            const std::int64_t met = span_of(*partner).ready_ps;
            add(PathCause::partner, met, met);
            here = *partner;
            continue;
        }
        const Release release = release_of(here);
        add(release.cause, release.span < 0 ? 0 : release.end_ps, span_of(here).ready_ps);
        if (release.span < 0) break;
        here.span = release.span;
    }
    std::reverse(path.elements.begin(), path.elements.end());
    return path;
}

}  // namespace

std::string_view name_of(PathCause cause) {
    switch (cause) {
        case PathCause::earlier_step:
            return "earlier step";
        case PathCause::stream:
            return "stream";
        case PathCause::dependency:
            return "dependency";
        case PathCause::partner:
            return "partner";
        case PathCause::host:
            return "host";
    }
    return "?";
}

CriticalPath critical_path(const program::Program& program, const RunRecord& record) {
    return Walker(program, record).run();
}

}  // namespace orrery::sim
