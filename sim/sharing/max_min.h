// Incremental max-min fair sharing in integers: resources are shared by activities that start and stop, and after each
// edit only the affected part is solved again.
//
// Definition. Activity a has a level x[a] and takes weight[a] * units[a, r] * x[a] of each resource r on which it
// draws. A resource can give its capacity. The levels of all activities rise together. When a resource is full, its
// activities stop rising; an activity that reaches its cap stops too. Levels are integers, rounded down:
//
//     level of a resource = floor((capacity - sum of weight * units * x over its stopped activities) /
//                                 sum of weight * units over its rising activities)
//
// So no resource is over-subscribed, and the result does not depend on the order of edits: equal problems have equal
// integers.
//
// Consistency. Every resource has a level, at which it became full (kUnlimited: it is not full). With
//
//     bound[a, r] = lowest level of the resources other than r on which a draws
//     at[a, r, t] = cap of a if that is at most t, else bound[a, r] if that is below t, else t + 1
//     level of r  = the lowest t with  sum over a on r of weight * units * at[a, r, t]  above its capacity
//     level of a  = min(cap of a, levels of the resources on which it draws)
//
// exactly one set of levels is consistent, by induction from the lowest level upwards: whether a resource is full at t
// depends only on caps and on activities that stopped below t. (t + 1, because at its level a resource has no room for
// rising by one more. Resources that fill at the same level stop their activities together, in any order.)
//
// Algorithm. A resource has slack if it would not be full even if each of its activities rose by one more level, up to
// its cap. An activity that starts on resources with slack only gets its cap at once. A resource whose activities draw
// on no other resource without slack is solved alone. Everything else is solved by a sweep from the lowest level to the
// highest (progressive filling), but only over the resources that the edit affects, which form the problem; their
// activities are bounded by the levels of all other resources. An edit affects a resource from the level on at which
// one of its activities stops although it rose before, or rises although it stopped before. At that level the resource
// joins the sweep, together with its activities that stopped below. A resource that was not full has no such level:
// after the sweep, each such resource is checked, and if one is full now, the sweep is repeated with it from the lowest
// level. So the effect of an edit ends at resources with slack and at activities whose level does not change, and
// levels below the one at which it begins are not visited.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

#include "sim/sharing/level_heap.h"

namespace orrery::sim {

/// For products of units and levels.
__extension__ using Wide = __int128;

/// The units of one piece of a resource (one core, one port).
inline constexpr std::int64_t kUnit = 1'000'000'000;
/// The level of an activity at full speed, if its speed is simulated as a fraction of full speed.
inline constexpr std::int64_t kFullRate = std::int64_t{1} << 30;
/// The cap of an activity without a cap, and the level of such an activity that draws on no resource.
inline constexpr std::int64_t kUnlimited = std::int64_t{1} << 62;

class MaxMin {
  public:
    /// The units of a resource that an activity takes for each level. A list may name a resource several times.
    struct Draw {
        std::int32_t resource = 0;
        std::int64_t units = 0;  // > 0
    };
    /// A list of draws that add_draws() has stored.
    struct Draws {
        std::int32_t first = 0, last = 0;
        /// Without a branch between the two comparisons.
        bool operator==(const Draws& other) const { return ((first ^ other.first) | (last ^ other.last)) == 0; }
    };

    /// Adds a resource and returns its index, counted from 0. capacity >= 0; 0: its activities stand still.
    std::int32_t add_resource(Wide capacity);
    /// Reserves memory for this many resources in all.
    void reserve_resources(std::size_t count) {
        resources_.reserve(count);
        users_.reserve(count);
    }
    [[nodiscard]] Draws add_draws(std::span<const Draw> draws);
    /// Adds activities and returns the index of the first; indices are consecutive, counted from 0.
    std::int32_t add_activities(std::int32_t count);
    /// Permits the activity to start with draws on these resources, in any amount. All calls for one activity must be
    /// consecutive.
    void may_draw(std::int32_t activity, std::span<const Draw> draws);
    /// The same. If this is the activity's only list, starting with exactly this list is fastest.
    void may_draw(std::int32_t activity, Draws draws);
    /// Revokes all permissions of an activity, which must not be running.
    void may_draw_no_more(std::int32_t activity) {
        ++activities_[at(activity)].generation;
        activities_[at(activity)].enlisted = {};
    }

    /// Starts an activity. cap in [0, kUnlimited]; the sum of weight * units over the running activities of a resource
    /// must fit into 63 bits. Returns true if all its resources have slack, so that its level is final; otherwise
    /// settle() finds its level.
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
            if (resource.has_slack()) continue;
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
        if (!changed.has_slack()) mark_dirty(resource);
    }

    [[nodiscard]] bool needs_settling() const { return !dirty_.empty(); }
    /// Updates the levels after edits. Returns the activities whose level changed; of those started since the last call
    /// some may be missing. The result is valid until the next call; its order depends only on the edits.
    [[nodiscard]] const std::vector<std::int32_t>& settle();

    [[nodiscard]] std::int64_t level(std::int32_t activity) const { return activities_[at(activity)].level; }
    [[nodiscard]] std::int32_t resource_count() const { return static_cast<std::int32_t>(resources_.size()); }
    [[nodiscard]] Wide capacity(std::int32_t resource) const { return resources_[at(resource)].capacity; }
    /// The sum of weight * units over the running activities of the resource.
    [[nodiscard]] std::int64_t units(std::int32_t resource) const { return resources_[at(resource)].units; }
    [[nodiscard]] std::span<const Draw> list(Draws draws) const {
        return {draws_.data() + draws.first, at(draws.last - draws.first)};
    }
    /// The draws of a running activity.
    [[nodiscard]] std::span<const Draw> draws_of(std::int32_t activity) const {
        return list(activities_[at(activity)].draws);
    }

  private:
    struct alignas(64) Activity {  // a cache line
        std::int64_t cap = 0;
        std::int64_t level = 0;
        std::int64_t weight = 1;
        Draws draws;             // empty: not running
        Draws enlisted;          // the only list given to may_draw(); kSeveral if there is more than one
        std::int64_t next = 0;   // new level in the current problem; kRising until it stops
        std::int64_t bound = 0;  // in the problem: the lowest level of its resources outside of it
        std::int32_t generation = 0;
        bool in_problem = false;
        bool passed = false;  // in the problem: has risen above its old level
        [[nodiscard]] static std::int64_t next_of(std::int64_t level, std::int64_t cap) {
            return level < cap ? level + 1 : cap;
        }
        [[nodiscard]] std::int64_t next_level() const { return next_of(level, cap); }
    };
    /// An activity that may draw on a resource. It is outdated, and removed when encountered, if the activity's
    /// generation has changed since.
    struct User {
        std::int32_t activity = 0;
        std::int32_t generation = 0;
        std::int64_t units = 0;  // in the list given to may_draw()
    };
    struct alignas(64) Resource {  // two cache lines, of which start() and stop() need only the first
        std::int64_t level = kUnlimited;
        std::int64_t units = 0;  // weight * units of its running activities
        Wide capacity = 0;
        Wide load = 0;  // what its activities would take if each rose by one more level, up to its cap
        bool dirty = false;
        std::uint8_t skips_alone = 0;  // how often settle() skips try_alone() from now on
        std::uint8_t most_skips = 0;   // the value of skips_alone after the last attempt
        // In the current problem:
        bool in_problem = false;
        bool stale = false;       // its stop in filling_ is too low
        bool tried = false;       // it is in tried_
        std::int64_t rising = 0;  // weight * units of its rising activities
        Wide left = 0;            // capacity minus what its stopped activities take
        Wide trial = 0;           // the change of load by the current problem, if the resource is outside of it
        /// Activities on the resource are not limited by it, and would not be if each rose by one more level.
        [[nodiscard]] bool has_slack() const { return level == kUnlimited && load <= capacity; }
    };
    static constexpr std::int64_t kRising = -1;
    static constexpr Draws kSeveral{-1, -1};
    static constexpr int kMostSkips = 63;
    static constexpr std::ptrdiff_t kAhead = 4;   // prefetch distance in users
    static constexpr std::ptrdiff_t kShort = 16;  // a list of users for which prefetching does not pay
    static std::size_t at(std::int32_t index) { return static_cast<std::size_t>(index); }
    // Stops of the sweep: at equal levels, caps come before resources and bounds.
    static std::uint64_t cap_stop(std::int64_t level) { return 2 * static_cast<std::uint64_t>(level); }
    static std::uint64_t stop_at(std::int64_t level) { return 2 * static_cast<std::uint64_t>(level) + 1; }

    /// Calls visit(user) for the resource's users until it returns false; returns whether it never did.
    template <typename Visit>
    bool while_users(std::int32_t resource, const Visit& visit) {
        std::vector<User>& users = users_[at(resource)];
        User* user = users.data();  // visit() adds no users
        User* end = user + users.size();
        const User* const last_ahead = end - user > kShort ? end - kAhead : user;
        bool goes_on = true;
        while (goes_on && user != end) {
            if (user < last_ahead) __builtin_prefetch(&activities_[at(user[kAhead].activity)]);
            if (activities_[at(user->activity)].generation != user->generation) {
                *user = *--end;
                continue;
            }
            goes_on = visit(*user);
            ++user;
        }
        const auto kept = static_cast<std::size_t>(end - users.data());
        if (kept < users.size()) users.resize(kept);
        return goes_on;
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
    /// weight * units that the user draws now; 0 if it is not running or does not draw on the resource.
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
    [[nodiscard]] bool others_keep_slack();
    void leave_problem(std::size_t first, std::size_t last);
    void commit();

    std::vector<Resource> resources_;
    std::vector<std::vector<User>> users_;  // by resource: the activities that may draw on it
    std::vector<Activity> activities_;
    std::vector<Draw> draws_;
    std::vector<std::int32_t> dirty_;  // changed resources without slack
    // The current problem.
    std::vector<std::int32_t> problem_;         // its resources: those known from level 0 on, then those that joined
    std::vector<std::int64_t> before_;          // their old levels
    std::vector<std::int32_t> gathered_;        // its activities
    std::vector<std::int64_t> gathered_units_;  // solve_alone(): weight * units of each gathered activity
    LevelHeap filling_;  // resources by the level at which they fill, a lower bound, since these levels only rise
    LevelHeap coming_;   // activities by the next stop at their cap, bound or old level, a lower bound too
    std::vector<std::int32_t> full_;     // resources that fill at the current level
    std::vector<std::int32_t> joining_;  // resources that join the problem at the current level
    std::vector<std::int32_t> tried_;    // resources outside of the problem whose load may change
    std::vector<std::int32_t> changed_;
};

}  // namespace orrery::sim
