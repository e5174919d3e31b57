#include "sim/sharing/incremental_max_min.h"

#include <algorithm>
#include <bit>
#include <cstddef>

#include "core/error.h"

namespace orrery::sim {

IncrementalMaxMin::IncrementalMaxMin(const std::vector<Wide>& capacities)
    : resources_(capacities.size()), members_(capacities.size()) {
    for (std::size_t r = 0; r < capacities.size(); ++r) resources_[r].capacity = capacities[r];
}

// ---- edits ----------------------------------------------------------------------------------------------------------

std::int32_t IncrementalMaxMin::add(std::span<const Use> uses, std::int64_t cap) {
    ORRERY_CHECK(cap >= 0 && cap <= kUnlimited, "an activity's cap is out of range");
    std::int32_t index = 0;
    if (free_activities_.empty()) {
        index = static_cast<std::int32_t>(activities_.size());
        activities_.emplace_back();
    } else {
        index = free_activities_.back();
        free_activities_.pop_back();
    }
    Activity& activity = activities_[at(index)];
    activity.cap = cap;
    activity.level = 0;
    activity.entry_count = static_cast<std::int32_t>(uses.size());
    activity.first_entry = take_entries(activity.entry_count);
    for (std::int32_t i = 0; i < activity.entry_count; ++i) {
        const Use& use = uses[at(i)];
        Resource& resource = resources_[at(use.resource)];
        std::vector<Member>& members = members_[at(use.resource)];
        const std::int32_t entry = activity.first_entry + i;
        entries_[at(entry)] = {use.resource, static_cast<std::int32_t>(members.size()), use.units};
        members.push_back({index, entry});
        ORRERY_CHECK(use.units > 0 && !__builtin_add_overflow(resource.units, use.units, &resource.units),
                     "demands on a resource are out of range");
        mark_dirty(use.resource);
    }
    mark_pending(index);
    return index;
}

/// Runs of entries are powers of two long, so that those given back fit again.
std::int32_t IncrementalMaxMin::take_entries(std::int32_t count) {
    if (count == 0) return 0;
    const std::size_t length = std::bit_ceil(at(count));
    const auto size_class = static_cast<std::size_t>(std::countr_zero(length));
    if (free_entries_.size() <= size_class) free_entries_.resize(size_class + 1);
    std::vector<std::int32_t>& free = free_entries_[size_class];
    if (!free.empty()) {
        const std::int32_t first = free.back();
        free.pop_back();
        return first;
    }
    const std::size_t first = entries_.size();
    ORRERY_CHECK(first + length < (std::size_t{1} << 31), "too many demands on shared resources");
    entries_.resize(first + length);
    return static_cast<std::int32_t>(first);
}

void IncrementalMaxMin::remove(std::int32_t index) {
    Activity& activity = activities_[at(index)];
    for (const Entry& entry : entries(activity)) {
        Resource& resource = resources_[at(entry.resource)];
        resource.units -= entry.units;
        resource.load -= static_cast<Wide>(entry.units) * activity.level;
        std::vector<Member>& members = members_[at(entry.resource)];
        const Member last = members.back();
        members[at(entry.position)] = last;
        entries_[at(last.entry)].position = entry.position;
        members.pop_back();
        mark_dirty(entry.resource);
    }
    if (activity.entry_count > 0) {
        const auto length = std::bit_ceil(at(activity.entry_count));
        free_entries_[static_cast<std::size_t>(std::countr_zero(length))].push_back(activity.first_entry);
    }
    if (activity.pending) std::erase(pending_, index);
    activity.pending = false;
    free_activities_.push_back(index);
}

void IncrementalMaxMin::set_cap(std::int32_t activity, std::int64_t cap) {
    ORRERY_CHECK(cap >= 0 && cap <= kUnlimited, "an activity's cap is out of range");
    activities_[at(activity)].cap = cap;
    mark_pending(activity);
}

void IncrementalMaxMin::set_capacity(std::int32_t resource, Wide capacity) {
    ORRERY_CHECK(capacity >= 0, "a capacity is negative");
    resources_[at(resource)].capacity = capacity;
    mark_dirty(resource);
}

void IncrementalMaxMin::mark_dirty(std::int32_t resource) {
    if (resources_[at(resource)].dirty) return;
    resources_[at(resource)].dirty = true;
    dirty_.push_back(resource);
}

void IncrementalMaxMin::mark_pending(std::int32_t activity) {
    if (activities_[at(activity)].pending) return;
    activities_[at(activity)].pending = true;
    pending_.push_back(activity);
}

// ---- the sweep ------------------------------------------------------------------------------------------------------

const std::vector<std::int32_t>& IncrementalMaxMin::settle() {
    changed_.clear();
    for (const std::int32_t index : dirty_) {
        Resource& resource = resources_[at(index)];
        resource.dirty = false;
        if (resource.level != kUnlimited || !resource.has_room(0)) add_to_problem(index);
    }
    dirty_.clear();
    // What a new activity is about to fill is better known before the sweep than after it.
    for (const std::int32_t index : pending_) {
        const Activity& activity = activities_[at(index)];
        std::int64_t highest = activity.cap;
        for (const Entry& entry : entries(activity)) highest = std::min(highest, resources_[at(entry.resource)].level);
        for (const Entry& entry : entries(activity)) {
            const Wide rise = static_cast<Wide>(entry.units) * (highest - activity.level);
            if (!resources_[at(entry.resource)].has_room(rise)) add_to_problem(entry.resource);
        }
    }
    while (true) {
        const std::size_t known = problem_.size();
        begin_sweep();
        sweep();
        const std::size_t joined = problem_.size();
        if (all_have_room()) break;
        leave_problem(known, joined);
    }
    commit();
    return changed_;
}

void IncrementalMaxMin::add_to_problem(std::int32_t resource) {
    if (resources_[at(resource)].in_problem) return;
    resources_[at(resource)].in_problem = true;
    problem_.push_back(resource);
    before_.push_back(resources_[at(resource)].level);
}

/// Takes those out that joined in a sweep that is done again: it finds anew where they do.
void IncrementalMaxMin::leave_problem(std::size_t first, std::size_t last) {
    for (std::size_t i = first; i < last; ++i) {
        Resource& resource = resources_[at(problem_[i])];
        resource.in_problem = false;
        resource.level = before_[i];
    }
    const auto erase = [&](auto& list) {
        list.erase(list.begin() + static_cast<std::ptrdiff_t>(first), list.begin() + static_cast<std::ptrdiff_t>(last));
    };
    erase(problem_);
    erase(before_);
}

/// What holds an activity from outside of the problem.
std::int64_t IncrementalMaxMin::bound(const Activity& activity) {
    std::int64_t lowest = activity.cap;
    for (const Entry& entry : entries(activity)) {
        const Resource& resource = resources_[at(entry.resource)];
        if (!resource.in_problem) lowest = std::min(lowest, resource.level);
    }
    return lowest;
}

/// Takes the activity into the problem, rising.
void IncrementalMaxMin::gather(std::int32_t index) {
    Activity& activity = activities_[at(index)];
    if (activity.in_problem) return;
    activity.in_problem = true;
    activity.passed = false;
    activity.next = kRising;
    activity.bound = bound(activity);
    gathered_.push_back(index);
    coming_.push({std::min(activity.level, activity.bound), index});
}

/// From level 0, with the resources that are known to be in the problem.
void IncrementalMaxMin::begin_sweep() {
    for (const std::int32_t activity : gathered_) activities_[at(activity)].in_problem = false;
    gathered_.clear();
    coming_.clear();
    filling_.clear();
    for (const std::int32_t index : problem_) {
        Resource& resource = resources_[at(index)];
        resource.left = resource.capacity;
        resource.rising = resource.units;
        await_full(index);
        for (const Member& member : members_[at(index)]) gather(member.activity);
    }
    for (const std::int32_t activity : pending_) gather(activity);
}

void IncrementalMaxMin::sweep() {
    while (true) {
        const std::int64_t coming = coming_.empty() ? kUnlimited : coming_.front().level;
        const std::int64_t level = std::min(coming, lowest_resource());
        if (level == kUnlimited) break;
        sweep_level(level);
    }
    for (const std::int32_t index : gathered_) {
        if (activities_[at(index)].next == kRising) stop(index, kUnlimited);
    }
    ORRERY_CHECK(joining_.empty(), "a resource joins behind the sweep");
}

void IncrementalMaxMin::sweep_level(std::int64_t level) {
    take_full(level);  // what is full at this level is known before anything stops here
    for (const std::int32_t resource : full_) {
        resources_[at(resource)].level = level;
        for (const Member& member : members_[at(resource)]) stop(member.activity, level);
    }
    while (true) {
        if (!joining_.empty()) {
            const std::int32_t resource = joining_.back();
            joining_.pop_back();
            join(resource, level);
        } else if (!coming_.empty() && coming_.front().level == level) {
            come_to(coming_.pop(), level);
        } else {
            return;
        }
    }
}

/// Puts the resource in its place among those that will become full; its level is not known yet.
void IncrementalMaxMin::await_full(std::int32_t index) {
    Resource& resource = resources_[at(index)];
    resource.level = kUnlimited;
    resource.stale = false;
    if (resource.rising == 0) return;
    filling_.push({level_of(resource.left, resource.rising), index});
}

/// The lowest level at which a resource becomes full; kUnlimited when none does.
std::int64_t IncrementalMaxMin::lowest_resource() {
    while (!filling_.empty()) {
        if (!resources_[at(filling_.front().index)].stale) return filling_.front().level;
        await_full(filling_.pop());
    }
    return kUnlimited;
}

/// full_: the resources that are full at this level, taken off the heap.
void IncrementalMaxMin::take_full(std::int64_t level) {
    full_.clear();
    while (lowest_resource() == level) {
        full_.push_back(filling_.pop());
    }
}

/// The sweep is at the activity's bound, or at the level that it had before.
void IncrementalMaxMin::come_to(std::int32_t index, std::int64_t level) {
    Activity& activity = activities_[at(index)];
    if (activity.next != kRising) return;
    if (activity.bound == level) {
        stop(index, level);
        return;
    }
    if (!activity.passed && activity.level == level) {
        activity.passed = true;
        reach(activity);
    }
    const std::int64_t next = activity.passed ? activity.bound : std::min(activity.level, activity.bound);
    // Its bound may have grown by what joined; where nothing bounds it, it stops with the resources in the problem.
    if (next == kUnlimited) return;
    coming_.push({next, index});
}

/// The activity differs from what it was from here on: so do the resources that it helped to fill.
void IncrementalMaxMin::reach(const Activity& activity) {
    for (const Entry& entry : entries(activity)) {
        Resource& resource = resources_[at(entry.resource)];
        if (resource.in_problem || resource.level == kUnlimited) continue;
        add_to_problem(entry.resource);
        joining_.push_back(entry.resource);
    }
}

/// A resource on which nothing has changed up to this level. Nor does it become full here: it did so higher up, and
/// whether it is full at a level depends only on what stops below that.
void IncrementalMaxMin::join(std::int32_t index, std::int64_t level) {
    Resource& resource = resources_[at(index)];
    resource.left = resource.capacity;
    resource.rising = 0;
    for (const Member& member : members_[at(index)]) {
        Activity& activity = activities_[at(member.activity)];
        const std::int64_t units = entries_[at(member.entry)].units;
        if (!activity.in_problem && activity.level >= level) {
            gather(member.activity);
        } else if (activity.in_problem && activity.next == kRising) {
            activity.bound = bound(activity);
        } else {
            resource.left -= static_cast<Wide>(units) * (activity.in_problem ? activity.next : activity.level);
            continue;
        }
        resource.rising += units;
    }
    await_full(index);
}

/// Without effect on those that have stopped.
void IncrementalMaxMin::stop(std::int32_t index, std::int64_t level) {
    Activity& activity = activities_[at(index)];
    if (activity.next != kRising) return;
    activity.next = level;
    for (const Entry& entry : entries(activity)) {
        Resource& resource = resources_[at(entry.resource)];
        if (!resource.in_problem) continue;
        resource.left -= static_cast<Wide>(entry.units) * level;
        resource.rising -= entry.units;
        resource.stale = true;
    }
    if (level != activity.level) reach(activity);
}

/// Whether resources outside of the problem that were not full are not full now. Takes in those that may be.
bool IncrementalMaxMin::all_have_room() {
    const std::size_t before = problem_.size();
    for (const std::int32_t index : gathered_) {
        const Activity& activity = activities_[at(index)];
        if (activity.next == activity.level) continue;
        for (const Entry& entry : entries(activity)) {
            Resource& resource = resources_[at(entry.resource)];
            if (resource.in_problem) continue;
            resource.trial += static_cast<Wide>(entry.units) * (activity.next - activity.level);
            if (resource.tried) continue;
            resource.tried = true;
            tried_.push_back(entry.resource);
        }
    }
    for (const std::int32_t index : tried_) {
        Resource& resource = resources_[at(index)];
        if (!resource.has_room(resource.trial)) add_to_problem(index);
        resource.trial = 0;
        resource.tried = false;
    }
    tried_.clear();
    return problem_.size() == before;
}

void IncrementalMaxMin::commit() {
    for (const std::int32_t index : gathered_) {
        Activity& activity = activities_[at(index)];
        activity.in_problem = false;
        if (activity.next == activity.level) continue;
        const Wide rise = activity.next - activity.level;
        for (const Entry& entry : entries(activity)) resources_[at(entry.resource)].load += entry.units * rise;
        activity.level = activity.next;
        changed_.push_back(index);
    }
    for (const std::int32_t activity : pending_) activities_[at(activity)].pending = false;
    for (const std::int32_t resource : problem_) resources_[at(resource)].in_problem = false;
    pending_.clear();
    problem_.clear();
    before_.clear();
    gathered_.clear();
}

}  // namespace orrery::sim
