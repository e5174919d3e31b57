#include "sim/program/issue_order.h"

#include <algorithm>
#include <string>
#include <tuple>

#include "core/error.h"

namespace orrery::program {
namespace {

std::size_t to_index(std::int64_t index) {
    return static_cast<std::size_t>(index);
}

/// The last instruction of an ascending list before this one; if there is none, the list's last one of the previous
/// step.
template <typename List>
Predecessor last_before(const List& list, std::int64_t index) {
    const auto next = std::ranges::lower_bound(list, index);
    return next == list.begin() ? Predecessor{list.back(), 1} : Predecessor{*(next - 1), 0};
}

/// On an axis of pairs a rank sends to one neighbour and receives from another, which are two communicators.
std::pair<GroupAxis, bool> communicator_of(const Communication& communication) {
    return {communication.axis, communication.kind == CommKind::recv};
}

}  // namespace

IssueOrder::IssueOrder(const Program& program, ClassIndex rank_class)
    : program_(program), trace_(trace_of(program, rank_class)) {
    const bool host_runs_compute = program.plan->cluster.device.host_runs_compute;
    for (std::int64_t i = 0; i < size(); ++i) {
        const Communication& communication = instruction(i).communication;
        if (instruction(i).is_communication) communicators_[communicator_of(communication)].push_back(i);
        if (runs_on_host(at(i).stream, host_runs_compute)) host_own_.push_back(i);
    }
}

std::int64_t IssueOrder::index_of(const Span& span) const {
    const auto place = [](const auto& one) { return std::tuple(one.action, one.segment, one.instruction); };
    const auto found = std::ranges::lower_bound(trace_.calls, place(span), {}, place);
    ORRERY_CHECK(found != trace_.calls.end() && place(*found) == place(span), "a span is none of the class's");
    return found - trace_.calls.begin();
}

Predecessor IssueOrder::host_before(std::int64_t index) const {
    return host_own_.empty() ? Predecessor{-1, 0} : last_before(host_own_, index);
}

std::vector<Predecessor> IssueOrder::predecessors(std::int64_t index) const {
    std::vector<Predecessor> result{last_before(on(at(index).stream), index)};
    const Instruction& one = instruction(index);
    if (one.is_communication)
        result.push_back(last_before(communicators_.at(communicator_of(one.communication)), index));
    for (const Event& event : events_of(trace_, at(index))) {
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
