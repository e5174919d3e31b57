// Work under way, the resources that it shares, and when it ends.
//
// An activity is work that draws on resources, so many units on each for every level of its rate. What is
// over-subscribed is divided max-min fairly (max_min.h). A level is 1 / kFullRate of full speed for work that is given
// by its duration, and what its owner says for other work. Only what a change touches is divided afresh. An activity
// may also hold units of a resource: these are its own from start to end, however slow it is, and the others divide the
// rest.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <span>
#include <utility>
#include <vector>

#include "sim/sharing/event_queue.h"
#include "sim/sharing/max_min.h"
#include "sim/sharing/tangents.h"

namespace orrery::sim {

class SharedWork {
  public:
    using Draw = MaxMin::Draw;
    using Draws = MaxMin::Draws;
    /// A resource that is held whole has this share of itself left for the others all the same, as a device still runs
    /// a kernel between others.
    static constexpr std::int64_t kLeastShare = 16;

    /// Throws what is to be said of an activity that takes more than 106 days at its rate.
    using TooLong = std::function<void(std::int32_t activity, std::int64_t rate)>;
    explicit SharedWork(TooLong too_long = {}) : too_long_(std::move(too_long)) {}

    /// The resource's number; they count from 0. With what is demanded in units at full speed, the capacity is units *
    /// kFullRate.
    std::int32_t add_resource(Wide capacity) { return sharing_.add_resource(capacity); }
    [[nodiscard]] Draws add_draws(std::span<const Draw> draws) { return sharing_.add_draws(draws); }
    /// The first one's number; they count from 0, one call's behind another's. Activities have the first slots of the
    /// queue, by their numbers.
    std::int32_t add_activities(std::int32_t count);
    /// The activity may be started with draws on these resources, however much. (What is held need not be said.) An
    /// activity's calls come one behind the other.
    void may_draw(std::int32_t activity, std::span<const Draw> draws) { sharing_.may_draw(activity, draws); }
    void may_draw(std::int32_t activity, Draws draws) { sharing_.may_draw(activity, draws); }
    void may_draw_no_more(std::int32_t activity) { sharing_.may_draw_no_more(activity); }
    /// So many slots of the queue behind those of the activities belong to others; no more resources and activities are
    /// added. Only from then on may units be held, and derivatives carried.
    void seal(std::int32_t more_slots);

    /// Before seal(): derivatives of all that runs are carried along too, in what must outlive this.
    void carry(Tangents& tangents) { tangents_ = &tangents; }
    [[nodiscard]] Tangents* tangents() { return tangents_; }

    [[nodiscard]] EventQueue& queue() { return queue_; }
    [[nodiscard]] const EventQueue& queue() const { return queue_; }
    [[nodiscard]] std::span<const Draw> list(Draws draws) const { return sharing_.list(draws); }
    [[nodiscard]] std::int32_t activity_count() const { return static_cast<std::int32_t>(activities_.size()); }

    /// Now. The queue has the activity's end as its event, which moves as others come and go; where it depends on who
    /// else comes and goes now, from settle() on.
    void start(std::int32_t activity, Draws draws, Draws held, std::int64_t duration_ps) {
        start(activity, draws, held, duration_ps, {});
    }
    void start(std::int32_t activity, Draws draws, std::int64_t duration_ps) {
        start(activity, draws, {}, duration_ps, {});
    }
    /// Where derivatives are carried: the cell of work with which a share of what is held grows; -1: none.
    struct Moves {
        std::int32_t held_cell = -1;
        double held_share = 0;
    };
    void start(std::int32_t activity, Draws draws, Draws held, std::int64_t duration_ps, const Moves& moves);
    /// Work that is not given by a duration.
    struct Work {
        Wide left = 0;  // ps * rate; above 0
        std::int64_t cap = kUnlimited;
        std::int64_t weight = 1;  // the rate is weight * level
        std::uint64_t order = 0;  // of its event, EventQueue::schedule
    };
    void start(std::int32_t activity, Draws draws, const Work& work);
    /// Of one that runs: what is left of it, in shares of its duration, takes another duration and other draws from now
    /// on.
    void change(std::int32_t activity, Draws draws, std::int64_t old_duration_ps, std::int64_t duration_ps);
    /// To be called when the end has come.
    void finish(std::int32_t activity);
    /// Units of the resource that something which is no activity holds from now on; gives them back where negative.
    void hold(std::int32_t resource, std::int64_t units);
    void set_capacity(std::int32_t resource, Wide capacity) { sharing_.set_capacity(resource, capacity); }
    [[nodiscard]] Wide capacity(std::int32_t resource) const { return sharing_.capacity(resource); }
    /// Of all that runs on the resource; what starts must keep it in 63 bits.
    [[nodiscard]] std::int64_t units(std::int32_t resource) const { return sharing_.units(resource); }
    /// When the rate of what runs changed last.
    [[nodiscard]] std::int64_t since_ps(std::int32_t activity) const {
        return activities_[static_cast<std::size_t>(activity)].since_ps;
    }
    /// To be called before each event is taken: whatever happened at one moment is divided afresh before time goes on,
    /// so that its order within the moment does not matter. Whether there is an event.
    [[nodiscard]] bool settle_moment() {
        if (sharing_.needs_settling() && (queue_.empty() || queue_.next_time() > queue_.now())) settle();
        return !queue_.empty();
    }
    void settle();
    /// How many activities have a rate of 0 since then.
    [[nodiscard]] std::int64_t standing_still() const { return standing_still_; }

  private:
    struct Activity {
        Wide left = 0;  // ps * rate
        std::int64_t since_ps = 0;
        std::int64_t rate = 0;  // since then; 0: it stands still, or its level is not settled yet
        std::int64_t weight = 1;
        std::uint64_t order = 0;
        Draws held;
    };
    /// What an activity has beside that where derivatives are carried.
    struct Carried {
        Moves moves;
        std::vector<Tangents::Term> slopes;  // Tangents::Run
    };
    /// Of a resource of which something may be held, in units at full speed.
    struct Held {
        std::int64_t capacity_units = 0;
        std::int64_t least_units = 0;  // left for the others
        std::int64_t held_units = 0;
        [[nodiscard]] std::int64_t free_units() const {
            return held_units == 0 ? capacity_units : std::max(capacity_units - held_units, least_units);
        }
    };

    void hold(Draws draws, std::int64_t sign);
    [[nodiscard]] Tangents::Run run_of(std::int32_t activity) const;
    void set_holder(std::int32_t activity, bool holds);
    void set_slopes(std::int32_t activity);
    [[nodiscard]] std::int32_t narrowest(std::int32_t activity) const;
    static void add_slope(std::vector<Tangents::Term>& slopes, std::int32_t cell, double slope);
    void work_off(Activity& activity);
    void schedule_end(std::int32_t activity);
    void await_settling(std::int32_t activity);
    void set_rate(std::int32_t activity);

    TooLong too_long_;
    MaxMin sharing_;
    EventQueue queue_;
    Tangents* tangents_ = nullptr;
    std::vector<Held> held_;  // by resource, once sealed
    std::vector<Activity> activities_;
    std::vector<std::int32_t> unsettled_;  // activities that started and have no rate yet
    std::int64_t standing_still_ = 0;
    std::vector<Carried> carried_;                    // by activity; empty without tangents
    std::vector<std::vector<std::int32_t>> holders_;  // by resource: activities that hold some of it; likewise
};

}  // namespace orrery::sim
