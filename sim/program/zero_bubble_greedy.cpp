#include "sim/program/zero_bubble_greedy.h"

#include <algorithm>
#include <cmath>

#include "core/error.h"

namespace orrery::program {
namespace {

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
        result.stages.push_back({ticks(times.forward), ticks(times.input), ticks(times.weight)});
    }
    return result;
}

GreedyOrder::GreedyOrder(const TickTimes& times, std::int64_t micro_batches, double activation_after_input)
    : times_(times),
      micro_batches_(micro_batches),
      after_input_(static_cast<std::int64_t>(std::ceil(activation_after_input * static_cast<double>(kUnits)))),
      first_input_(times.stages.size()),
      ranks_(times.stages.size()),
      kinds_(times.stages.size()) {
    const std::size_t p = times.stages.size();
    while (leaves_ < p) leaves_ *= 2;
    std::int64_t at = 0;
    for (std::size_t r = 0; r < p; ++r) at += times.stages[r].forward + (r > 0 ? times.transfer : 0);
    for (std::size_t r = p; r-- > 0;) {
        first_input_[r] = at;
        at += times.stages[r].input + times.transfer;
    }
    const std::size_t pairs = p * static_cast<std::size_t>(micro_batches);
    forward_arrival_.resize(pairs);
    input_arrival_.resize(pairs);
}

void GreedyOrder::reset() {
    cost_ = {0, 0};
    longest_bubble_ = 0;
    wake_tree_.assign(2 * leaves_, kNever);
    for (std::size_t r = 0; r < ranks_.size(); ++r) {
        const TickTimes::Stage& stage = times_.stages[r];
        ranks_[r] = {};
        ranks_[r].work_left = micro_batches_ * (stage.forward + stage.input + stage.weight);
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
        if (choice != Choice::wait) start(r, choice, begin_of(choice, r, now));
        const Rank& rank = ranks_[r];
        const bool begun = rank.begin != kNever;
        const ScheduleCost so_far{rank.free_at + rank.work_left,
                                  begun ? rank.free_at + rank.work_left - rank.begin : 0};
        cost_.makespan = std::max(cost_.makespan, so_far.makespan);
        cost_.longest_span = std::max(cost_.longest_span, so_far.longest_span);
        if (bound < cost_) return false;
    }
    for (const Rank& rank : ranks_) ORRERY_CHECK(rank.weights == micro_batches_, "the greedy schedule is incomplete");
    return true;
}

GreedyOrder::Arrival GreedyOrder::next_forward(std::size_t r, std::int64_t now) const {
    const Rank& rank = ranks_[r];
    if (rank.forwards == micro_batches_) return {};
    if (r == 0) return {0, true};
    const Rank& previous = ranks_[r - 1];
    if (previous.forwards > rank.forwards) {
        return {
            forward_arrival_[r * static_cast<std::size_t>(micro_batches_) + static_cast<std::size_t>(rank.forwards)],
            true};
    }
    return {std::max(now, previous.free_at) + times_.stages[r - 1].forward + times_.transfer, false};
}

GreedyOrder::Arrival GreedyOrder::next_input(std::size_t r, std::int64_t now) const {
    const Rank& rank = ranks_[r];
    if (rank.inputs == rank.forwards) return {};
    if (r + 1 == ranks_.size()) return {0, true};  // a free rank has finished its own F
    const Rank& next = ranks_[r + 1];
    if (next.inputs > rank.inputs) {
        return {input_arrival_[r * static_cast<std::size_t>(micro_batches_) + static_cast<std::size_t>(rank.inputs)],
                true};
    }
    const std::int64_t at = std::max(now, next.free_at) + times_.stages[r + 1].input + times_.transfer;
    return {std::max(at, first_input_[r]), false};
}

/// A task begins when its input arrives, which may be a few ticks after `now` because of rounding.
std::int64_t GreedyOrder::begin_of(Choice choice, std::size_t r, std::int64_t now) const {
    if (choice == Choice::forward) return std::max(now, next_forward(r, now).at);
    if (choice == Choice::input) return std::max(now, next_input(r, now).at);
    return now;
}

bool GreedyOrder::fills_gap(const Rank& rank, std::size_t r, std::int64_t gap) const {
    if (rank.weights == rank.inputs) return false;
    if (gap + kTickSlack >= times_.stages[r].weight) return true;
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
    if (input.by(now)) return Choice::input;
    if (forward.by(now)) {
        const bool delays = input.at != kNever && now + times_.stages[r].forward > input.at + kTickSlack;
        if (!delays || options_.delay_first_input || rank.forwards == 0) return Choice::forward;
    }
    return Choice::wait;
}

GreedyOrder::Choice GreedyOrder::choose(std::size_t r, std::int64_t now) {
    const Rank& rank = ranks_[r];
    Arrival forward = next_forward(r, now);
    const Arrival input = next_input(r, now);
    const bool has_weight = rank.weights < rank.inputs;
    const bool room = rank.held + kUnits <= limit_;
    Choice choice = Choice::wait;
    if (rank.inputs == 0) {
        if (!room) forward = {};
        choice = choose_before_first_input(rank, r, now, forward, input);
    } else {
        const bool forward_turn = rank.last == Kind::backward_input;
        bool input_first = !forward_turn || options_.turn == GreedyOptions::Turn::prefer_input;
        if (forward_turn && options_.turn == GreedyOptions::Turn::skip_forward && r + 1 < ranks_.size()) {
            input_first = rank.forwards - ranks_[r + 1].forwards > 1;
        }
        const bool input_now = input.by(now), forward_now = room && forward.by(now);
        // An F out of turn must not delay the next I.
        const bool forward_fits =
            forward_now && (input.at == kNever || now + times_.stages[r].forward <= input.at + kTickSlack);
        if (input_now && (input_first || !forward.by(now))) {
            choice = Choice::input;
        } else if (forward_now && (forward_turn || forward_fits)) {
            choice = Choice::forward;
        } else if (!room && forward.by(now) && has_weight && after_input_ > 0) {
            choice = Choice::weight;  // frees memory for the F
        } else if (input_now) {
            choice = Choice::input;
        } else if (has_weight) {
            const std::int64_t next = std::min(room ? forward.at : kNever, input.at);
            if (next == kNever || fills_gap(rank, r, next - now)) choice = Choice::weight;
        }
        if (!room) forward = {};
    }
    if (choice == Choice::wait) {
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

void GreedyOrder::start(std::size_t r, Choice choice, std::int64_t begin) {
    Rank& rank = ranks_[r];
    const TickTimes::Stage& stage = times_.stages[r];
    const std::size_t p = ranks_.size();
    const auto m = static_cast<std::size_t>(micro_batches_);
    if (rank.begin == kNever) {
        rank.begin = begin;
    } else {
        rank.bubble += begin - rank.free_at;
        longest_bubble_ = std::max(longest_bubble_, rank.bubble);
    }
    std::int64_t duration = 0;
    switch (choice) {
        case Choice::forward: {
            duration = stage.forward;
            rank.held += kUnits;
            rank.last = Kind::forward;
            const auto micro_batch = static_cast<std::size_t>(rank.forwards++);
            if (r + 1 < p) forward_arrival_[(r + 1) * m + micro_batch] = begin + duration + times_.transfer;
            break;
        }
        case Choice::input: {
            duration = stage.input;
            rank.held -= kUnits - after_input_;
            rank.last = Kind::backward_input;
            const auto micro_batch = static_cast<std::size_t>(rank.inputs++);
            if (r > 0) input_arrival_[(r - 1) * m + micro_batch] = begin + duration + times_.transfer;
            break;
        }
        case Choice::weight:
            duration = stage.weight;
            rank.held -= after_input_;
            ++rank.weights;
            break;
        case Choice::wait:
            throw_bug(__FILE__, __LINE__, "Choice", "waiting is not a task");
    }
    kinds_[r].push_back(choice == Choice::forward ? Kind::forward
                        : choice == Choice::input ? Kind::backward_input
                                                  : Kind::backward_weight);
    rank.free_at = begin + duration;
    rank.work_left -= duration;
    set_wake(r, rank.weights == micro_batches_ ? kNever : rank.free_at);
    if (r > 0) wake_idle(r - 1, begin);
    if (r + 1 < p) wake_idle(r + 1, begin);
}

std::vector<std::vector<ComputeTask>> GreedyOrder::orders() const {
    std::vector<std::vector<ComputeTask>> result(kinds_.size());
    for (std::size_t r = 0; r < kinds_.size(); ++r) {
        std::int32_t forwards = 0, inputs = 0, weights = 0;
        result[r].reserve(kinds_[r].size());
        for (const Kind kind : kinds_[r]) {
            std::int32_t& next = kind == Kind::forward ? forwards : kind == Kind::backward_input ? inputs : weights;
            result[r].push_back({.kind = kind, .micro_batch = next++});
        }
    }
    return result;
}

}  // namespace orrery::program
