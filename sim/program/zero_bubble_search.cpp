#include "sim/program/zero_bubble_search.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "core/error.h"
#include "sim/program/schedule_orders.h"
#include "sim/program/schedule_timing.h"
#include "sim/program/zero_bubble_greedy.h"

namespace orrery::program {
namespace {

using Orders = std::vector<std::vector<ComputeTask>>;
constexpr double kRounding = 1e-9;  // rounding error of sums of activation_after_input, in micro-batches

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
            using Kind = ComputeTask::Kind;
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
