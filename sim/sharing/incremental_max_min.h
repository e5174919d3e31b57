// Max-min fair sharing of resources among activities that come and go: after each edit only what it touches is solved
// again, and the levels are at all times the integers that MaxMinSolver (max_min.h) finds from scratch.
//
// What is kept. Every resource has a level, where it became full (kUnlimited: it did not). With
//
//     bound[a, r] = min(cap of a, levels of the resources other than r that a demands)
//     level of r  = the lowest t with  sum over a on r of units * (bound < t ? bound : t + 1)  above its capacity
//     level of a  = min(cap of a, levels of the resources that it demands)
//
// exactly one set of levels is consistent, by induction from the lowest level upwards: whether a resource is full at t
// depends only on what stopped below t. (t + 1, not t: a level is where rising by one more would not fit. Resources
// that fill at the same level stop those that rise on them together, whichever is looked at first.)
//
// How it is solved. Levels are swept from the lowest to the highest, as in progressive filling, but only resources that
// the change reaches are in the problem; the activities on them are bounded by the levels of all other resources. A
// change reaches a resource at the level from which its activities differ: where one stops that went on before, or goes
// on where it stopped before. There the resource joins the sweep, with what stopped on it lower down. A resource that
// was not full has no such level; whether it stays so is looked at in the end (all may rise by one more and it still
// has room), and if not, the sweep is done again with it from the lowest level on. So a change ends where nothing is
// full, and where nobody's level changes; what lies below the level at which it begins is not looked at.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "sim/sharing/level_heap.h"
#include "sim/sharing/max_min.h"

namespace orrery::sim {

class IncrementalMaxMin {
  public:
    struct Use {
        std::int32_t resource = 0;
        std::int64_t units = 0;  // > 0, for each level; the same resource may be named several times
    };

    explicit IncrementalMaxMin(const std::vector<Wide>& capacities);

    /// The new activity's index; indices of removed ones are given again. Its level is 0 until settle(). cap in [0,
    /// kUnlimited].
    std::int32_t add(std::span<const Use> uses, std::int64_t cap);
    void remove(std::int32_t activity);
    void set_cap(std::int32_t activity, std::int64_t cap);
    /// capacity >= 0; 0: nothing moves on it.
    void set_capacity(std::int32_t resource, Wide capacity);

    /// Finds the levels anew. The activities whose level changed, new ones included where it is not 0, each once;
    /// valid until the next call. Their order depends on the edits only.
    [[nodiscard]] const std::vector<std::int32_t>& settle();
    [[nodiscard]] bool needs_settling() const { return !dirty_.empty() || !pending_.empty(); }

    [[nodiscard]] std::int64_t level(std::int32_t activity) const { return activities_[at(activity)].level; }
    /// Where the resource became full; kUnlimited when it did not.
    [[nodiscard]] std::int64_t full_at(std::int32_t resource) const { return resources_[at(resource)].level; }
    /// Of all activities on the resource; what add() adds must keep it in 63 bits.
    [[nodiscard]] std::int64_t units(std::int32_t resource) const { return resources_[at(resource)].units; }

  private:
    struct Activity {
        std::int64_t cap = 0;
        std::int64_t level = 0;
        std::int64_t next = 0;         // level in the problem at hand; kRising until it stops
        std::int64_t bound = 0;        // in it: by the cap and the resources outside
        std::int32_t first_entry = 0;  // entries_[first, first + count)
        std::int32_t entry_count = 0;
        bool in_problem = false;
        bool passed = false;  // in it: rises beyond its level of before
        bool pending = false;
    };
    /// A use, by activity.
    struct Entry {
        std::int32_t resource = 0;
        std::int32_t position = 0;  // in the resource's members
        std::int64_t units = 0;
    };
    /// A use, by resource.
    struct Member {
        std::int32_t activity = 0;
        std::int32_t entry = 0;
    };
    struct Resource {
        Wide capacity = 0;
        Wide load = 0;           // units * level, over its members
        std::int64_t units = 0;  // of its members
        std::int64_t level = kUnlimited;
        // In the problem at hand:
        Wide left = 0;
        std::int64_t rising = 0;
        bool in_problem = false;
        bool stale = false;  // its place in the heap is too low
        bool tried = false;
        bool dirty = false;
        Wide trial = 0;  // outside of it: what load would change by
        /// Whether all activities may rise by one more and it is still not full.
        [[nodiscard]] bool has_room(Wide more) const { return load + more + units <= capacity; }
    };
    static constexpr std::int64_t kRising = -1;
    static std::size_t at(std::int32_t index) { return static_cast<std::size_t>(index); }

    [[nodiscard]] std::span<Entry> entries(const Activity& activity) {
        return {entries_.data() + activity.first_entry, at(activity.entry_count)};
    }
    [[nodiscard]] std::int32_t take_entries(std::int32_t count);
    void mark_dirty(std::int32_t resource);
    void mark_pending(std::int32_t activity);
    void add_to_problem(std::int32_t resource);
    void gather(std::int32_t activity);
    [[nodiscard]] std::int64_t bound(const Activity& activity);
    void begin_sweep();
    void sweep();
    void sweep_level(std::int64_t level);
    [[nodiscard]] std::int64_t lowest_resource();
    void take_full(std::int64_t level);
    void come_to(std::int32_t activity, std::int64_t level);
    void join(std::int32_t resource, std::int64_t level);
    void await_full(std::int32_t resource);
    void reach(const Activity& activity);
    void stop(std::int32_t activity, std::int64_t level);
    [[nodiscard]] bool all_have_room();
    void leave_problem(std::size_t first, std::size_t last);
    void commit();

    std::vector<Resource> resources_;
    std::vector<std::vector<Member>> members_;  // by resource
    std::vector<Activity> activities_;
    std::vector<std::int32_t> free_activities_;
    std::vector<Entry> entries_;
    std::vector<std::vector<std::int32_t>> free_entries_;  // by log2 of their count: first entries
    std::vector<std::int32_t> dirty_;                      // resources whose capacity or members changed
    std::vector<std::int32_t> pending_;                    // activities that are new or have a new cap
    // The problem at hand.
    std::vector<std::int32_t> problem_;   // its resources: those that are in it from level 0 on, then those that joined
    std::vector<std::int64_t> before_;    // of each, its level before
    std::vector<std::int32_t> gathered_;  // its activities
    LevelHeap filling_;                  // of resources that become full; levels are lower bounds, since they only rise
    LevelHeap coming_;                   // of activities at their bounds or levels of before; likewise
    std::vector<std::int32_t> full_;     // resources that became full at the level reached
    std::vector<std::int32_t> joining_;  // resources that the change reaches there
    std::vector<std::int32_t> tried_;
    std::vector<std::int32_t> changed_;
};

}  // namespace orrery::sim
