#include "sim/program/issue_order.h"

#include <algorithm>
#include <string>

#include "core/error.h"

namespace orrery::program {
namespace {

std::size_t to_index(std::int64_t index) {
    return static_cast<std::size_t>(index);
}

std::int32_t size32(std::size_t size) {
    return static_cast<std::int32_t>(size);
}

/// A rank sends to one neighbour and receives from another on the same axis of pairs: two communicators.
std::int32_t communicator_of(const Instruction& instruction) {
    if (!instruction.is_communication) return -1;
    const auto axis = static_cast<std::int32_t>(instruction.communication.axis);
    const bool receives = instruction.communication.kind == CommKind::recv;
    return receives ? axis + static_cast<std::int32_t>(kAxisCount) : axis;
}

}  // namespace

IssueOrder::IssueOrder(const Program& program, std::int32_t rank_class)
    : program_(program),
      rank_class_(rank_class),
      ranks_(program.classes.at(to_index(rank_class))),
      host_runs_compute_(program.plan->cluster.device.host_runs_compute) {
    ByStream none;
    none.fill(-1);
    for (const Body& body : program.bodies) {
        Extent& extent = bodies_.emplace_back(Extent{none, none});
        for (std::size_t i = 0; i < body.instructions.size(); ++i) {
            const auto stream = static_cast<std::size_t>(body.instructions[i].stream);
            if (extent.first[stream] < 0) extent.first[stream] = size32(i);
            extent.last[stream] = size32(i);
        }
    }
    for (const auto& segments : ranks_.segment_lists) {
        Extent& extent = lists_.emplace_back(Extent{none, none});
        std::vector<std::int32_t>& starts = segment_starts_.emplace_back();
        std::int32_t start = 0;
        for (const Segment& segment : segments) {
            starts.push_back(start);
            const Extent& body = bodies_.at(to_index(segment.body));
            for (std::size_t stream = 0; stream < none.size(); ++stream) {
                if (body.first[stream] < 0) continue;
                if (extent.first[stream] < 0) extent.first[stream] = start + body.first[stream];
                extent.last[stream] = start + body.last[stream];
            }
            start += size32(program.bodies[to_index(segment.body)].instructions.size());
        }
    }
    for (std::size_t a = 0; a < ranks_.actions.size(); ++a) {
        action_starts_.push_back(size());
        const auto& segments = ranks_.segment_lists.at(to_index(ranks_.actions[a].segments));
        for (std::size_t s = 0; s < segments.size(); ++s) {
            const Body& body = program.bodies[to_index(segments[s].body)];
            for (std::size_t i = 0; i < body.instructions.size(); ++i) {
                const Instruction& instruction = body.instructions[i];
                std::vector<std::int64_t>& stream = streams_[static_cast<std::size_t>(instruction.stream)];
                const std::int32_t communicator = communicator_of(instruction);
                communicator_.push_back(communicator);
                on_communicator_.push_back(-1);
                if (communicator >= 0) {
                    on_communicator_.back() = size32(communicators_[to_index(communicator)].size());
                    communicators_[to_index(communicator)].push_back(size());
                }
                entries_.push_back(
                    {size32(a), size32(s), size32(i), segments[s].body, instruction.stream, size32(stream.size())});
                stream.push_back(size() - 1);
                if (is_host_own(size() - 1)) host_own_.push_back(size() - 1);
            }
        }
    }
}

std::int64_t IssueOrder::segment_start(std::int32_t action, std::int32_t segment) const {
    const auto list = to_index(ranks_.actions.at(to_index(action)).segments);
    return action_starts_[to_index(action)] + segment_starts_[list].at(to_index(segment));
}

std::int64_t IssueOrder::index_of(const Span& span) const {
    return segment_start(span.action, span.segment) + span.instruction;
}

bool IssueOrder::is_host_own(std::int64_t index) const {
    return runs_on_host(at(index).stream, host_runs_compute_);
}

Predecessor IssueOrder::host_before(std::int64_t index) const {
    if (host_own_.empty()) return {-1, 0};
    const auto next = std::lower_bound(host_own_.begin(), host_own_.end(), index);
    return next == host_own_.begin() ? Predecessor{host_own_.back(), 1} : Predecessor{*(next - 1), 0};
}

std::vector<Predecessor> IssueOrder::predecessors(std::int64_t index) const {
    const Entry& entry = at(index);
    std::vector<Predecessor> result;
    const auto add_before = [&](const std::vector<std::int64_t>& list, std::int32_t place) {
        result.push_back(place > 0 ? Predecessor{list[to_index(place - 1)], 0} : Predecessor{list.back(), 1});
    };
    add_before(on(entry.stream), entry.on_stream);
    const std::int32_t communicator = communicator_[to_index(index)];
    if (communicator >= 0) add_before(communicators_[to_index(communicator)], on_communicator_[to_index(index)]);
    const std::int64_t start = index - entry.instruction;
    for (const InstructionIndex earlier : instruction(index).after) result.push_back({start + earlier, 0});
    if (bodies_[to_index(entry.body)].first[static_cast<std::size_t>(entry.stream)] == entry.instruction) {
        add_waits(index, result);
    }
    return result;
}

/// Of the first instruction of its segment on its stream.
void IssueOrder::add_waits(std::int64_t index, std::vector<Predecessor>& result) const {
    const Entry& entry = at(index);
    const Action& action = ranks_.actions[to_index(entry.action)];
    const auto& segments = ranks_.segment_lists[to_index(action.segments)];
    const Segment& segment = segments[to_index(entry.segment)];
    for (std::int32_t w = segment.first_wait; w < segment.first_wait + segment.wait_count; ++w) {
        const SegmentWait& wait = ranks_.segment_waits.at(to_index(w));
        const BodyId body = segments.at(to_index(wait.segment)).body;
        const std::int32_t last = bodies_[to_index(body)].last[static_cast<std::size_t>(wait.stream)];
        if (last >= 0) result.push_back({segment_start(entry.action, wait.segment) + last, 0});
    }
    const std::int64_t start = action_starts_[to_index(entry.action)];
    const Extent& list = lists_[to_index(action.segments)];
    if (start + list.first[static_cast<std::size_t>(entry.stream)] != index) return;
    for (std::int32_t w = action.first_wait; w < action.first_wait + action.wait_count; ++w) {
        const Wait& wait = ranks_.waits.at(to_index(w));
        if (!wait.holds(entry.stream)) continue;
        const auto waited = to_index(ranks_.actions.at(to_index(wait.action)).segments);
        const std::int32_t last = lists_[waited].last[static_cast<std::size_t>(wait.stream)];
        // An action that puts nothing on the stream keeps nobody waiting.
        if (last >= 0) result.push_back({action_starts_[to_index(wait.action)] + last, wait.steps_back});
    }
}

std::string IssueOrder::key_at(std::int64_t index) const {
    const Entry& entry = at(index);
    return key_of(program_, rank_class_,
                  {.action = entry.action, .segment = entry.segment, .instruction = entry.instruction});
}

std::vector<Span> spans_in_order(const RankRecord& record, const IssueOrder& order) {
    const auto fault = [&](const std::string& what) {
        throw InputError("rank " + std::to_string(record.rank) + ": the record " + what +
                         "; a record of every instruction is needed");
    };
    std::vector<Span> spans(to_index(order.size()));
    std::vector<bool> seen(spans.size(), false);
    for (const Span& span : record.spans) {
        const std::int64_t index = order.index_of(span);
        if (seen.at(to_index(index))) fault("holds " + order.key_at(index) + " twice");
        seen[to_index(index)] = true;
        spans[to_index(index)] = span;
    }
    const auto missing = std::find(seen.begin(), seen.end(), false);
    if (missing != seen.end()) {
        fault("holds " + std::to_string(record.spans.size()) + " of " + std::to_string(order.size()) +
              " instructions, and lacks " + order.key_at(missing - seen.begin()));
    }
    return spans;
}

}  // namespace orrery::program
