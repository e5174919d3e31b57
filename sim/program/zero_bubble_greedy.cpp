#include "sim/program/zero_bubble_greedy.h"

#include <algorithm>
#include <cmath>

#include "core/error.h"

namespace orrery::program {
namespace {

using Kind = ComputeTask::Kind;
constexpr std::int64_t kUnits = std::int64_t{1} << 20;  // the activations of one micro-batch before I

}  // namespace

TickTimes tick_times(const ScheduleShape& shape) {
    double longest = shape.transfer_time;
    for (std::int64_t r = 0; r < shape.ranks; ++r) {
        const StageTimes times = stage_times(shape, r);
        longest = std::max({longest, times.forward, times.input, times.weight});
    }
    constexpr double kTicks = 720720.0 * 720.0;
    const auto ticks = [&](double time) { return static_cast<std::int64_t>(std::llround(time / longest * kTicks)); };
    TickTimes result{.transfer = ticks(shape.transfer_time)};
    for (std::int64_t r = 0; r < shape.ranks; ++r) {
        const StageTimes times = stage_times(shape, r);
        PerKind<std::int64_t>& stage = result.stages.emplace_back();
        stage[Kind::forward] = ticks(times.forward);
        stage[Kind::backward_input] = ticks(times.input);
        stage[Kind::backward_weight] = ticks(times.weight);
    }
    return result;
}

std::int64_t TickTimes::work(std::size_t rank, std::int64_t micro_batches) const {
    std::int64_t sum = 0;
    for (const std::int64_t time : stages[rank]) sum += time;
    return micro_batches * sum;
}

GreedyOrder::GreedyOrder(const TickTimes& times, std::int64_t micro_batches, double activation_after_input)
    : times_(times),
      micro_batches_(micro_batches),
      first_input_(times.stages.size()),
      ranks_(times.stages.size()),
      kinds_(times.stages.size()) {
    const auto after_input = static_cast<std::int64_t>(std::ceil(activation_after_input * static_cast<double>(kUnits)));
    held_change_[Kind::forward] = kUnits;
    held_change_[Kind::backward_input] = after_input - kUnits;
    held_change_[Kind::backward_weight] = -after_input;
    const std::size_t p = times.stages.size();
    while (leaves_ < p) leaves_ *= 2;
    std::int64_t at = 0;
    for (std::size_t r = 0; r < p; ++r) at += times.stages[r][Kind::forward] + (r > 0 ? times.transfer : 0);
    for (std::size_t r = p; r-- > 0;) {
        first_input_[r] = at;
        at += times.stages[r][Kind::backward_input] + times.transfer;
    }
    for (const Kind kind : {Kind::forward, Kind::backward_input}) arrivals_[kind].resize(index_of(p, 0));
}

void GreedyOrder::reset() {
    cost_ = {0, 0};
    longest_bubble_ = 0;
    wake_tree_.assign(2 * leaves_, kNever);
    for (std::size_t r = 0; r < ranks_.size(); ++r) {
        ranks_[r] = {};
        ranks_[r].work_left = times_.work(r, micro_batches_);
        kinds_[r].clear();
        kinds_[r].reserve(static_cast<std::size_t>(3 * micro_batches_));
        set_wake(r, 0);
    }
}

/// wake_tree_ is a tournament tree: node i holds the minimum of its children 2i and 2i+1; leaf r is leaves_ + r.
void GreedyOrder::set_wake(std::size_t r, std::int64_t at) {
    ranks_[r].wake_at = at;
    std::size_t node = leaves_ + r;
    wake_tree_[node] = at;
    for (node /= 2; node > 0; node /= 2) {
        const std::int64_t earlier = std::min(wake_tree_[2 * node], wake_tree_[2 * node + 1]);
        if (wake_tree_[node] == earlier) break;
        wake_tree_[node] = earlier;
    }
}

bool GreedyOrder::build(const GreedyOptions& options, const ScheduleCost& bound) {
    options_ = options;
    limit_ = options.in_flight_limit * kUnits;
    reset();
    while (wake_tree_[1] != kNever) {
        std::size_t node = 1;
        while (node < leaves_) node = wake_tree_[2 * node] == wake_tree_[node] ? 2 * node : 2 * node + 1;
        const std::size_t r = node - leaves_;
        const std::int64_t now = ranks_[r].wake_at;
        const Choice choice = choose(r, now);
        if (choice) start(r, *choice, begin_of(*choice, r, now));
        const Rank& rank = ranks_[r];
        const bool begun = rank.begin != kNever;
        const ScheduleCost so_far{rank.free_at + rank.work_left,
                                  begun ? rank.free_at + rank.work_left - rank.begin : 0};
        cost_.makespan = std::max(cost_.makespan, so_far.makespan);
        cost_.longest_span = std::max(cost_.longest_span, so_far.longest_span);
        if (bound < cost_) return false;
    }
    for (const Rank& rank : ranks_) {
        ORRERY_CHECK(rank.started[Kind::backward_weight] == micro_batches_, "the greedy schedule is incomplete");
    }
    return true;
}

GreedyOrder::Arrival GreedyOrder::next(std::size_t r, Kind kind, std::int64_t now) const {
    const Rank& rank = ranks_[r];
    const bool forward = kind == Kind::forward;
    const std::int64_t micro_batch = rank.started[kind];
    if (micro_batch == (forward ? micro_batches_ : rank.started[Kind::forward])) return {};
    const std::size_t from = sender(r, kind);
    if (from >= ranks_.size()) return {0, true};  // a free rank has finished its own F
    if (ranks_[from].started[kind] > micro_batch) return {arrivals_[kind][index_of(r, micro_batch)], true};
    const std::int64_t at = std::max(now, ranks_[from].free_at) + times_.stages[from][kind] + times_.transfer;
    return {forward ? at : std::max(at, first_input_[r]), false};
}

/// A task begins when its input arrives, which may be a few ticks after `now` because of rounding.
std::int64_t GreedyOrder::begin_of(Kind kind, std::size_t r, std::int64_t now) const {
    return kind == Kind::backward_weight ? now : std::max(now, next(r, kind, now).at);
}

bool GreedyOrder::fills_gap(const Rank& rank, std::size_t r, std::int64_t gap) const {
    if (!has_weight(rank)) return false;
    if (gap + kTickSlack >= times_.stages[r][Kind::backward_weight]) return true;
    switch (options_.short_gap) {
        case GreedyOptions::ShortGap::never:
            return false;
        case GreedyOptions::ShortGap::on_longest_bubble:
            return rank.bubble + gap > longest_bubble_;
        case GreedyOptions::ShortGap::always:
            return true;
    }
    throw_bug(__FILE__, __LINE__, "ShortGap", "unknown rule");
}

GreedyOrder::Choice GreedyOrder::choose_before_first_input(const Rank& rank, std::size_t r, std::int64_t now,
                                                           const Arrival& forward, const Arrival& input) const {
    if (input.by(now)) return Kind::backward_input;
    if (forward.by(now)) {
        const bool delays = input.at != kNever && now + times_.stages[r][Kind::forward] > input.at + kTickSlack;
        if (!delays || options_.delay_first_input || rank.started[Kind::forward] == 0) return Kind::forward;
    }
    return {};
}

GreedyOrder::Choice GreedyOrder::choose(std::size_t r, std::int64_t now) {
    const Rank& rank = ranks_[r];
    Arrival forward = next(r, Kind::forward, now);
    const Arrival input = next(r, Kind::backward_input, now);
    const bool room = rank.held + kUnits <= limit_;
    Choice choice;
    if (rank.started[Kind::backward_input] == 0) {
        if (!room) forward = {};
        choice = choose_before_first_input(rank, r, now, forward, input);
    } else {
        const bool forward_turn = rank.last == Kind::backward_input;
        bool input_first = !forward_turn || options_.turn == GreedyOptions::Turn::prefer_input;
        if (forward_turn && options_.turn == GreedyOptions::Turn::skip_forward && r + 1 < ranks_.size()) {
            input_first = rank.started[Kind::forward] - ranks_[r + 1].started[Kind::forward] > 1;
        }
        const bool input_now = input.by(now), forward_now = room && forward.by(now);
        // An F out of turn must not delay the next I.
        const bool forward_fits =
            forward_now && (input.at == kNever || now + times_.stages[r][Kind::forward] <= input.at + kTickSlack);
        if (input_now && (input_first || !forward.by(now))) {
            choice = Kind::backward_input;
        } else if (forward_now && (forward_turn || forward_fits)) {
            choice = Kind::forward;
        } else if (!room && forward.by(now) && has_weight(rank) && held_change_[Kind::backward_weight] < 0) {
            choice = Kind::backward_weight;  // frees memory for the F
        } else if (input_now) {
            choice = Kind::backward_input;
        } else if (has_weight(rank)) {
            const std::int64_t gap_end = std::min(room ? forward.at : kNever, input.at);
            if (gap_end == kNever || fills_gap(rank, r, gap_end - now)) choice = Kind::backward_weight;
        }
        if (!room) forward = {};
    }
    if (!choice) {
        std::int64_t wake = kNever;
        if (forward.known && forward.at > now) wake = forward.at;
        if (input.known && input.at > now) wake = std::min(wake, input.at);
        set_wake(r, wake);
    }
    return choice;
}

/// An idle rank decides again when a neighbour begins a task, because it then knows more about the arrival of its
/// input.
void GreedyOrder::wake_idle(std::size_t r, std::int64_t now) {
    if (ranks_[r].free_at <= now && ranks_[r].wake_at > now) set_wake(r, now);
}

void GreedyOrder::start(std::size_t r, Kind kind, std::int64_t begin) {
    Rank& rank = ranks_[r];
    if (rank.begin == kNever) {
        rank.begin = begin;
    } else {
        rank.bubble += begin - rank.free_at;
        longest_bubble_ = std::max(longest_bubble_, rank.bubble);
    }
    const std::int64_t duration = times_.stages[r][kind];
    if (kind != Kind::backward_weight) {
        rank.last = kind;
        const std::size_t to = receiver(r, kind);
        if (to < ranks_.size()) {
            arrivals_[kind][index_of(to, rank.started[kind])] = begin + duration + times_.transfer;
        }
    }
    ++rank.started[kind];
    rank.held += held_change_[kind];
    kinds_[r].push_back(kind);
    rank.free_at = begin + duration;
    rank.work_left -= duration;
    set_wake(r, rank.started[Kind::backward_weight] == micro_batches_ ? kNever : rank.free_at);
    if (r > 0) wake_idle(r - 1, begin);
    if (r + 1 < ranks_.size()) wake_idle(r + 1, begin);
}

std::vector<std::vector<ComputeTask>> GreedyOrder::orders() const {
    std::vector<std::vector<ComputeTask>> result(kinds_.size());
    for (std::size_t r = 0; r < kinds_.size(); ++r) {
        PerKind<std::int32_t> listed{};
        result[r].reserve(kinds_[r].size());
        for (const Kind kind : kinds_[r]) result[r].push_back({.kind = kind, .micro_batch = listed[kind]++});
    }
    return result;
}

}  // namespace orrery::program
