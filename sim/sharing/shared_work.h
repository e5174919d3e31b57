// Running work that shares resources, and when it ends.
//
// An activity is work that draws on resources, a number of units of each for every level of its rate. Over-subscribed
// resources are shared max-min fairly (max_min.h), and a change updates only the affected activities. For work given by
// a duration a level is 1 / kFullRate of full speed; for other work its owner defines the level. An activity may also
// hold units of a resource: it has them exclusively from start to end, whatever its rate, and the others share the
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
    /// If all of a resource is held, 1 / kLeastShare of it remains for the others, as a device still runs a kernel
    /// between other kernels.
    static constexpr std::int64_t kLeastShare = 16;

    /// Called for an activity that would take more than 106 days at its rate; throws the owner's error.
    using TooLong = std::function<void(std::int32_t activity, std::int64_t rate)>;
    explicit SharedWork(TooLong too_long = {}) : too_long_(std::move(too_long)) {}

    /// Adds a resource and returns its index, counted from 0. If draws are in units at full speed, `capacity` must be
    /// the resource's units times kFullRate.
    std::int32_t add_resource(Wide capacity) { return sharing_.add_resource(capacity); }
    void reserve_resources(std::size_t count) { sharing_.reserve_resources(count); }
    [[nodiscard]] Draws add_draws(std::span<const Draw> draws) { return sharing_.add_draws(draws); }
    /// Adds activities and returns the index of the first; indices are consecutive, counted from 0. The event of
    /// activity i has slot i of the queue.
    std::int32_t add_activities(std::int32_t count);
    /// See MaxMin::may_draw. Held resources need not be listed.
    void may_draw(std::int32_t activity, std::span<const Draw> draws) { sharing_.may_draw(activity, draws); }
    void may_draw(std::int32_t activity, Draws draws) { sharing_.may_draw(activity, draws); }
    void may_draw_no_more(std::int32_t activity) { sharing_.may_draw_no_more(activity); }
    /// Ends the adding of resources and activities, and reserves `more_slots` slots of the queue after those of the
    /// activities. Holding units and carrying derivatives need a sealed object.
    void seal(std::int32_t more_slots);

    /// Before seal(): also carry derivatives of all activities, in `tangents`, which must outlive this object.
    void carry(Tangents& tangents) { tangents_ = &tangents; }
    [[nodiscard]] Tangents* tangents() { return tangents_; }

    [[nodiscard]] EventQueue& queue() { return queue_; }
    [[nodiscard]] const EventQueue& queue() const { return queue_; }
    [[nodiscard]] std::span<const Draw> list(Draws draws) const { return sharing_.list(draws); }
    [[nodiscard]] std::int32_t activity_count() const { return static_cast<std::int32_t>(activities_.size()); }

    /// Starts the activity now. The queue holds the activity's end as its event, which moves as others start and end.
    /// If the end depends on other changes at this moment, settle() schedules it.
    void start(std::int32_t activity, Draws draws, Draws held, std::int64_t duration_ps) {
        start(activity, draws, held, duration_ps, {});
    }
    void start(std::int32_t activity, Draws draws, std::int64_t duration_ps) {
        start(activity, draws, {}, duration_ps, {});
    }
    /// For derivatives: by how many units a draw or what is held of a resource grows with the logarithm of a cell.
    struct Move {
        std::int32_t resource = 0, cell = 0;
        double drawn_units = 0, held_units = 0;
    };
    /// The moves must outlive the activity.
    void start(std::int32_t activity, Draws draws, Draws held, std::int64_t duration_ps, std::span<const Move> moves);
    /// Work that is not given by its duration.
    struct Work {
        Wide left = 0;  // ps * rate; above 0
        std::int64_t cap = kUnlimited;
        std::int64_t weight = 1;  // the rate is weight * level
        std::uint64_t order = 0;  // of its event (EventQueue::schedule); 0: FIFO
    };
    void start(std::int32_t activity, Draws draws, const Work& work);
    /// Changes the duration and the draws of a running activity from now on. The completed fraction of its work stays
    /// the same.
    void change(std::int32_t activity, Draws draws, std::int64_t old_duration_ps, std::int64_t duration_ps);
    /// Must be called when the activity's event has been taken from the queue.
    void finish(std::int32_t activity);
    /// Holds units of the resource for something that is not an activity; a negative number gives them back.
    void hold(std::int32_t resource, std::int64_t units);
    void set_capacity(std::int32_t resource, Wide capacity) { sharing_.set_capacity(resource, capacity); }
    [[nodiscard]] Wide capacity(std::int32_t resource) const { return sharing_.capacity(resource); }
    /// MaxMin::units, which must fit into 63 bits.
    [[nodiscard]] std::int64_t units(std::int32_t resource) const { return sharing_.units(resource); }
    /// The time of the last change of a running activity's rate.
    [[nodiscard]] std::int64_t since_ps(std::int32_t activity) const {
        return activities_[static_cast<std::size_t>(activity)].since_ps;
    }
    /// Must be called before each event is taken; returns whether there is one. Settles all changes of a moment
    /// together before time advances, so that their order does not matter.
    [[nodiscard]] bool settle_moment() {
        if (sharing_.needs_settling() && (queue_.empty() || queue_.next_time() > queue_.now())) settle();
        return !queue_.empty();
    }
    void settle();
    /// The number of running activities with rate 0 after settle().
    [[nodiscard]] std::int64_t standing_still() const { return standing_still_; }

  private:
    struct Activity {
        Wide left = 0;  // ps * rate
        std::int64_t since_ps = 0;
        std::int64_t rate = 0;  // since since_ps; 0: it stands still, or its level is not settled yet
        std::int64_t weight = 1;
        std::uint64_t order = 0;
        Draws held;
    };
    /// Additional state of an activity if derivatives are carried.
    struct Carried {
        std::span<const Move> moves;
        std::vector<Tangents::Term> slopes;  // Tangents::Run::slopes
    };
    /// How much of a resource is held, in units at full speed.
    struct Held {
        std::int64_t capacity_units = 0;
        std::int64_t least_units = 0;  // always left for the others
        std::int64_t held_units = 0;
        [[nodiscard]] std::int64_t free_units() const {
            return held_units == 0 ? capacity_units : std::max(capacity_units - held_units, least_units);
        }
    };

    void hold(Draws draws, std::int64_t sign);
    [[nodiscard]] Tangents::Run run_of(std::int32_t activity) const;
    void list_moves(std::int32_t activity, bool runs);
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
    std::vector<std::int32_t> unsettled_;  // started activities without a rate
    std::int64_t standing_still_ = 0;
    std::vector<Carried> carried_;  // by activity; empty without tangents
    std::vector<std::vector<std::int32_t>>
        movers_;  // by resource: activities with a move on it, once for each; empty without tangents
};

}  // namespace orrery::sim
