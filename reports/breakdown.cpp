#include "reports/breakdown.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <optional>

#include "core/error.h"
#include "core/units.h"
#include "sim/program/issue_order.h"

namespace orrery::reports {
namespace {

using program::IssueOrder;
using program::Predecessor;
using program::Span;
using program::Stream;

__extension__ using Wide = __int128;  // picoseconds of many ranks

std::size_t to_index(std::int64_t index) {
    return static_cast<std::size_t>(index);
}

/// How long a rank computed within an interval, if its step repeats before and after.
class ComputeClock {
  public:
    /// Spans of the compute stream, in order, none overlapping and all within one period.
    ComputeClock(const std::vector<Span>& computing, std::int64_t period) {
        std::int64_t before = 0;
        for (std::int64_t shift = -period; shift <= period; shift += std::max<std::int64_t>(1, period)) {
            for (const Span& span : computing) {
                intervals_.push_back({span.begin_ps + shift, span.end_ps + shift, before});
                before += span.end_ps - span.begin_ps;
            }
        }
    }
    [[nodiscard]] std::int64_t between(std::int64_t begin, std::int64_t end) const {
        return end > begin ? until(end) - until(begin) : 0;
    }

  private:
    struct Interval {
        std::int64_t begin = 0, end = 0, before = 0;
    };
    [[nodiscard]] std::int64_t until(std::int64_t time) const {
        const auto next = std::upper_bound(intervals_.begin(), intervals_.end(), time,
                                           [](std::int64_t t, const Interval& interval) { return t < interval.begin; });
        if (next == intervals_.begin()) return 0;
        const Interval& interval = *(next - 1);
        return interval.before + std::min(time, interval.end) - interval.begin;
    }
    std::vector<Interval> intervals_;
};

class RankBreakdown {
  public:
    RankBreakdown(const program::Program& program, const program::RankRecord& record, const IssueOrder& order,
                  const PartTable& table, std::int64_t period, bool exact)
        : order_(order), table_(table), spans_(spans_in_order(record, order)), period_(period), exact_(exact) {
        const auto& plan = *program.plan;
        const double launch_s = plan.cluster.device.launch_us.value * plan.implementation.host.launch_factor * 1e-6;
        launches_ = launch_s > 0;
        // If the host never waits, its launches limit the step only when they take all of it.
        launch_bound_ = launch_s * static_cast<double>(order.size()) * kPicosecondsPerSecond >=
                        static_cast<double>(period) * kNearly;
    }

    [[nodiscard]] Breakdown run() {
        walk_compute();
        add_overlap();
        return result_;
    }

  private:
    static constexpr double kNearly = 1 - 1e-9;

    /// What an instruction waited for last.
    struct Release {
        std::optional<Predecessor> by;    // empty: nothing in the record
        TimePart delay = TimePart::host;  // part of the time between the predecessor's end and the release
    };

    [[nodiscard]] const Span& span(std::int64_t index) const { return spans_[to_index(index)]; }
    [[nodiscard]] std::int64_t end_of(Predecessor by) const {
        return span(by.instruction).end_ps - by.steps_back * period_;
    }
    void walk_compute();
    void attribute(std::int64_t instruction, std::int64_t from, std::int64_t to);
    [[nodiscard]] Release release_of(std::int64_t instruction) const;
    void add_overlap();

    const IssueOrder& order_;
    const PartTable& table_;
    std::vector<Span> spans_;  // in issue order
    std::int64_t period_;
    bool exact_;  // simulated: an instruction is ready exactly when its last predecessor ends
    bool launches_ = false, launch_bound_ = false;
    Breakdown result_;
};

void RankBreakdown::walk_compute() {
    const std::vector<std::int32_t>& computing = order_.on(Stream::compute);
    if (computing.empty()) {
        result_.parts[TimePart::idle] = period_;
        return;
    }
    std::int64_t here = span(computing.back()).end_ps - period_;
    for (const std::int64_t index : computing) {
        const Span& one = span(index);
        if (one.begin_ps > here) {
            attribute(index, here, one.begin_ps);
            here = one.begin_ps;
        }
        if (one.end_ps <= here) continue;
        const program::Call& entry = order_.at(index);
        table_.add_compute(entry.body, entry.instruction, one.end_ps - here, result_.parts);
        here = one.end_ps;
    }
}

/// Attributes the idle time [from, to) of the compute stream, which `instruction` ended. Each iteration goes back to
/// the predecessor that released the current instruction, which was issued earlier.
void RankBreakdown::attribute(std::int64_t instruction, std::int64_t from, std::int64_t to) {
    std::int64_t shift = 0;  // from the instruction's step to this one
    const auto give = [&](TimePart part, std::int64_t since) {
        const std::int64_t given = to - std::clamp(since, from, to);
        result_.parts[part] += given;
        to -= given;
        return given;
    };
    while (to > from) {
        const Release release = release_of(instruction);
        if (!release.by) {
            give(release.delay, from);
            return;
        }
        instruction = release.by->instruction;
        shift -= release.by->steps_back * period_;
        const Span& cause = span(instruction);
        const program::Call& entry = order_.at(instruction);
        give(release.delay, cause.end_ps + shift);
        if (entry.stream == Stream::compute) {
            give(TimePart::idle, from);  // 0 unless a rank computes several things at once
        } else if (program::is_local(entry.stream)) {
            give(table_.of_instruction(entry.body, entry.instruction), cause.ready_ps + shift);
        } else {
            const TimePart part = table_.of_instruction(entry.body, entry.instruction);
            give(part, cause.begin_ps + shift);
            const bool neighbour = part == TimePart::pp;
            const std::int64_t waited = give(neighbour ? TimePart::bubble : part, cause.ready_ps + shift);
            if (!neighbour) result_.waiting[part] += waited;
        }
    }
}

RankBreakdown::Release RankBreakdown::release_of(std::int64_t instruction) const {
    const std::int64_t ready = span(instruction).ready_ps;
    std::optional<Predecessor> latest, latest_before;  // in this step, in earlier steps
    for (const Predecessor& by : order_.predecessors(instruction)) {
        std::optional<Predecessor>& best = by.steps_back == 0 ? latest : latest_before;
        if (!best || end_of(by) > end_of(*best)) best = by;
    }
    if (!exact_) {
        const bool earlier = !latest || (latest_before && end_of(*latest_before) > end_of(*latest));
        return earlier ? Release{latest_before, TimePart::idle} : Release{latest, TimePart::host};
    }
    if (latest && end_of(*latest) >= ready) return {latest};
    if (latest_before && end_of(*latest_before) >= ready) return {latest_before};
    // No other predecessor delayed it, so the host had not issued it yet.
    const Predecessor host = order_.host_before(instruction);
    if (host.instruction >= 0) return {host, launches_ ? TimePart::host : TimePart::idle};
    if (!launches_ || (latest_before && !launch_bound_)) return {std::nullopt, TimePart::idle};  // not periodic
    return {std::nullopt, TimePart::host};
}

void RankBreakdown::add_overlap() {
    std::vector<Span> computing;
    for (const std::int64_t index : order_.on(Stream::compute)) computing.push_back(span(index));
    const std::int64_t since = computing.empty() ? 0 : computing.back().end_ps - period_;
    std::erase_if(computing, [&](const Span& one) { return one.end_ps <= since; });
    for (Span& one : computing) one.begin_ps = std::max(one.begin_ps, since);
    const ComputeClock clock(computing, period_);
    for (std::int64_t index = 0; index < order_.size(); ++index) {
        const program::Call& entry = order_.at(index);
        if (entry.stream == Stream::compute || entry.stream == Stream::host) continue;
        const TimePart part = table_.of_instruction(entry.body, entry.instruction);
        const Span& one = span(index);
        result_.busy[part] += one.end_ps - one.begin_ps;
        result_.hidden[part] += clock.between(one.begin_ps, one.end_ps);
    }
}

/// Sums and mean over many ranks.
class Total {
  public:
    void add(const Breakdown& one, std::int64_t ranks) {
        ranks_ += ranks;
        for (const TimePart part : kTimeParts) {
            parts_[part] += static_cast<Wide>(one.parts[part]) * ranks;
            waiting_[part] += static_cast<Wide>(one.waiting[part]) * ranks;
            hidden_[part] += static_cast<Wide>(one.hidden[part]) * ranks;
            busy_[part] += static_cast<Wide>(one.busy[part]) * ranks;
        }
    }
    [[nodiscard]] std::int64_t ranks() const { return ranks_; }
    /// The parts are differences of rounded running sums, so that they still sum to the step time.
    [[nodiscard]] Breakdown mean() const {
        Breakdown mean;
        Wide sum = 0;
        for (const TimePart part : kTimeParts) {
            mean.parts[part] = divided(sum + parts_[part]) - divided(sum);
            sum += parts_[part];
            mean.waiting[part] = std::min(mean.parts[part], divided(waiting_[part]));
            mean.hidden[part] = divided(hidden_[part]);
            mean.busy[part] = divided(busy_[part]);
        }
        return mean;
    }

  private:
    [[nodiscard]] std::int64_t divided(Wide sum) const {
        ORRERY_CHECK(ranks_ > 0, "a mean over no ranks");
        return static_cast<std::int64_t>(sum / ranks_);
    }
    std::int64_t ranks_ = 0;
    PerTimePart<Wide> parts_{}, waiting_{}, hidden_{}, busy_{};
};

}  // namespace

std::int64_t Breakdown::step_ps() const {
    return std::accumulate(parts.begin(), parts.end(), std::int64_t{0});
}

StepBreakdown breakdown_of(const program::Program& program, const program::RunRecord& record, const PartTable& table) {
    if (record.ranks.empty()) throw InputError("plan '" + record.plan_name + "': a record without ranks");
    const std::int64_t period = std::llround(record.step_time_s * kPicosecondsPerSecond);
    const bool exact = record.maker == program::Maker::simulated;
    std::map<program::ClassIndex, Total> by_class;
    std::map<program::ClassIndex, IssueOrder> orders;
    Total all;
    for (const program::RankRecord& rank : record.ranks) {
        const IssueOrder& order = orders.try_emplace(rank.rank_class, program, rank.rank_class).first->second;
        const Breakdown one = RankBreakdown(program, rank, order, table, period, exact).run();
        ORRERY_CHECK(one.step_ps() == period, "the parts of rank " + std::to_string(rank.rank) + " sum to " +
                                                  std::to_string(one.step_ps()) + " ps of " + std::to_string(period));
        by_class[rank.rank_class].add(one, rank.multiplicity);
        all.add(one, rank.multiplicity);
    }
    StepBreakdown result{.mean = all.mean()};
    for (const auto& [rank_class, total] : by_class) {
        const std::string& name = program.classes.at(rank_class).name;
        result.classes.push_back({rank_class, name, total.ranks(), total.mean()});
    }
    return result;
}

}  // namespace orrery::reports
