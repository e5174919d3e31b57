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

}  // namespace

IssueIndex::IssueIndex(const Program& program, ClassIndex rank_class) : program_(program), rank_class_(rank_class) {
    const RankClass& ranks = program.classes.at(rank_class);
    IndexedVector<SegmentListId, std::int64_t> sizes;
    for (const SegmentList& list : ranks.segment_lists) {
        auto& starts = segment_starts_.emplace_back();
        std::int64_t& size = sizes.emplace_back(0);
        for (const Segment& segment : list) {
            starts.push_back(size);
            size += std::ssize(program.bodies[segment.body].instructions);
        }
    }
    for (const Action& action : ranks.actions) {
        action_starts_.push_back(size_);
        size_ += sizes[action.segments];
    }
}

std::int64_t IssueIndex::index_of(const Span& span) const {
    const SegmentListId list = program_.classes[rank_class_].actions.at(span.action).segments;
    return action_starts_[span.action] + segment_starts_[list].at(span.segment) + span.instruction.value();
}

std::string IssueIndex::key_at(std::int64_t index) const {
    const auto last_up_to = [](const auto& starts, std::int64_t value) {
        return starts.next_index() - static_cast<std::int32_t>(starts.end() - std::ranges::upper_bound(starts, value)) -
               1;
    };
    Span span;
    span.action = last_up_to(action_starts_, index);
    const auto& segments = segment_starts_[program_.classes[rank_class_].actions[span.action].segments];
    const std::int64_t in_list = index - action_starts_[span.action];
    span.segment = last_up_to(segments, in_list);
    span.instruction = InstructionIndex::of(in_list - segments[span.segment]);
    return key_of(program_, rank_class_, span);
}

IssueOrder::IssueOrder(const Program& program, ClassIndex rank_class)
    : IssueIndex(program, rank_class),
      host_runs_compute_(program.plan->cluster.device.host_runs_compute),
      trace_(trace_of(program, rank_class)) {
    for (std::int64_t i = 0; i < size(); ++i) {
        on_communicator_.push_back(-1);
        if (instruction(i).is_communication) {
            const Communication& communication = instruction(i).communication;
            auto& list = (communication.kind == CommKind::recv ? receivers_ : communicators_)[communication.axis];
            on_communicator_.back() = size32(list.size());
            list.push_back(i);
        }
        if (is_host_own(i)) host_own_.push_back(i);
    }
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
    if (instruction(index).is_communication) {
        const Communication& communication = instruction(index).communication;
        const auto& lists = communication.kind == CommKind::recv ? receivers_ : communicators_;
        add_before(lists[communication.axis], on_communicator_[to_index(index)]);
    }
    for (const Event& event : events_of(trace_, call)) {
        if (event.count > 0) result.push_back({on(event.stream)[to_index(event.count - 1)], event.steps_back});
    }
    return result;
}

std::vector<Span> spans_in_order(const RankRecord& record, const IssueIndex& order) {
    const auto fault = [&](const std::string& what) {
        throw InputError("rank " + std::to_string(record.rank) + ": the record " + what +
                         "; allowed: a record with every instruction once");
    };
    std::vector<Span> spans(to_index(order.size()));
    std::vector<bool> seen(spans.size(), false);
    for (const Span& span : record.spans) {
        const std::int64_t index = order.index_of(span);
        if (seen.at(to_index(index))) fault("has " + order.key_at(index) + " twice");
        seen[to_index(index)] = true;
        spans[to_index(index)] = span;
    }
    const auto missing = std::find(seen.begin(), seen.end(), false);
    if (missing != seen.end()) {
        fault("has " + std::to_string(record.spans.size()) + " of " + std::to_string(order.size()) +
              " instructions and lacks " + order.key_at(missing - seen.begin()));
    }
    return spans;
}

}  // namespace orrery::program
