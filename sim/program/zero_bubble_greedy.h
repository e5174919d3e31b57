// Private to the zero-bubble search: builds one candidate. In order of time, every rank decides what to run next
// whenever it becomes free.
#pragma once

#include <compare>
#include <cstdint>
#include <limits>
#include <optional>
#include <vector>

#include "sim/program/schedule.h"

namespace orrery::program {

template <typename T>
using PerKind = EnumArray<ComputeTask::Kind, T, 4>;

/// Times in integer ticks, so that sums do not depend on the order of their terms.
struct TickTimes {
    std::vector<PerKind<std::int64_t>> stages;  // by rank: F, I and W
    std::int64_t transfer = 0;
    [[nodiscard]] std::int64_t work(std::size_t rank, std::int64_t micro_batches) const;
};
/// Scales the longest time to 720720 * 720 ticks, a multiple of 1..16, so that simple ratios stay exact.
[[nodiscard]] TickTimes tick_times(const ScheduleShape& shape);
/// Differences of up to this many ticks are rounding errors and do not influence a choice.
inline constexpr std::int64_t kTickSlack = 1000;

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

class GreedyOrder {
  public:
    GreedyOrder(const TickTimes& times, std::int64_t micro_batches, double activation_after_input);

    /// Builds the schedule. Returns false if it was abandoned because its cost will exceed `bound`.
    [[nodiscard]] bool build(const GreedyOptions& options, const ScheduleCost& bound);
    [[nodiscard]] const ScheduleCost& cost() const { return cost_; }
    [[nodiscard]] std::vector<std::vector<ComputeTask>> orders() const;

  private:
    using Kind = ComputeTask::Kind;
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

    void reset();
    [[nodiscard]] std::size_t index_of(std::size_t r, std::int64_t micro_batch) const {
        return r * static_cast<std::size_t>(micro_batches_) + static_cast<std::size_t>(micro_batch);
    }
    [[nodiscard]] Choice choose(std::size_t r, std::int64_t now);
    [[nodiscard]] Choice choose_before_first_input(const Rank& rank, std::size_t r, std::int64_t now,
                                                   const Arrival& forward, const Arrival& input) const;
    [[nodiscard]] static bool has_weight(const Rank& rank) {
        return rank.started[Kind::backward_weight] < rank.started[Kind::backward_input];
    }
    [[nodiscard]] bool fills_gap(const Rank& rank, std::size_t r, std::int64_t gap) const;
    /// The rank from which the input of the rank's F or I comes, or to which its output goes; no rank of the pipeline
    /// if there is none.
    [[nodiscard]] static std::size_t sender(std::size_t r, Kind kind) { return kind == Kind::forward ? r - 1 : r + 1; }
    [[nodiscard]] static std::size_t receiver(std::size_t r, Kind kind) {
        return kind == Kind::forward ? r + 1 : r - 1;
    }
    /// Of the rank's next F or I.
    [[nodiscard]] Arrival next(std::size_t r, Kind kind, std::int64_t now) const;
    [[nodiscard]] std::int64_t begin_of(Kind kind, std::size_t r, std::int64_t now) const;
    void start(std::size_t r, Kind kind, std::int64_t begin);
    void set_wake(std::size_t r, std::int64_t at);
    void wake_idle(std::size_t r, std::int64_t now);

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

}  // namespace orrery::program
