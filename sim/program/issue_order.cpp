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

IssueOrder::IssueOrder(const Program& program, ClassIndex rank_class)
    : program_(program),
      ranks_(program.classes.at(to_index(rank_class))),
      host_runs_compute_(program.plan->cluster.device.host_runs_compute),
      trace_(trace_of(program, rank_class)) {
    for (const auto& segments : ranks_.segment_lists) {
        std::vector<std::int32_t>& starts = segment_starts_.emplace_back();
        std::int32_t start = 0;
        for (const Segment& segment : segments) {
            starts.push_back(start);
            start += size32(program.bodies[to_index(segment.body)].instructions.size());
        }
    }
    action_starts_.resize(ranks_.actions.size());
    for (std::int64_t i = size(); i-- > 0;) action_starts_[to_index(at(i).action)] = i;
    for (std::int64_t i = 0; i < size(); ++i) {
        const std::int32_t communicator = communicator_of(instruction(i));
        communicator_.push_back(communicator);
        on_communicator_.push_back(-1);
        if (communicator >= 0) {
            on_communicator_.back() = size32(communicators_[to_index(communicator)].size());
            communicators_[to_index(communicator)].push_back(i);
        }
        if (is_host_own(i)) host_own_.push_back(i);
    }
}

std::int64_t IssueOrder::index_of(const Span& span) const {
    const auto list = to_index(ranks_.actions.at(to_index(span.action)).segments);
    return action_starts_[to_index(span.action)] + segment_starts_[list].at(to_index(span.segment)) + span.instruction;
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
    const Call& call = at(index);
    std::vector<Predecessor> result;
    const auto add_before = [&](const auto& list, std::int32_t place) {
        result.push_back(place > 0 ? Predecessor{list[to_index(place - 1)], 0} : Predecessor{list.back(), 1});
    };
    add_before(on(call.stream), call.position - 1);
    const std::int32_t communicator = communicator_[to_index(index)];
    if (communicator >= 0) add_before(communicators_[to_index(communicator)], on_communicator_[to_index(index)]);
    for (std::int32_t e = call.first_event; e < call.first_event + call.event_count; ++e) {
        const Event& event = trace_.events[to_index(e)];
        if (event.count > 0) result.push_back({on(event.stream)[to_index(event.count - 1)], event.steps_back});
    }
    return result;
}

std::string IssueOrder::key_at(std::int64_t index) const {
    const Call& call = at(index);
    return key_of(program_, trace_.rank_class,
                  {.action = call.action, .segment = call.segment, .instruction = call.instruction});
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
