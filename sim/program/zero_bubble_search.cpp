#include "sim/program/zero_bubble_search.h"

#include <algorithm>
#include <cmath>
#include <compare>
#include <limits>
#include <optional>
#include <utility>

#include "core/error.h"
#include "sim/program/schedule_orders.h"
#include "sim/program/task_timeline.h"

namespace orrery::program {
namespace {

using Kind = ComputeTask::Kind;
using Orders = std::vector<std::vector<ComputeTask>>;
constexpr double kRounding = 1e-9;  // rounding error of sums of activation_after_input, in micro-batches

template <typename T>
using PerKind = EnumArray<ComputeTask::Kind, T, 4>;

/// Times in integer ticks, so that sums do not depend on the order of their terms.
struct TickTimes {
    std::vector<PerKind<std::int64_t>> stages;  // by rank: F, I and W
    std::int64_t transfer = 0;
    [[nodiscard]] std::int64_t work(std::size_t rank, std::int64_t micro_batches) const {
        std::int64_t sum = 0;
        for (const std::int64_t time : stages[rank]) sum += time;
        return micro_batches * sum;
    }
};
/// Scales the longest time to 720720 * 720 ticks, a multiple of 1..16, so that simple ratios stay exact.
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

/// Differences of up to this many ticks are rounding errors and do not influence a choice.
constexpr std::int64_t kTickSlack = 1000;

constexpr std::int64_t kUnits = std::int64_t{1} << 20;  // the activations of one micro-batch before I

struct ScheduleCost {
    std::int64_t makespan = std::numeric_limits<std::int64_t>::max();
    std::int64_t longest_span = std::numeric_limits<std::int64_t>::max();
    auto operator<=>(const ScheduleCost&) const = default;
};

struct GreedyOptions {
    /// Before the first I, run an F even if this delays the I.
    bool delay_first_input = false;
    enum class Turn : std::uint8_t {
        alternate,     // F and I alternate
        skip_forward,  // a ready I precedes an F while the next rank is more than one F behind
        prefer_input,  // an I runs whenever it is ready
    } turn = Turn::alternate;
    /// A W fills a gap that is at least as long as the W. This option decides whether it also fills a shorter gap.
    enum class ShortGap : std::uint8_t { never, on_longest_bubble, always } short_gap = ShortGap::on_longest_bubble;
    std::int64_t in_flight_limit = 1;  // micro-batches
};

/// Builds one candidate. In order of time, every rank decides what to run next whenever it becomes free.
class GreedyOrder {
  public:
    GreedyOrder(const TickTimes& times, std::int64_t micro_batches, double activation_after_input)
        : times_(times),
          micro_batches_(micro_batches),
          first_input_(times.stages.size()),
          ranks_(times.stages.size()),
          kinds_(times.stages.size()) {
        const auto after_input =
            static_cast<std::int64_t>(std::ceil(activation_after_input * static_cast<double>(kUnits)));
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

    /// Builds the schedule. Returns false if it was abandoned because its cost will exceed `bound`.
    [[nodiscard]] bool build(const GreedyOptions& options, const ScheduleCost& bound) {
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
            const std::int64_t earliest_end = rank.free_at + rank.work_left;
            cost_.makespan = std::max(cost_.makespan, earliest_end);
            if (rank.begin != kNever) cost_.longest_span = std::max(cost_.longest_span, earliest_end - rank.begin);
            if (bound < cost_) return false;
        }
        for (const Rank& rank : ranks_) {
            ORRERY_CHECK(rank.started[Kind::backward_weight] == micro_batches_, "the greedy schedule is incomplete");
        }
        return true;
    }

    [[nodiscard]] const ScheduleCost& cost() const { return cost_; }
    [[nodiscard]] Orders orders() const {
        Orders result(kinds_.size());
        for (std::size_t r = 0; r < kinds_.size(); ++r) {
            PerKind<std::int32_t> listed{};
            result[r].reserve(kinds_[r].size());
            for (const Kind kind : kinds_[r]) result[r].push_back({.kind = kind, .micro_batch = listed[kind]++});
        }
        return result;
    }

  private:
    static constexpr std::int64_t kNever = std::numeric_limits<std::int64_t>::max();

    struct Rank {
        PerKind<std::int64_t> started{};  // tasks
        std::int64_t begin = kNever, free_at = 0;
        std::int64_t bubble = 0;  // idle time since the first task
        std::int64_t held = 0;    // activations, in kUnits
        std::int64_t work_left = 0;
        std::int64_t wake_at = kNever;
        Kind last = Kind::forward;
    };
    /// When the input of a task arrives. `known`: it has been sent and arrives at `at`; otherwise `at` is a lower
    /// bound.
    struct Arrival {
        std::int64_t at = kNever;
        bool known = false;
        [[nodiscard]] bool by(std::int64_t now) const { return known && at <= now + kTickSlack; }
    };
    using Choice = std::optional<Kind>;  // F, I or W; none: the rank waits

    void reset() {
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

    [[nodiscard]] std::size_t index_of(std::size_t r, std::int64_t micro_batch) const {
        return r * static_cast<std::size_t>(micro_batches_) + static_cast<std::size_t>(micro_batch);
    }

    [[nodiscard]] Choice choose(std::size_t r, std::int64_t now) {
        const Rank& rank = ranks_[r];
        Arrival forward = next(r, Kind::forward, now);
        const Arrival input = next(r, Kind::backward_input, now);
        const bool room = rank.held + kUnits <= limit_;
        Choice choice;
        if (rank.started[Kind::backward_input] == 0) {
            if (!room) forward = {};
            // An F may have to wait for the first I, unless it is the rank's first task.
            const bool delays = input.at != kNever && now + times_.stages[r][Kind::forward] > input.at + kTickSlack;
            const bool may_delay = options_.delay_first_input || rank.started[Kind::forward] == 0;
            if (input.by(now)) {
                choice = Kind::backward_input;
            } else if (forward.by(now) && (!delays || may_delay)) {
                choice = Kind::forward;
            }
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

    [[nodiscard]] static bool has_weight(const Rank& rank) {
        return rank.started[Kind::backward_weight] < rank.started[Kind::backward_input];
    }

    /// Whether the rank's next W fills the gap.
    [[nodiscard]] bool fills_gap(const Rank& rank, std::size_t r, std::int64_t gap) const {
        if (gap + kTickSlack >= times_.stages[r][Kind::backward_weight]) return true;
        if (options_.short_gap == GreedyOptions::ShortGap::always) return true;
        return options_.short_gap == GreedyOptions::ShortGap::on_longest_bubble && rank.bubble + gap > longest_bubble_;
    }

    /// The rank from which the input of the rank's F or I comes, or to which its output goes; no rank of the pipeline
    /// if there is none.
    [[nodiscard]] static std::size_t sender(std::size_t r, Kind kind) { return kind == Kind::forward ? r - 1 : r + 1; }
    [[nodiscard]] static std::size_t receiver(std::size_t r, Kind kind) {
        return kind == Kind::forward ? r + 1 : r - 1;
    }

    /// Of the rank's next F or I.
    [[nodiscard]] Arrival next(std::size_t r, Kind kind, std::int64_t now) const {
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
    [[nodiscard]] std::int64_t begin_of(Kind kind, std::size_t r, std::int64_t now) const {
        return kind == Kind::backward_weight ? now : std::max(now, next(r, kind, now).at);
    }

    void start(std::size_t r, Kind kind, std::int64_t begin) {
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

    /// wake_tree_ is a tournament tree: node i holds the minimum of its children 2i and 2i+1; leaf r is leaves_ + r.
    void set_wake(std::size_t r, std::int64_t at) {
        ranks_[r].wake_at = at;
        std::size_t node = leaves_ + r;
        wake_tree_[node] = at;
        for (node /= 2; node > 0; node /= 2) {
            const std::int64_t earlier = std::min(wake_tree_[2 * node], wake_tree_[2 * node + 1]);
            if (wake_tree_[node] == earlier) break;
            wake_tree_[node] = earlier;
        }
    }

    /// An idle rank decides again when a neighbour begins a task, because it then knows more about the arrival of its
    /// input.
    void wake_idle(std::size_t r, std::int64_t now) {
        if (ranks_[r].free_at <= now && ranks_[r].wake_at > now) set_wake(r, now);
    }

    const TickTimes& times_;
    std::int64_t micro_batches_;
    PerKind<std::int64_t> held_change_{};  // Rank::held after a task less before it
    GreedyOptions options_;
    std::int64_t limit_ = 0;  // for Rank::held
    std::int64_t longest_bubble_ = 0;
    std::vector<std::int64_t> first_input_;  // earliest possible first I of each rank
    std::vector<Rank> ranks_;
    std::vector<std::vector<Kind>> kinds_;         // the tasks of each rank
    PerKind<std::vector<std::int64_t>> arrivals_;  // of the inputs of F and I, by index_of
    std::vector<std::int64_t> wake_tree_;
    std::size_t leaves_ = 1;
    ScheduleCost cost_;
};

class Search {
  public:
    explicit Search(const ScheduleShape& shape)
        : times_(tick_times(shape)),
          greedy_(times_, shape.micro_batches, shape.activation_after_input),
          in_ticks_{.schedule = Schedule::zb_h1,
                    .ranks = shape.ranks,
                    .micro_batches = shape.micro_batches,
                    .transfer_time = static_cast<double>(times_.transfer),
                    .activation_after_input = shape.activation_after_input},
          least_{.makespan = 0, .longest_span = 0} {
        std::int64_t first = 0;  // earliest begin of the rank's first F
        for (std::size_t r = 0; r < times_.stages.size(); ++r) {
            const auto ticks = [&](ComputeTask::Kind kind) { return static_cast<double>(times_.stages[r][kind]); };
            in_ticks_.times.push_back(
                {ticks(Kind::forward), ticks(Kind::backward_input), ticks(Kind::backward_weight)});
            const std::int64_t work = times_.work(r, shape.micro_batches);
            least_.longest_span = std::max(least_.longest_span, work);
            least_.makespan = std::max(least_.makespan, first + work);
            first += times_.stages[r][Kind::forward] + times_.transfer;
        }
    }

    void try_all(std::int64_t limit) {
        try_fixed(limit, 1, 0);  // 1F1B with a split backward
        try_fixed(limit, 1, 1);  // ZB-H1
        try_fixed(limit, 2, 2);  // ZB-H2
        using Turn = GreedyOptions::Turn;
        using ShortGap = GreedyOptions::ShortGap;
        for (const ShortGap short_gap : {ShortGap::on_longest_bubble, ShortGap::always, ShortGap::never}) {
            for (const Turn turn : {Turn::alternate, Turn::skip_forward, Turn::prefer_input}) {
                for (const bool delay_first_input : {false, true}) {
                    try_greedy({.delay_first_input = delay_first_input,
                                .turn = turn,
                                .short_gap = short_gap,
                                .in_flight_limit = limit});
                }
            }
        }
    }
    [[nodiscard]] Orders best() && {
        ORRERY_CHECK(!best_.empty(), "no zero-bubble schedule under the limit");
        return std::move(best_);
    }

  private:
    [[nodiscard]] bool cannot_improve() const { return !(least_ < best_cost_); }

    /// The zero_bubble_order with warm_up * (p-1-r) forwards at the start and a W after each I from number delay * r
    /// on.
    void try_fixed(std::int64_t limit, std::int64_t warm_up, std::int64_t delay) {
        if (cannot_improve()) return;
        Orders orders;
        for (std::int64_t r = 0; r < in_ticks_.ranks; ++r) {
            orders.push_back(
                zero_bubble_order(in_ticks_.micro_batches, warm_up * (in_ticks_.ranks - 1 - r), delay * r));
        }
        const ScheduleTiming timing = time_orders(in_ticks_, orders);
        ORRERY_CHECK(timing.stuck.empty(), timing.stuck);
        for (const RankTiming& rank : timing.ranks) {
            if (rank.peak_in_flight > static_cast<double>(limit) + kRounding) return;
        }
        offer({std::llround(timing.makespan), std::llround(timing.longest_span())}, [&] { return std::move(orders); });
    }

    void try_greedy(const GreedyOptions& options) {
        if (cannot_improve() || !greedy_.build(options, best_cost_)) return;
        offer(greedy_.cost(), [&] { return greedy_.orders(); });
    }

    template <typename MakeOrders>
    void offer(const ScheduleCost& cost, const MakeOrders& make_orders) {
        if (!(cost < best_cost_)) return;  // among equal candidates the first is kept
        best_cost_ = cost;
        best_ = make_orders();
    }

    TickTimes times_;
    GreedyOrder greedy_;
    ScheduleShape in_ticks_;
    ScheduleCost least_;  // lower bound for every schedule
    ScheduleCost best_cost_;
    Orders best_;
};

}  // namespace

std::vector<std::vector<ComputeTask>> search_zero_bubble(const ScheduleShape& shape, std::int64_t in_flight_limit) {
    ORRERY_CHECK(in_flight_limit >= shape.ranks, "the limit is below the activations of 1F1B");
    Search search(shape);
    search.try_all(in_flight_limit);
    if (in_flight_limit / 2 >= shape.ranks) search.try_all(in_flight_limit / 2);
    return std::move(search).best();
}

}  // namespace orrery::program
