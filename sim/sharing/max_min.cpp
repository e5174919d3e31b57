#include "sim/sharing/max_min.h"

#include <cstddef>
#include <limits>

#include "core/error.h"

namespace orrery::sim {

namespace {

/// The level at which a resource is full, if its remaining capacity goes to its rising activities at equal levels.
std::int64_t level_of(Wide left, std::int64_t rising_units) {
    const Wide level = left / rising_units;
    return level >= kUnlimited ? kUnlimited : static_cast<std::int64_t>(level);
}

}  // namespace

std::int32_t MaxMin::add_resource(Wide capacity) {
    resources_.push_back({.capacity = capacity});
    users_.emplace_back();
    return static_cast<std::int32_t>(resources_.size()) - 1;
}

MaxMin::Draws MaxMin::add_draws(std::span<const Draw> draws) {
    const auto first = static_cast<std::int32_t>(draws_.size());
    draws_.insert(draws_.end(), draws.begin(), draws.end());
    ORRERY_CHECK(draws_.size() <= std::numeric_limits<std::int32_t>::max(), "too many draws on shared resources");
    return {first, static_cast<std::int32_t>(draws_.size())};
}

std::int32_t MaxMin::add_activities(std::int32_t count) {
    const auto first = static_cast<std::int32_t>(activities_.size());
    activities_.resize(activities_.size() + at(count));
    return first;
}

/// Outdated users are removed before a list grows.
void MaxMin::may_draw(std::int32_t activity, std::span<const Draw> draws) {
    const std::int32_t generation = activities_[at(activity)].generation;
    activities_[at(activity)].enlisted = kSeveral;
    for (const Draw& draw : draws) {
        std::vector<User>& users = users_[at(draw.resource)];
        if (!users.empty() && users.back().activity == activity && users.back().generation == generation) {
            users.back().units += draw.units;
            continue;
        }
        if (users.size() == users.capacity()) {
            each_user(draw.resource, [](const User&) {});
            users.reserve(std::max<std::size_t>(1, 2 * users.size()));
        }
        users.push_back({activity, generation, draw.units});
    }
}

void MaxMin::may_draw(std::int32_t activity, Draws draws) {
    const bool is_only_one = activities_[at(activity)].enlisted == Draws{};
    may_draw(activity, list(draws));
    if (is_only_one) activities_[at(activity)].enlisted = draws;
}

void MaxMin::take_level(Activity& activity, std::int64_t level) {
    const std::int64_t rise = Activity::next_of(level, activity.cap) - activity.next_level();
    for (const Draw& draw : list(activity.draws)) {
        resources_[at(draw.resource)].load += static_cast<Wide>(draw.units * activity.weight) * rise;
    }
    activity.level = level;
}

// ---- resources that are solved alone --------------------------------------------------------------------------------

const std::vector<std::int32_t>& MaxMin::settle() {
    changed_.clear();
    for (const std::int32_t resource : dirty_) {
        Resource& state = resources_[at(resource)];
        if (state.in_problem || state.has_slack()) continue;
        if (state.skips_alone > 0) {
            --state.skips_alone;
        } else if (try_alone(resource)) {
            continue;
        }
        add_to_problem(resource);
    }
    for (const std::int32_t resource : dirty_) resources_[at(resource)].dirty = false;
    dirty_.clear();
    if (!problem_.empty()) solve_problem();
    return changed_;
}

/// Calls solve_alone(), which settle() then skips for a while if it fails, twice as long after each failure.
bool MaxMin::try_alone(std::int32_t index) {
    Resource& resource = resources_[at(index)];
    const bool solved = solve_alone(index);
    resource.most_skips = solved ? 0 : static_cast<std::uint8_t>(std::min(2 * resource.most_skips + 1, kMostSkips));
    resource.skips_alone = resource.most_skips;
    return solved;
}

/// Solves the resource alone if its activities draw only on other resources with slack and their new levels leave these
/// with slack. Otherwise returns false and changes nothing.
bool MaxMin::solve_alone(std::int32_t index) {
    Resource& resource = resources_[at(index)];
    gathered_.clear();
    gathered_units_.clear();
    resource.rising = 0;
    if (!gather_alone(index)) return false;
    resource.left = resource.capacity;
    std::int64_t level = kUnlimited;
    // An activity that stops at a cap below the level never lowers the level, so all of them can stop at once.
    for (bool settled = false; !settled;) {
        settled = true;
        level = resource.rising > 0 ? level_of(resource.left, resource.rising) : kUnlimited;
        for (std::size_t i = 0; i < gathered_.size(); ++i) {
            Activity& activity = activities_[at(gathered_[i])];
            if (activity.next != kRising || activity.cap > level) continue;
            activity.next = activity.cap;
            resource.left -= static_cast<Wide>(gathered_units_[i]) * activity.cap;
            resource.rising -= gathered_units_[i];
            settled = false;
        }
    }
    for (const std::int32_t user : gathered_) {
        Activity& activity = activities_[at(user)];
        if (activity.next == kRising) activity.next = level;
    }
    const std::int64_t before = resource.level;
    resource.level = level;
    if (set_levels(index)) return true;
    resource.level = before;
    return false;
}

/// Gathers the activities on the resource; false if one of them draws on another resource without slack, or if the
/// sweep is likely to be needed or faster.
bool MaxMin::gather_alone(std::int32_t index) {
    constexpr std::size_t kMost = 16;  // the sweep, which uses heaps, is better for more
    Resource& resource = resources_[at(index)];
    return while_users(index, [&](const User& user) {
        Activity& activity = activities_[at(user.activity)];
        if (activity.cap == kUnlimited) {  // such an activity usually fills several resources
            resource.most_skips = kMostSkips;
            return false;
        }
        std::int64_t units = 0;
        for (const Draw& draw : list(activity.draws)) {
            if (draw.resource == index) {
                units += draw.units * activity.weight;
            } else if (!resources_[at(draw.resource)].has_slack()) {
                return false;
            }
        }
        if (units == 0) return true;
        if (gathered_.size() == kMost) return false;
        activity.next = kRising;
        gathered_.push_back(user.activity);
        gathered_units_.push_back(units);
        resource.rising += units;
        return true;
    });
}

/// Sets the levels of the gathered activities. Undoes that and returns false if another resource loses its slack.
bool MaxMin::set_levels(std::int32_t index) {
    const auto exchange = [this] {
        for (const std::int32_t user : gathered_) {
            Activity& activity = activities_[at(user)];
            const std::int64_t before = activity.level;
            if (before != activity.next) take_level(activity, activity.next);
            activity.next = before;
        }
    };
    exchange();
    for (const std::int32_t user : gathered_) {
        const Activity& activity = activities_[at(user)];
        if (activity.level <= activity.next) continue;
        for (const Draw& draw : list(activity.draws)) {
            if (draw.resource == index || resources_[at(draw.resource)].has_slack()) continue;
            exchange();
            return false;
        }
    }
    for (const std::int32_t user : gathered_) {
        if (activities_[at(user)].level != activities_[at(user)].next) changed_.push_back(user);
    }
    return true;
}

// ---- the sweep ------------------------------------------------------------------------------------------------------

void MaxMin::solve_problem() {
    gathered_.clear();
    while (true) {
        const std::size_t known = problem_.size();
        begin_sweep();
        sweep();
        const std::size_t joined = problem_.size();
        if (others_keep_slack()) break;
        leave_problem(known, joined);
    }
    commit();
}

void MaxMin::add_to_problem(std::int32_t resource) {
    if (resources_[at(resource)].in_problem) return;
    resources_[at(resource)].in_problem = true;
    problem_.push_back(resource);
    before_.push_back(resources_[at(resource)].level);
}

/// Removes the resources that joined during a sweep that must be repeated; the next sweep finds again where they join.
void MaxMin::leave_problem(std::size_t first, std::size_t last) {
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

/// The lowest level of the activity's resources outside of the problem.
std::int64_t MaxMin::bound(const Activity& activity) const {
    std::int64_t lowest = kUnlimited;
    for (const Draw& draw : list(activity.draws)) {
        const Resource& resource = resources_[at(draw.resource)];
        if (!resource.in_problem) lowest = std::min(lowest, resource.level);
    }
    return lowest;
}

/// Schedules the activity's next stop in the sweep, if it has one besides the resources in the problem.
void MaxMin::await_next_stop(std::int32_t index) {
    const Activity& activity = activities_[at(index)];
    const std::int64_t level = activity.passed ? activity.bound : std::min(activity.level, activity.bound);
    const std::uint64_t stop = std::min(cap_stop(activity.cap), stop_at(level));
    if (stop < cap_stop(kUnlimited)) coming_.push({stop, index});
}

/// Adds an activity, which is not in the problem yet, rising.
void MaxMin::gather(std::int32_t index) {
    Activity& activity = activities_[at(index)];
    activity.in_problem = true;
    activity.passed = false;
    activity.next = kRising;
    activity.bound = bound(activity);
    gathered_.push_back(index);
    await_next_stop(index);
}

/// Begins at level 0 with the resources that are known to be in the problem.
void MaxMin::begin_sweep() {
    for (const std::int32_t activity : gathered_) activities_[at(activity)].in_problem = false;
    gathered_.clear();
    coming_.clear();
    filling_.clear();
    for (const std::int32_t index : problem_) {
        Resource& resource = resources_[at(index)];
        resource.left = resource.capacity;
        resource.rising = resource.units;
        await_full(index);
        each_user(index, [&](const User& user) {
            if (!activities_[at(user.activity)].in_problem && draws_now(user, index)) gather(user.activity);
        });
    }
}

void MaxMin::sweep() {
    while (true) {
        const std::uint64_t coming = coming_.empty() ? cap_stop(kUnlimited) : coming_.front().stop;
        const std::uint64_t stop = std::min(coming, lowest_resource());
        if (stop >= cap_stop(kUnlimited)) break;
        if (stop % 2 == 0) {
            stop_at_caps(stop);
        } else {
            sweep_level(static_cast<std::int64_t>(stop / 2));
        }
    }
    for (const std::int32_t index : gathered_) {
        if (activities_[at(index)].next == kRising) stop_rising(index, kUnlimited);
    }
    ORRERY_CHECK(joining_.empty(), "a resource joins after the sweep has passed");
}

/// Stops the activities whose cap is at this stop, before resources of the same level are looked at: an activity at its
/// cap does not need room for one more level.
void MaxMin::stop_at_caps(std::uint64_t stop) {
    while (!coming_.empty() && coming_.front().stop == stop) {
        const std::int32_t index = coming_.pop();
        stop_rising(index, activities_[at(index)].cap);
    }
}

void MaxMin::sweep_level(std::int64_t level) {
    full_.clear();  // all resources that fill at this level are found before any activity stops
    while (lowest_resource() == stop_at(level)) full_.push_back(filling_.pop());
    for (const std::int32_t resource : full_) {
        resources_[at(resource)].level = level;
        for (const User& user : users_[at(resource)]) {  // outdated ones were removed when the resource was gathered
            const Activity& activity = activities_[at(user.activity)];
            if (activity.in_problem && activity.next == kRising && draws_now(user, resource)) {
                stop_rising(user.activity, level);
            }
        }
    }
    while (true) {
        if (!joining_.empty()) {
            const std::int32_t resource = joining_.back();
            joining_.pop_back();
            join(resource, level);
        } else if (!coming_.empty() && coming_.front().stop == stop_at(level)) {
            come_to(coming_.pop(), level);
        } else {
            return;
        }
    }
}

/// Schedules the stop at which the resource fills; its level is unknown until then.
void MaxMin::await_full(std::int32_t index) {
    Resource& resource = resources_[at(index)];
    resource.level = kUnlimited;
    resource.stale = false;
    if (resource.rising == 0) return;
    filling_.push({stop_at(level_of(resource.left, resource.rising)), index});
}

/// The stop at which the next resource fills; stop_at(kUnlimited) if none does.
std::uint64_t MaxMin::lowest_resource() {
    while (!filling_.empty()) {
        if (!resources_[at(filling_.front().index)].stale) return filling_.front().stop;
        await_full(filling_.pop());
    }
    return stop_at(kUnlimited);
}

/// Called when the sweep is at a stop of the activity: its bound or its old level.
void MaxMin::come_to(std::int32_t index, std::int64_t level) {
    Activity& activity = activities_[at(index)];
    if (activity.next != kRising) return;
    if (activity.bound == level) {
        stop_rising(index, level);
        return;
    }
    if (!activity.passed && activity.level == level) {
        activity.passed = true;
        reach(activity);
    }
    await_next_stop(index);  // resources that joined may have raised its bound
}

/// From the current level on the activity differs from the old solution, and so do the full resources on which it
/// draws: they join.
void MaxMin::reach(const Activity& activity) {
    for (const Draw& draw : list(activity.draws)) {
        Resource& resource = resources_[at(draw.resource)];
        if (resource.in_problem || resource.level == kUnlimited) continue;
        add_to_problem(draw.resource);
        joining_.push_back(draw.resource);
    }
}

/// Adds a resource to the sweep on which nothing has changed up to this level. It cannot be full at this level: its old
/// level is higher, and whether it is full at a level depends only on caps and on activities that stop below.
void MaxMin::join(std::int32_t index, std::int64_t level) {
    Resource& resource = resources_[at(index)];
    resource.left = resource.capacity;
    resource.rising = 0;
    each_user(index, [&](const User& user) {
        Activity& activity = activities_[at(user.activity)];
        const std::int64_t units = units_on(user, index);
        if (units == 0) return;
        if (!activity.in_problem && activity.level >= level && activity.cap > level) {
            gather(user.activity);
        } else if (activity.in_problem && activity.next == kRising) {
            activity.bound = bound(activity);
        } else {
            resource.left -= static_cast<Wide>(units) * (activity.in_problem ? activity.next : activity.level);
            return;
        }
        resource.rising += units;
    });
    await_full(index);
}

/// Stops the activity, unless it has stopped already.
void MaxMin::stop_rising(std::int32_t index, std::int64_t level) {
    Activity& activity = activities_[at(index)];
    if (activity.next != kRising) return;
    activity.next = level;
    for (const Draw& draw : list(activity.draws)) {
        Resource& resource = resources_[at(draw.resource)];
        if (!resource.in_problem) continue;
        const std::int64_t units = draw.units * activity.weight;
        resource.left -= static_cast<Wide>(units) * level;
        resource.rising -= units;
        resource.stale = true;
    }
    if (level != activity.level) reach(activity);
}

/// Whether all resources outside of the problem that had slack keep it. Those that lose it are added to the problem.
bool MaxMin::others_keep_slack() {
    const std::size_t before = problem_.size();
    for (const std::int32_t index : gathered_) {
        const Activity& activity = activities_[at(index)];
        if (activity.next == activity.level) continue;
        const std::int64_t rise = Activity::next_of(activity.next, activity.cap) - activity.next_level();
        for (const Draw& draw : list(activity.draws)) {
            Resource& resource = resources_[at(draw.resource)];
            if (resource.in_problem) continue;
            resource.trial += static_cast<Wide>(draw.units * activity.weight) * rise;
            if (resource.tried) continue;
            resource.tried = true;
            tried_.push_back(draw.resource);
        }
    }
    for (const std::int32_t index : tried_) {
        Resource& resource = resources_[at(index)];
        if (resource.load + resource.trial > resource.capacity) add_to_problem(index);
        resource.trial = 0;
        resource.tried = false;
    }
    tried_.clear();
    return problem_.size() == before;
}

void MaxMin::commit() {
    for (const std::int32_t index : gathered_) {
        Activity& activity = activities_[at(index)];
        activity.in_problem = false;
        if (activity.next == activity.level) continue;
        take_level(activity, activity.next);
        changed_.push_back(index);
    }
    for (const std::int32_t resource : problem_) resources_[at(resource)].in_problem = false;
    problem_.clear();
    before_.clear();
    gathered_.clear();
}

}  // namespace orrery::sim
