#include "sim/sharing/incremental_max_min.h"

#include <algorithm>
#include <bit>

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

// ---- which resources and activities are solved again ----------------------------------------------------------------

const std::vector<std::int32_t>& IncrementalMaxMin::settle() {
    changed_.clear();
    for (const std::int32_t index : dirty_) {
        Resource& resource = resources_[at(index)];
        resource.dirty = false;
        if (resource.level != kUnlimited || !resource.has_room(0)) join(index);
    }
    dirty_.clear();
    for (const std::int32_t activity : pending_) {
        activities_[at(activity)].pending = false;
        gather(activity);
    }
    pending_.clear();
    do {
        gather_members();
        fill();
    } while (spread());
    commit();
    return changed_;
}

void IncrementalMaxMin::join(std::int32_t resource) {
    if (resources_[at(resource)].in_problem) return;
    resources_[at(resource)].in_problem = true;
    problem_.push_back(resource);
}

void IncrementalMaxMin::gather(std::int32_t activity) {
    if (activities_[at(activity)].in_problem) return;
    activities_[at(activity)].in_problem = true;
    gathered_.push_back(activity);
}

void IncrementalMaxMin::gather_members() {
    for (; gathered_resources_ < problem_.size(); ++gathered_resources_) {
        for (const Member& member : members_[at(problem_[gathered_resources_])]) gather(member.activity);
    }
}

/// Takes in the resources outside of the problem that its solution changes. False: there are none.
bool IncrementalMaxMin::spread() {
    const std::size_t before = problem_.size();
    for (const std::int32_t index : gathered_) {
        const Activity& activity = activities_[at(index)];
        if (activity.next == activity.level) continue;
        for (const Entry& entry : entries(activity)) {
            Resource& resource = resources_[at(entry.resource)];
            if (resource.in_problem) continue;
            if (resource.level != kUnlimited) {
                join(entry.resource);
                continue;
            }
            resource.trial += static_cast<Wide>(entry.units) * (activity.next - activity.level);
            if (resource.tried) continue;
            resource.tried = true;
            tried_.push_back(entry.resource);
        }
    }
    for (const std::int32_t index : tried_) {
        Resource& resource = resources_[at(index)];
        if (!resource.has_room(resource.trial)) join(index);
        resource.trial = 0;
        resource.tried = false;
    }
    tried_.clear();
    return problem_.size() > before;
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
    for (const std::int32_t resource : problem_) resources_[at(resource)].in_problem = false;
    problem_.clear();
    gathered_.clear();
    gathered_resources_ = 0;
}

// ---- the problem at hand, by progressive filling --------------------------------------------------------------------

/// What holds an activity from outside of the problem.
std::int64_t IncrementalMaxMin::bound(const Activity& activity) {
    std::int64_t lowest = activity.cap;
    for (const Entry& entry : entries(activity)) {
        const Resource& resource = resources_[at(entry.resource)];
        if (!resource.in_problem) lowest = std::min(lowest, resource.level);
    }
    return lowest;
}

void IncrementalMaxMin::begin_filling() {
    filling_.clear();
    for (const std::int32_t index : problem_) {
        Resource& resource = resources_[at(index)];
        resource.left = resource.capacity;
        resource.rising = resource.units;
        resource.level = kUnlimited;
        if (resource.rising > 0) filling_.push_back({level_of(resource.left, resource.rising), index});
    }
    std::make_heap(filling_.begin(), filling_.end());
    bounds_.clear();
    for (const std::int32_t index : gathered_) {
        Activity& activity = activities_[at(index)];
        activity.next = kRising;
        bounds_.push_back({bound(activity), index});
    }
    std::make_heap(bounds_.begin(), bounds_.end());
}

void IncrementalMaxMin::fill() {
    begin_filling();
    while (!bounds_.empty()) {
        const std::int64_t level = std::min(bounds_.front().level, lowest_resource());
        // What is full at this level is known before anything stops here.
        take_full(level);
        while (!bounds_.empty() && bounds_.front().level == level) {
            stop(bounds_.front().index, level);
            std::pop_heap(bounds_.begin(), bounds_.end());
            bounds_.pop_back();
        }
        for (const std::int32_t resource : full_) {
            resources_[at(resource)].level = level;
            for (const Member& member : members_[at(resource)]) stop(member.activity, level);
        }
        while (!bounds_.empty() && activities_[at(bounds_.front().index)].next != kRising) {
            std::pop_heap(bounds_.begin(), bounds_.end());
            bounds_.pop_back();
        }
    }
}

/// The lowest level at which a resource becomes full; kUnlimited when none does.
std::int64_t IncrementalMaxMin::lowest_resource() {
    while (!filling_.empty()) {
        const Stop first = filling_.front();
        const Resource& resource = resources_[at(first.index)];
        const std::int64_t level = resource.rising > 0 ? level_of(resource.left, resource.rising) : kUnlimited;
        if (level == first.level) return level;
        std::pop_heap(filling_.begin(), filling_.end());
        filling_.back().level = level;
        if (level == kUnlimited) {
            filling_.pop_back();
        } else {
            std::push_heap(filling_.begin(), filling_.end());
        }
    }
    return kUnlimited;
}

/// full_: the resources that are full at this level, taken off the heap.
void IncrementalMaxMin::take_full(std::int64_t level) {
    full_.clear();
    if (level == kUnlimited) return;
    while (lowest_resource() == level) {
        full_.push_back(filling_.front().index);
        std::pop_heap(filling_.begin(), filling_.end());
        filling_.pop_back();
    }
}

void IncrementalMaxMin::stop(std::int32_t index, std::int64_t level) {
    Activity& activity = activities_[at(index)];
    if (activity.next != kRising) return;
    activity.next = level;
    for (const Entry& entry : entries(activity)) {
        Resource& resource = resources_[at(entry.resource)];
        if (!resource.in_problem) continue;
        resource.left -= static_cast<Wide>(entry.units) * level;
        resource.rising -= entry.units;
    }
}

}  // namespace orrery::sim
