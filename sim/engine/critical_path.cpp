#include "sim/engine/critical_path.h"

#include <algorithm>
#include <map>
#include <optional>
#include <string>

#include "core/enum_names.h"
#include "core/units.h"
#include "sim/engine/compiled_program.h"
#include "sim/engine/simulate.h"
#include "sim/program/issue_order.h"

namespace orrery::sim {

namespace {

using program::RankRecord;
using program::RunRecord;
using program::Span;

using RecordIndex = Index<struct RecordTag>;  // in RunRecord::ranks
using SpanIndex = Index<struct SpanTag>;      // of a rank, in issue order

/// The path needs only the order of the compiled Program, and no durations.
class NoCost final : public CostModel {
  public:
    [[nodiscard]] Picoseconds instruction_time(const InstructionContext&) const override { return Picoseconds(0); }
    [[nodiscard]] bool depends_on_action() const override { return false; }
    [[nodiscard]] std::vector<std::string> notes(const program::Program&) const override { return {}; }
};

/// The spans of one rank in issue order, and the place of each in the Program.
struct RankSpans {
    struct Place {
        const CompiledInstruction* instruction = nullptr;
        const CompiledAction* action = nullptr;
        const CompiledCall* call = nullptr;
        CounterIndex stream = 0;
        std::int32_t ordinal = 0;            // among the step's instructions on its stream
        std::int32_t endpoint_ordinal = -1;  // among the step's operations at its endpoint
        bool starts_call = false;            // the first of its call on its stream
        bool starts_action = false;
    };
    const CompiledClass* rank_class = nullptr;
    IndexedVector<SpanIndex, Span> spans;
    IndexedVector<SpanIndex, Place> places;
    PerCounter<std::vector<SpanIndex>> on_stream;
    PerEndpoint<std::vector<SpanIndex>> at_endpoint;
    std::vector<SpanIndex> of_host;  // spans of the host's own instructions
};

class Walker {
  public:
    Walker(const program::Program& program, const RunRecord& record)
        : program_(program),
          record_(record),
          compiled_(compile(program, NoCost(), program.plan->cluster.device.host_runs_compute)),
          host_(host_times(*program.plan, program.plan->cluster.device)) {
        index_instructions();
        for (const RankRecord& rank : record.ranks) {
            record_of_rank_.emplace(rank.rank, ranks_.next_index());
            add_rank(rank);
        }
    }

    CriticalPath run();

  private:
    struct Location {
        RecordIndex record = 0;
        SpanIndex span = 0;
    };
    struct Release {
        PathCause cause = PathCause::earlier_step;
        SpanIndex span = -1;  // of the same rank; -1: the path ends here
        std::int64_t end_ps = 0;
    };

    void index_instructions();
    void add_rank(const RankRecord& record);
    [[nodiscard]] const Span& span_of(Location here) const { return ranks_[here.record].spans[here.span]; }
    [[nodiscard]] const RankSpans::Place& place_of(Location here) const {
        return ranks_[here.record].places[here.span];
    }
    [[nodiscard]] Location last() const;
    [[nodiscard]] std::optional<Location> late_partner(Location here) const;
    [[nodiscard]] Release release_of(Location here) const;
    [[nodiscard]] Release host_release(Location here) const;

    const program::Program& program_;
    const RunRecord& record_;
    CompiledProgram compiled_;
    HostTimes host_;
    IndexedVector<program::BodyId, IndexedVector<program::InstructionIndex, InstructionPlace>> by_index_;
    IndexedVector<RecordIndex, RankSpans> ranks_;
    std::map<std::int64_t, RecordIndex> record_of_rank_;
};

void Walker::index_instructions() {
    for (const CompiledBody& body : compiled_.bodies) {
        auto& here = by_index_.emplace_back(static_cast<std::size_t>(body.instructions));
        for (const CounterIndex stream : body.first.indices()) {
            const InstructionPlace first = body.first[stream];
            for (const InstructionPlace i : IndexRange(first, first + body.count[stream])) {
                here[compiled_.instructions[i].index] = i;
            }
        }
    }
}

void Walker::add_rank(const RankRecord& record) {
    RankSpans& rank = ranks_.emplace_back();
    rank.rank_class = &compiled_.classes.at(record.rank_class);
    const std::vector<Span> spans = spans_in_order(record, program::IssueIndex(program_, record.rank_class));
    rank.spans.assign(spans.begin(), spans.end());
    rank.on_stream.resize(compiled_.counters.streams.size());
    for (const SpanIndex i : rank.spans.indices()) {
        const Span& span = rank.spans[i];
        RankSpans::Place place;
        place.action = &rank.rank_class->actions.at(span.action);
        place.call =
            &rank.rank_class->calls.at(rank.rank_class->lists[place.action->list].first_call + span.segment.value());
        const InstructionPlace index = by_index_.at(place.call->body).at(span.instruction);
        place.instruction = &compiled_.instructions[index];
        const CompiledBody& body = compiled_.bodies[place.call->body];
        while (index < body.first[place.stream] || index >= body.first[place.stream] + body.count[place.stream])
            ++place.stream;
        place.starts_call = index == body.first[place.stream];
        const StreamCalls calls = rank.rank_class->calls_on(*place.action, place.stream);
        place.starts_action =
            place.starts_call && &rank.rank_class->calls[rank.rank_class->call_order[calls.first].call] == place.call;
        place.ordinal = static_cast<std::int32_t>(rank.on_stream[place.stream].size());
        rank.on_stream[place.stream].push_back(i);
        if (place.instruction->endpoint) {
            std::vector<SpanIndex>& operations = rank.at_endpoint[*place.instruction->endpoint];
            place.endpoint_ordinal = static_cast<std::int32_t>(operations.size());
            operations.push_back(i);
        }
        const program::Stream stream = compiled_.counters.streams[place.stream];
        if (program::runs_on_host(stream, compiled_.host_runs_compute)) rank.of_host.push_back(i);
        rank.places.push_back(place);
    }
}

/// The span that ends last.
Walker::Location Walker::last() const {
    Location latest{-1, 0};
    for (const RecordIndex r : ranks_.indices()) {
        for (const SpanIndex i : ranks_[r].spans.indices()) {
            if (latest.record < 0 || ranks_[r].spans[i].end_ps > span_of(latest).end_ps) latest = {r, i};
        }
    }
    return latest;
}

/// The operation at the member of its group that was ready last, if that is not this member.
std::optional<Walker::Location> Walker::late_partner(Location here) const {
    const RankSpans::Place& place = place_of(here);
    if (!place.instruction->endpoint) return std::nullopt;
    const Span& own = span_of(here);
    const Endpoint endpoint = *place.instruction->endpoint;
    const program::GroupAxis axis = axis_of(endpoint);
    const std::int64_t rank = record_.ranks[here.record.position()].rank;
    const auto ordinal = static_cast<std::size_t>(place.endpoint_ordinal);
    std::vector<std::int64_t> members;
    Endpoint theirs = endpoint;
    if (program::is_pair(axis)) {
        members = {program_.peer_of(compiled_.counters.streams[place.stream], rank)};
        theirs = endpoint_on(axis, sends(endpoint));
    } else {
        members = program_.group_of(axis, rank);
    }
    std::optional<Location> latest;
    const auto look_at = [&](RecordIndex record, bool stands_in) {
        const std::vector<SpanIndex>& operations = ranks_[record].at_endpoint[theirs];
        if (ordinal >= operations.size()) return;
        const Location there{record, operations[ordinal]};
        const Span& span = span_of(there);
        if (stands_in && (span.begin_ps != own.begin_ps || span.end_ps != own.end_ps)) return;
        if (span.ready_ps <= (latest ? span_of(*latest).ready_ps : own.ready_ps)) return;
        latest = there;
    };
    program::ClassIndex looked_at_class = -1;  // members of one class are mostly adjacent
    for (const std::int64_t member : members) {
        const auto known = record_of_rank_.find(member);
        if (known != record_of_rank_.end()) {
            look_at(known->second, false);
            continue;
        }
        const program::ClassIndex rank_class = program_.class_of(member);
        if (rank_class == looked_at_class) continue;
        looked_at_class = rank_class;
        for (const RecordIndex r : ranks_.indices()) {
            if (record_.ranks[r.position()].rank_class == rank_class) look_at(r, true);
        }
    }
    return latest;
}

/// The last event on its own rank for which the instruction waited.
Walker::Release Walker::release_of(Location here) const {
    const RankSpans& rank = ranks_[here.record];
    const RankSpans::Place& place = place_of(here);
    const Span& own = span_of(here);
    Release latest;
    const auto candidate = [&](PathCause cause, const std::vector<SpanIndex>& list, std::int64_t count) {
        if (count <= 0) return;  // before the step
        const SpanIndex span = list.at(static_cast<std::size_t>(count - 1));
        const std::int64_t end = rank.spans[span].end_ps;
        if (latest.span < 0 || end > latest.end_ps) latest = {cause, span, end};
    };
    const auto list_of = [&](CounterIndex counter) -> const std::vector<SpanIndex>& {
        if (counter < rank.on_stream.next_index()) return rank.on_stream[counter];
        return rank.at_endpoint[*place.instruction->endpoint];  // the counter of the instruction's own axis
    };
    const auto action_base = rank.rank_class->action_base(own.action);
    const auto call_base = rank.rank_class->call_base(CallIndex::of(place.call - rank.rank_class->calls.data()));
    const auto add_needs = [&](const auto& holder) {
        for (const Need& need : compiled_.needs_of(holder)) {
            candidate(PathCause::dependency, list_of(need.counter),
                      action_base[need.counter] + call_base[need.counter] + need.count);
        }
    };
    candidate(PathCause::stream, rank.on_stream[place.stream], place.ordinal);
    add_needs(*place.instruction);
    if (place.starts_call) add_needs(*place.call);
    if (place.starts_action) {
        for (const CompiledWait& wait : rank.rank_class->waits_of(*place.action)) {
            if (!wait.holds(place.stream)) continue;
            candidate(PathCause::dependency, rank.on_stream[wait.counter], wait.steps_back > 0 ? 0 : wait.count);
        }
    }
    // A simulated instruction is ready at the moment when the awaited one ends, a measured one a little later.
    const bool exact = record_.maker == program::Maker::simulated;
    if (latest.span >= 0 && (!exact || latest.end_ps == own.ready_ps)) return latest;
    return exact ? host_release(here) : Release{};
}

/// The release of a simulated instruction that was ready later than all for which it waited in its own step.
Walker::Release Walker::host_release(Location here) const {
    const RankSpans& rank = ranks_[here.record];
    const RankSpans::Place& place = place_of(here);
    if (host_.is_free()) return {};
    const HostStretch before = place.action->host_before + place.call->host_before + place.instruction->host_before;
    if (before.own == 0) {
        // The host has issued it without an instruction of its own in this step. If it has none in any step, it was
        // busy with launches. Otherwise, what held the host before this step is not known.
        const bool launches_only = rank.rank_class->host.own == 0 && place.ordinal > 0;
        return {launches_only ? PathCause::host : PathCause::earlier_step, -1, 0};
    }
    const SpanIndex anchor = rank.of_host.at(static_cast<std::size_t>(before.own) - 1);
    const std::int64_t end = rank.spans[anchor].end_ps;
    if (end + host_.of(before.issues) != span_of(here).ready_ps) return {};
    return {PathCause::host, anchor, end};
}

CriticalPath Walker::run() {
    CriticalPath path;
    Location here = last();
    if (here.record < 0) return path;
    std::int64_t to = span_of(here).end_ps;
    path.length_ps = to;
    const auto add = [&](PathCause cause, std::int64_t from, std::int64_t start) {
        const program::Stream stream = compiled_.counters.streams[place_of(here).stream];
        start = std::clamp(start, std::int64_t{0}, to);
        from = std::clamp(from, std::int64_t{0}, start);
        path.elements.push_back({here.record.value(), span_of(here), stream, cause, from, start, to});
        path.stream_ps[stream] += to - start;
        path.delay_ps[cause] += start - from;
        to = from;
    };
    while (true) {
        // If this is the member that arrived last, only its ready time matters.
        const bool arrives = !path.elements.empty() && path.elements.back().cause == PathCause::partner;
        if (const std::optional<Location> partner = arrives ? std::nullopt : late_partner(here)) {
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
    static constexpr auto kNames =
        name_table<PathCause::host>({"earlier step", "stream", "dependency", "partner", "host"});
    return kNames[cause];
}

CriticalPath critical_path(const program::Program& program, const RunRecord& record) {
    return Walker(program, record).run();
}

}  // namespace orrery::sim
