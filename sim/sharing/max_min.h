// Max-min fair sharing of resources among activities that come and go, in integers: after each edit only what it
// touches is solved again.
//
// Activity a rises to a level x[a] and takes weight[a] * units[a, r] * x[a] of each resource r that it draws on; what a
// resource gives is its capacity. All activities rise together until a resource is full or one of them is at its cap;
// those on it stop there, and the others go on. A level is a whole number; where that does not come out even, it is
// rounded down:
//
//     level of a resource = floor((capacity - units * x of those that stopped lower) / units of those that have not)
//
// So no resource is ever over-subscribed, and the answer depends on no order: equal problems have equal integers.
//
// What is kept. Every resource has a level, where it became full (kUnlimited: it did not). With
//
//     bound[a, r] = lowest level of the resources other than r that a draws on
//     at[a, r, t] = cap of a where that is at most t, else bound[a, r] where that is below t, else t + 1
//     level of r  = the lowest t with  sum over a on r of weight * units * at[a, r, t]  above its capacity
//     level of a  = min(cap of a, levels of the resources that it draws on)
//
// exactly one set of levels is consistent, by induction from the lowest level upwards: whether a resource is full at t
// depends only on caps and on what stopped below t. (t + 1, not t: a level is where rising by one more would not fit.
// Resources that fill at the same level stop those that rise on them together, whichever is looked at first.)
//
// How it is solved. A resource that all activities on it could leave at their caps, or one higher than they are, and
// still not fill, couples nobody: an activity that starts on such resources only is at its cap at once. A resource that
// shares its activities with no other full one is solved by itself. What is left is swept from the lowest level to the
// highest, as in progressive filling, but only resources that the change reaches are in the problem; the activities on
// them are bounded by the levels of all other resources. A change reaches a resource at the level from which its
// activities differ: where one stops that went on before, or goes on where it stopped before. There the resource joins
// the sweep, with what stopped on it lower down. A resource that was not full has no such level; whether it stays so is
// looked at in the end, and if not, the sweep is done again with it from the lowest level on. So a change ends where
// nothing is full, and where nobody's level changes; what lies below the level at which it begins is not looked at.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

#include "sim/sharing/level_heap.h"

namespace orrery::sim {

/// For products of an amount and a level.
__extension__ using Wide = __int128;

/// Units of a resource of which there is one piece (one core, one port).
inline constexpr std::int64_t kUnit = 1'000'000'000;
/// An activity that is simulated as a fraction of its full speed has this level at full speed.
inline constexpr std::int64_t kFullRate = std::int64_t{1} << 30;
/// The cap of an activity that has none. One that draws on nothing rises to here.
inline constexpr std::int64_t kUnlimited = std::int64_t{1} << 62;

class MaxMin {
  public:
    /// What an activity takes of a resource for each level. A list may name a resource several times.
    struct Draw {
        std::int32_t resource = 0;
        std::int64_t units = 0;  // > 0
    };
    /// A list of draws that was added.
    struct Draws {
        std::int32_t first = 0, last = 0;
        bool operator==(const Draws&) const = default;
    };

    /// The resource's number; they count from 0. capacity >= 0; 0: nothing moves on it.
    std::int32_t add_resource(Wide capacity);
    [[nodiscard]] Draws add_draws(std::span<const Draw> draws);
    /// The first one's number; they count from 0, one call's behind another's.
    std::int32_t add_activities(std::int32_t count);
    /// The activity may be started with draws on these resources, however much. An activity's calls come one behind the
    /// other.
    void may_draw(std::int32_t activity, std::span<const Draw> draws);
    /// It is cheapest to start with the very list, where that is the only one.
    void may_draw(std::int32_t activity, Draws draws);
    /// Takes back what it may draw on, which must not be while it runs.
    void may_draw_no_more(std::int32_t activity) {
        ++activities_[at(activity)].generation;
        activities_[at(activity)].enlisted = {};
    }

    /// cap in [0, kUnlimited]; the sum of weight * units over what runs on a resource must stay in 63 bits. Whether it
    /// touches nobody, and so has its level; else it has one from settle() on.
    bool start(std::int32_t index, Draws draws, std::int64_t cap, std::int64_t weight = 1) {
        Activity& activity = activities_[at(index)];
        activity.draws = draws;
        activity.cap = cap;
        activity.weight = weight;
        activity.level = cap;
        for (const Draw& draw : list(draws)) {
            activity.level = std::min(activity.level, resources_[at(draw.resource)].level);
        }
        const std::int64_t next = activity.next_level();
        bool fits = true;
        for (const Draw& draw : list(draws)) {
            Resource& resource = resources_[at(draw.resource)];
            resource.units += draw.units * weight;
            resource.load += static_cast<Wide>(draw.units * weight) * next;
            if (resource.couples_nobody()) continue;
            fits = false;
            mark_dirty(draw.resource);
        }
        return fits;
    }
    void stop(std::int32_t index) {
        Activity& activity = activities_[at(index)];
        const std::int64_t next = activity.next_level();
        for (const Draw& draw : list(activity.draws)) {
            Resource& resource = resources_[at(draw.resource)];
            resource.units -= draw.units * activity.weight;
            resource.load -= static_cast<Wide>(draw.units * activity.weight) * next;
            if (resource.level != kUnlimited) mark_dirty(draw.resource);
        }
        activity.draws = {};
    }
    void set_capacity(std::int32_t resource, Wide capacity) {
        Resource& changed = resources_[at(resource)];
        changed.capacity = capacity;
        if (!changed.couples_nobody()) mark_dirty(resource);
    }

    [[nodiscard]] bool needs_settling() const { return !dirty_.empty(); }
    /// Finds the levels anew. Among the activities that it returns are all whose level changed but new ones; valid
    /// until the next call. Their order depends on the edits only.
    [[nodiscard]] const std::vector<std::int32_t>& settle();

    [[nodiscard]] std::int64_t level(std::int32_t activity) const { return activities_[at(activity)].level; }
    [[nodiscard]] std::int32_t resource_count() const { return static_cast<std::int32_t>(resources_.size()); }
    [[nodiscard]] Wide capacity(std::int32_t resource) const { return resources_[at(resource)].capacity; }
    /// weight * units of all that runs on the resource.
    [[nodiscard]] std::int64_t units(std::int32_t resource) const { return resources_[at(resource)].units; }
    [[nodiscard]] std::span<const Draw> list(Draws draws) const {
        return {draws_.data() + draws.first, at(draws.last - draws.first)};
    }
    /// What a running activity draws on.
    [[nodiscard]] std::span<const Draw> draws_of(std::int32_t activity) const {
        return list(activities_[at(activity)].draws);
    }

  private:
    struct alignas(64) Activity {  // a cache line
        std::int64_t cap = 0;
        std::int64_t level = 0;
        std::int64_t weight = 1;
        Draws draws;             // none: it does not run
        Draws enlisted;          // the list that is all it may draw
        std::int64_t next = 0;   // level in the problem at hand; kRising until it stops
        std::int64_t bound = 0;  // in it: by the resources outside
        std::int32_t generation = 0;
        bool in_problem = false;
        bool passed = false;  // in it: rises beyond its level of before
        [[nodiscard]] static std::int64_t next_of(std::int64_t level, std::int64_t cap) {
            return level < cap ? level + 1 : cap;
        }
        [[nodiscard]] std::int64_t next_level() const { return next_of(level, cap); }
    };
    /// Of an activity's `generation`; those of earlier ones are dropped when they are come across.
    struct User {
        std::int32_t activity = 0;
        std::int32_t generation = 0;
        std::int64_t units = 0;  // by the list that it enlisted with
    };
    struct alignas(64) Resource {  // of two cache lines the sweep needs the first one alone
        std::int64_t level = kUnlimited;
        bool dirty = false;
        std::uint8_t skips_alone = 0;  // how many times solve_alone() is not tried from now on
        std::uint8_t most_skips = 0;   // how many after it failed last
        // In the problem at hand:
        bool in_problem = false;
        bool stale = false;  // its place in the heap is too low
        bool tried = false;
        std::int64_t rising = 0;
        Wide left = 0;
        std::int64_t units = 0;  // of its activities
        Wide capacity = 0;
        Wide load = 0;   // units of its activities, each times the level that is next to its own, or its cap
        Wide trial = 0;  // outside of the problem at hand: what load would change by
        [[nodiscard]] bool couples_nobody() const { return level == kUnlimited && load <= capacity; }
    };
    static constexpr std::int64_t kRising = -1;
    static constexpr Draws kSeveral{-1, -1};
    static constexpr std::size_t kAhead = 4;  // users whose activities are fetched from memory meanwhile
    static std::size_t at(std::int32_t index) { return static_cast<std::size_t>(index); }
    /// The sweep comes to caps ahead of resources and bounds of the same level.
    static std::uint64_t cap_stop(std::int64_t level) { return 2 * static_cast<std::uint64_t>(level); }
    static std::uint64_t stop_at(std::int64_t level) { return 2 * static_cast<std::uint64_t>(level) + 1; }

    /// Until visit(activity) is false; whether it never was.
    template <typename Visit>
    bool while_users(std::int32_t resource, const Visit& visit) {
        std::vector<User>& users = users_[at(resource)];
        for (std::size_t i = 0; i < users.size();) {
            const User user = users[i];
            if (i + kAhead < users.size()) __builtin_prefetch(&activities_[at(users[i + kAhead].activity)]);
            if (activities_[at(user.activity)].generation != user.generation) {
                users[i] = users.back();
                users.pop_back();
                continue;
            }
            if (!visit(user)) return false;
            ++i;
        }
        return true;
    }
    template <typename Visit>
    void each_user(std::int32_t resource, const Visit& visit) {
        while_users(resource, [&visit](const User& user) {
            visit(user);
            return true;
        });
    }
    [[nodiscard]] bool draws_now(const User& user, std::int32_t resource) const {
        const Activity& activity = activities_[at(user.activity)];
        return activity.draws == activity.enlisted || units_on(user, resource) > 0;
    }
    /// 0 where it does not run, or does not draw on the resource now.
    [[nodiscard]] std::int64_t units_on(const User& user, std::int32_t resource) const {
        const Activity& activity = activities_[at(user.activity)];
        if (activity.draws == activity.enlisted) return user.units * activity.weight;
        std::int64_t units = 0;
        for (const Draw& draw : list(activity.draws)) units += draw.resource == resource ? draw.units : 0;
        return units * activity.weight;
    }
    void mark_dirty(std::int32_t resource) {
        if (resources_[at(resource)].dirty) return;
        resources_[at(resource)].dirty = true;
        dirty_.push_back(resource);
    }
    [[nodiscard]] bool try_alone(std::int32_t resource);
    [[nodiscard]] bool solve_alone(std::int32_t resource);
    [[nodiscard]] bool gather_alone(std::int32_t resource);
    [[nodiscard]] bool set_levels(std::int32_t resource);
    void take_level(Activity& activity, std::int64_t level);
    void add_to_problem(std::int32_t resource);
    void gather(std::int32_t activity);
    [[nodiscard]] std::int64_t bound(const Activity& activity) const;
    void await_next_stop(std::int32_t activity);
    void solve_problem();
    void begin_sweep();
    void sweep();
    void stop_at_caps(std::uint64_t stop);
    void sweep_level(std::int64_t level);
    [[nodiscard]] std::uint64_t lowest_resource();
    void come_to(std::int32_t activity, std::int64_t level);
    void join(std::int32_t resource, std::int64_t level);
    void await_full(std::int32_t resource);
    void reach(const Activity& activity);
    void stop_rising(std::int32_t activity, std::int64_t level);
    [[nodiscard]] bool all_have_room();
    void leave_problem(std::size_t first, std::size_t last);
    void commit();

    std::vector<Resource> resources_;
    std::vector<std::vector<User>> users_;  // by resource: who may draw on it
    std::vector<Activity> activities_;
    std::vector<Draw> draws_;
    std::vector<std::int32_t> dirty_;  // resources that are full, or may be, and changed
    // The problem at hand.
    std::vector<std::int32_t> problem_;   // its resources: those that are in it from level 0 on, then those that joined
    std::vector<std::int64_t> before_;    // of each, its level before
    std::vector<std::int32_t> gathered_;  // its activities
    std::vector<std::int64_t> gathered_units_;  // of each, on a resource that is solved by itself
    LevelHeap filling_;                  // of resources that become full; levels are lower bounds, since they only rise
    LevelHeap coming_;                   // of activities at their caps, bounds or levels of before; likewise
    std::vector<std::int32_t> full_;     // resources that became full at the level reached
    std::vector<std::int32_t> joining_;  // resources that the change reaches there
    std::vector<std::int32_t> tried_;
    std::vector<std::int32_t> changed_;
};

}  // namespace orrery::sim
