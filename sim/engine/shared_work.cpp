#include "sim/engine/shared_work.h"

#include <algorithm>
#include <limits>

#include "core/error.h"

namespace orrery::sim {

namespace {

std::size_t at(std::int64_t index) {
    return static_cast<std::size_t>(index);
}

}  // namespace

std::int32_t SharedWork::add_resource(std::int64_t capacity_units) {
    resources_.push_back({.capacity_units = capacity_units});
    return static_cast<std::int32_t>(resources_.size()) - 1;
}

SharedWork::Draws SharedWork::add_draws(std::span<const Draw> draws) {
    const auto first = static_cast<std::int32_t>(draws_.size());
    draws_.insert(draws_.end(), draws.begin(), draws.end());
    ORRERY_CHECK(draws_.size() <= std::numeric_limits<std::int32_t>::max(), "too many demands on shared resources");
    return {first, static_cast<std::int32_t>(draws_.size())};
}

std::int32_t SharedWork::add_activities(std::int32_t count) {
    const std::int32_t first = activity_count();
    activities_.resize(activities_.size() + at(count));
    return first;
}

void SharedWork::may_draw(std::int32_t activity, Draws draws) {
    for (std::int32_t i = draws.first; i < draws.last; ++i) users_.push_back({draws_[at(i)].resource, activity});
}

void SharedWork::seal(std::int32_t more_slots) {
    std::sort(users_.begin(), users_.end());
    users_.erase(std::unique(users_.begin(), users_.end()), users_.end());
    first_user_.assign(resources_.size() + 1, 0);
    for (const User& user : users_) ++first_user_[at(user.resource) + 1];
    for (std::size_t i = 1; i < first_user_.size(); ++i) first_user_[i] += first_user_[i - 1];
    queue_ = EventQueue(activities_.size() + at(more_slots));
}

void SharedWork::start(std::int32_t activity, Draws draws, std::int64_t duration_ps) {
    Activity& started = activities_[at(activity)];
    started.left = static_cast<Wide>(duration_ps) * kFullRate;
    started.since_ps = queue_.now();
    started.rate = kFullRate;
    started.draws = draws;
    started.running = true;
    std::int64_t end = 0;
    ORRERY_CHECK(!__builtin_add_overflow(queue_.now(), duration_ps, &end), "the simulated time exceeds 106 days");
    queue_.schedule(activity, end);
    change_loads(draws, 1);
}

void SharedWork::finish(std::int32_t activity) {
    activities_[at(activity)].running = false;
    change_loads(activities_[at(activity)].draws, -1);
}

void SharedWork::change_loads(Draws draws, std::int64_t sign) {
    for (std::int32_t i = draws.first; i < draws.last; ++i) {
        const Draw& draw = draws_[at(i)];
        Resource& resource = resources_[at(draw.resource)];
        const bool was_over = resource.load_units > resource.capacity_units;
        resource.load_units += sign * draw.units;
        if (!was_over && resource.load_units <= resource.capacity_units) continue;
        if (resource.is_dirty) continue;
        resource.is_dirty = true;
        dirty_.push_back(draw.resource);
    }
}

void SharedWork::set_rate(std::int32_t activity, std::int64_t rate) {
    Activity& changed = activities_[at(activity)];
    if (changed.rate == rate) return;
    const std::int64_t now = queue_.now();
    changed.left -= static_cast<Wide>(now - changed.since_ps) * changed.rate;
    if (changed.left < 0) changed.left = 0;  // it ends now; its last picosecond was rounded up
    changed.since_ps = now;
    changed.rate = rate;
    // The one place where the end of shared work is rounded: up to the next picosecond.
    const Wide duration = (changed.left + rate - 1) / rate;
    ORRERY_CHECK(duration < std::numeric_limits<std::int64_t>::max() - now, "the simulated time exceeds 106 days");
    queue_.schedule(activity, now + static_cast<std::int64_t>(duration));
}

void SharedWork::join_resource(std::int32_t resource) {
    Resource& state = resources_[at(resource)];
    if (state.index >= 0) return;
    state.index = static_cast<std::int32_t>(problem_resources_.size());
    problem_resources_.push_back(resource);
    problem_capacities_.push_back(static_cast<Wide>(state.capacity_units) * kFullRate);
}

void SharedWork::join(std::int32_t activity) {
    Activity& state = activities_[at(activity)];
    if (state.index >= 0 || !state.running) return;
    state.index = static_cast<std::int32_t>(problem_activities_.size());
    problem_activities_.push_back(activity);
    for (std::int32_t i = state.draws.first; i < state.draws.last; ++i) {
        const Resource& resource = resources_[at(draws_[at(i)].resource)];
        if (resource.load_units > resource.capacity_units) join_resource(draws_[at(i)].resource);
    }
}

/// The dirty resources, and what work on them couples them with: over-subscribed ones and dirty ones that no longer
/// are.
void SharedWork::collect_problem() {
    problem_resources_.clear();
    problem_activities_.clear();
    problem_capacities_.clear();
    problem_demands_.clear();
    for (const std::int32_t resource : dirty_) {
        resources_[at(resource)].is_dirty = false;
        join_resource(resource);
    }
    dirty_.clear();
    for (std::size_t next = 0; next < problem_resources_.size(); ++next) {
        const std::size_t resource = at(problem_resources_[next]);
        for (std::int32_t i = first_user_[resource]; i < first_user_[resource + 1]; ++i) join(users_[at(i)].activity);
    }
    for (std::size_t i = 0; i < problem_activities_.size(); ++i) {
        const Draws draws = activities_[at(problem_activities_[i])].draws;
        for (std::int32_t d = draws.first; d < draws.last; ++d) {
            const Draw& draw = draws_[at(d)];
            const std::int32_t resource = resources_[at(draw.resource)].index;
            if (resource >= 0) problem_demands_.push_back({static_cast<std::int32_t>(i), resource, draw.units});
        }
    }
}

void SharedWork::settle() {
    collect_problem();
    problem_caps_.assign(problem_activities_.size(), kFullRate);
    const std::vector<std::int64_t>& rates = solver_.levels(problem_capacities_, problem_caps_, problem_demands_);
    for (std::size_t i = 0; i < problem_activities_.size(); ++i) {
        ORRERY_CHECK(rates[i] > 0, "a resource is shared by more than it can divide");
        set_rate(problem_activities_[i], rates[i]);
        activities_[at(problem_activities_[i])].index = -1;
    }
    for (const std::int32_t resource : problem_resources_) resources_[at(resource)].index = -1;
}

}  // namespace orrery::sim
