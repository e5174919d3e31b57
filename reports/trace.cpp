#include "reports/trace.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <iterator>
#include <limits>
#include <nlohmann/json.hpp>
#include <tuple>
#include <vector>

#include "core/error.h"
#include "reports/span_place.h"
#include "reports/summary.h"
#include "reports/time_part.h"

namespace orrery::reports {
namespace {

using program::Program;
using program::RankRecord;
using program::Span;
using program::Stream;

constexpr std::int64_t kPicosecondsPerNanosecond = 1000;

/// An estimate of an operator's time without a cost model, to find the heaviest one: the greater of memory traffic and
/// arithmetic, at 100 FLOPs per byte.
double rough_weight(const models::Operator& op) {
    return std::max(op.bytes_read + op.bytes_written, op.flops / 100);
}

std::string json_string(const std::string& text) {
    return nlohmann::json(text).dump();
}

/// Whole nanoseconds as decimal microseconds: 1234 -> "1.234". Times before the step's start are negative.
std::string microseconds(std::int64_t nanoseconds) {
    const std::int64_t size = nanoseconds < 0 ? -nanoseconds : nanoseconds;
    return fmt::format("{}{}.{:03}", nanoseconds < 0 ? "-" : "", size / 1000, size % 1000);
}

std::int64_t floor_nanoseconds(std::int64_t picoseconds) {
    const std::int64_t quotient = picoseconds / kPicosecondsPerNanosecond;
    return picoseconds % kPicosecondsPerNanosecond < 0 ? quotient - 1 : quotient;
}

/// Appends events, separated by commas.
class EventList {
  public:
    template <typename... Args>
    void add(fmt::format_string<Args...> format, Args&&... args) {
        text_ += first_ ? "\n" : ",\n";
        first_ = false;
        fmt::format_to(std::back_inserter(text_), format, std::forward<Args>(args)...);
    }
    [[nodiscard]] const std::string& text() const { return text_; }

  private:
    std::string text_;
    bool first_ = true;
};

struct Process {
    const RankRecord* rank = nullptr;
    program::Maker maker{};
};

void add_names(EventList& events, const Program& program, const Process& process, std::size_t pid,
               const program::PerStream<bool>& used) {
    const RankRecord& rank = *process.rank;
    std::string label = program.classes.at(rank.rank_class).name;
    if (rank.multiplicity > 1) label += fmt::format(", represents {} equal ranks", rank.multiplicity);
    events.add(R"({{"ph":"M","name":"process_name","pid":{},"args":{{"name":{}}}}})", pid,
               json_string(fmt::format("{} rank {}", name_of(process.maker), rank.rank)));
    events.add(R"({{"ph":"M","name":"process_labels","pid":{},"args":{{"labels":{}}}}})", pid, json_string(label));
    events.add(R"({{"ph":"M","name":"process_sort_index","pid":{},"args":{{"sort_index":{}}}}})", pid, pid);
    for (const Stream stream : program::kStreams) {
        if (!used[stream]) continue;
        const auto tid = static_cast<std::size_t>(stream);
        events.add(R"({{"ph":"M","name":"thread_name","pid":{},"tid":{},"args":{{"name":{}}}}})", pid, tid,
                   json_string(std::string(program::name_of(stream))));
        events.add(R"({{"ph":"M","name":"thread_sort_index","pid":{},"tid":{},"args":{{"sort_index":{}}}}})", pid, tid,
                   tid);
    }
}

void add_process(EventList& events, const Program& program, const PartTable& parts, const Process& process,
                 std::size_t pid) {
    const RankRecord& rank = *process.rank;
    program::PerStream<std::vector<const Span*>> lanes;
    program::PerStream<bool> used{};
    for (const Span& span : rank.spans) {
        const Stream lane = place_of(program, rank.rank_class, span).instruction.stream;
        lanes[lane].push_back(&span);
        used[lane] = true;
    }
    add_names(events, program, process, pid, used);
    for (const Stream stream : program::kStreams) {
        std::vector<const Span*>& lane = lanes[stream];
        std::stable_sort(lane.begin(), lane.end(),
                         [](const Span* a, const Span* b) { return a->ready_ps < b->ready_ps; });
        std::int64_t lane_end = std::numeric_limits<std::int64_t>::min();
        for (const Span* span : lane) {
            const SpanPlace place = place_of(program, rank.rank_class, *span);
            // With a measured clock, neighbours may overlap by a tick; viewers drop slices that overlap.
            const std::int64_t start = std::max(floor_nanoseconds(span->ready_ps), lane_end);
            const std::int64_t end = std::max(floor_nanoseconds(span->end_ps), start);
            lane_end = end;
            events.add(R"({{"ph":"X","name":{},"cat":{},"pid":{},"tid":{},"ts":{},"dur":{},)"
                       R"("args":{{"key":{},"ready_ps":{},"begin_ps":{},"end_ps":{}}}}})",
                       json_string(place.instruction.name),
                       json_string(fmt::format("{},{}", program::name_of(place.phase),
                                               name_of(parts.of_instruction(place.segment.body, span->instruction)))),
                       pid, static_cast<std::size_t>(stream), microseconds(start), microseconds(end - start),
                       json_string(program::key_of(program, rank.rank_class, *span)), span->ready_ps, span->begin_ps,
                       span->end_ps);
        }
    }
}

}  // namespace

std::string trace_json(const Program& program, std::span<const program::RunRecord* const> records) {
    std::vector<Process> processes;
    for (const program::RunRecord* record : records) {
        for (const RankRecord& rank : record->ranks) {
            if (!rank.spans.empty()) processes.push_back({&rank, record->maker});
        }
    }
    if (processes.empty()) {
        throw InputError("plan '" + program.plan->name + "': the record holds no spans, so there is nothing to trace");
    }
    std::stable_sort(processes.begin(), processes.end(), [](const Process& a, const Process& b) {
        return std::tuple(a.rank->rank, a.maker) < std::tuple(b.rank->rank, b.maker);
    });
    EventList events;
    const PartTable parts(program, rough_weight);
    for (std::size_t pid = 0; pid < processes.size(); ++pid) add_process(events, program, parts, processes[pid], pid);
    return fmt::format("{{\"displayTimeUnit\":\"ms\",\"otherData\":{{\"plan\":{}}},\"traceEvents\":[{}\n]}}\n",
                       json_string(program.plan->name), events.text());
}

std::string trace_json(const Program& program, const program::RunRecord& record) {
    const std::array<const program::RunRecord*, 1> records = {&record};
    return trace_json(program, records);
}

std::string trace_json(const Program& program, const program::RunRecord& predicted,
                       const program::RunRecord& measured) {
    const std::array<const program::RunRecord*, 2> records = {&predicted, &measured};
    return trace_json(program, records);
}

}  // namespace orrery::reports
