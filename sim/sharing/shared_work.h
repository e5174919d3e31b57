// Work under way, the resources that it shares, and when it ends.
//
// An activity is work that takes so long at full speed and then draws on resources, so many units on each. What is
// over-subscribed is divided max-min fairly (sim/sharing/max_min.h): activities are slowed down by it, in 1 / kFullRate
// of full speed. Only what a change touches is divided afresh. An activity may also hold units of a resource: these are
// its own from start to end, however slow it is, and the others divide the rest.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

#include "sim/sharing/event_queue.h"
#include "sim/sharing/max_min.h"
#include "sim/sharing/tangents.h"

namespace orrery::sim {

class SharedWork {
  public:
    /// What an activity takes of a resource at full speed.
    struct Draw {
        std::int32_t resource = 0;
        std::int64_t units = 0;  // > 0
    };
    /// A list of draws that was added.
    struct Draws {
        std::int32_t first = 0, last = 0;
    };
    /// A resource that is held whole has this share of itself left for the others all the same, as a device still runs
    /// a kernel between others.
    static constexpr std::int64_t kLeastShare = 16;

    // First all resources, draws and activities, then seal(), then work.

    /// The resource's number; they count from 0.
    std::int32_t add_resource(std::int64_t capacity_units);
    [[nodiscard]] Draws add_draws(std::span<const Draw> draws);
    /// The first one's number; they count from 0, one call's behind another's.
    std::int32_t add_activities(std::int32_t count);
    /// The activity may be started with draws on these resources, however much. (What is held need not be said.)
    void may_draw(std::int32_t activity, std::span<const Draw> draws);
    void may_draw(std::int32_t activity, Draws draws);
    /// Activities have the first slots of the queue, by their numbers; so many more belong to others.
    void seal(std::int32_t more_slots);

    /// Before seal(): derivatives of all that runs are carried along too, in what must outlive this.
    void carry(Tangents& tangents) { tangents_ = &tangents; }
    [[nodiscard]] Tangents* tangents() { return tangents_; }

    [[nodiscard]] EventQueue& queue() { return queue_; }
    [[nodiscard]] std::int32_t activity_count() const { return static_cast<std::int32_t>(activities_.size()); }

    /// Now. The queue has the activity's end as its event, which moves as others come and go.
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
    /// Of one that runs: what is left of it, in shares of its duration, takes another duration and other draws from now
    /// on.
    void change(std::int32_t activity, Draws draws, std::int64_t old_duration_ps, std::int64_t duration_ps);
    /// To be called when the end has come.
    void finish(std::int32_t activity);
    /// Units of the resource that something which is no activity holds from now on; gives them back where negative.
    void hold(std::int32_t resource, std::int64_t units);
    /// Whether something is to be divided afresh before time goes on: whatever happens at one moment is settled
    /// together, so that its order within the moment does not matter.
    [[nodiscard]] bool needs_settling() const { return !dirty_.empty(); }
    void settle();

  private:
    struct Resource {
        explicit Resource(std::int64_t capacity) : free_units(capacity), capacity_units(capacity) {}
        std::int64_t load_units = 0;  // demanded at full speed
        std::int64_t free_units;      // left by what is held, or the least share: kept, since every change asks for it
        std::int64_t held_units = 0;
        std::int64_t capacity_units;
        [[nodiscard]] bool is_over() const { return load_units > free_units; }
        void hold(std::int64_t units) {
            held_units += units;
            const std::int64_t least = std::max<std::int64_t>(capacity_units / kLeastShare, 1);
            free_units = held_units == 0 ? capacity_units : std::max(capacity_units - held_units, least);
        }
        std::int32_t index = -1;  // in the problem that settle() is putting together; -1: not in it
        bool is_dirty = false;
    };
    struct Activity {
        Wide left = 0;  // ps at full speed, times kFullRate
        std::int64_t since_ps = 0;
        std::int64_t rate = kFullRate;
        Draws draws, held;
        std::int32_t index = -1;  // in the problem
        bool running = false;
    };
    /// What an activity has beside that where derivatives are carried.
    struct Carried {
        Moves moves;
        std::vector<Tangents::Term> slopes;  // Tangents::Run
    };

    void load(Draws draws, std::int64_t sign);
    void hold(Draws draws, std::int64_t sign);
    [[nodiscard]] Tangents::Run run_of(std::int32_t activity) const;
    void set_holder(std::int32_t activity, bool holds);
    void set_slopes(std::int32_t activity);
    [[nodiscard]] std::int32_t narrowest(const Activity& activity) const;
    static void add_slope(std::vector<Tangents::Term>& slopes, std::int32_t cell, double slope);
    void mark_dirty(std::int32_t resource);
    void work_off(Activity& activity);
    void schedule_end(std::int32_t activity);
    void set_rate(std::int32_t activity, std::int64_t rate);
    void collect_problem();
    void join(std::int32_t activity);
    void join_resource(std::int32_t resource);

    EventQueue queue_{0};
    Tangents* tangents_ = nullptr;
    std::vector<Resource> resources_;
    std::vector<Activity> activities_;
    std::vector<Carried> carried_;                    // by activity; empty without tangents
    std::vector<std::vector<std::int32_t>> holders_;  // by resource: activities that hold some of it; likewise
    std::vector<Draw> draws_;
    struct User {
        std::int32_t resource = 0;
        std::int32_t activity = 0;
        auto operator<=>(const User&) const = default;
    };
    std::vector<User> users_;               // who may draw on what; ascending once sealed
    std::vector<std::int32_t> first_user_;  // users_[first[resource], first[resource + 1])
    std::vector<std::int32_t> dirty_;       // resources that are or were over-subscribed and changed
    // The problem that settle() is putting together.
    std::vector<std::int32_t> problem_resources_;
    std::vector<std::int32_t> problem_activities_;
    std::vector<Wide> problem_capacities_;
    std::vector<std::int64_t> problem_caps_;
    std::vector<Demand> problem_demands_;
    MaxMinSolver solver_;
};

}  // namespace orrery::sim
