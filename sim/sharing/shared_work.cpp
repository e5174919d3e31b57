#include "sim/sharing/shared_work.h"

#include <algorithm>
#include <limits>

#include "core/error.h"
#include "core/units.h"

namespace orrery::sim {

namespace {

std::size_t at(std::int64_t index) {
    return static_cast<std::size_t>(index);
}

}  // namespace

std::int32_t SharedWork::add_resource(std::int64_t capacity_units) {
    resources_.emplace_back(capacity_units);
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

void SharedWork::may_draw(std::int32_t activity, std::span<const Draw> draws) {
    for (const Draw& draw : draws) users_.push_back({draw.resource, activity});
}

void SharedWork::may_draw(std::int32_t activity, Draws draws) {
    may_draw(activity, std::span<const Draw>(draws_).subspan(at(draws.first), at(draws.last - draws.first)));
}

void SharedWork::seal(std::int32_t more_slots) {
    std::sort(users_.begin(), users_.end());
    users_.erase(std::unique(users_.begin(), users_.end()), users_.end());
    first_user_.assign(resources_.size() + 1, 0);
    for (const User& user : users_) ++first_user_[at(user.resource) + 1];
    for (std::size_t i = 1; i < first_user_.size(); ++i) first_user_[i] += first_user_[i - 1];
    queue_ = EventQueue(activities_.size() + at(more_slots));
    if (tangents_ == nullptr) return;
    tangents_->set_activities(activities_.size());
    carried_.resize(activities_.size());
    holders_.resize(resources_.size());
}

void SharedWork::start(std::int32_t activity, Draws draws, Draws held, std::int64_t duration_ps, const Moves& moves) {
    Activity& started = activities_[at(activity)];
    started.left = static_cast<Wide>(duration_ps) * kFullRate;
    started.since_ps = queue_.now();
    started.rate = kFullRate;
    started.draws = draws;
    started.held = held;
    started.running = true;
    std::int64_t end = 0;
    if (__builtin_add_overflow(queue_.now(), duration_ps, &end)) refuse_time("the step");
    queue_.schedule(activity, end);
    load(draws, 1);
    hold(held, 1);
    if (tangents_ == nullptr) return;
    Carried& carried = carried_[at(activity)];
    carried.slopes.clear();
    carried.moves = moves;
    set_holder(activity, true);
}

void SharedWork::set_holder(std::int32_t activity, bool holds) {
    const Draws held = activities_[at(activity)].held;
    if (carried_[at(activity)].moves.held_cell < 0) return;
    for (std::int32_t i = held.first; i < held.last; ++i) {
        std::vector<std::int32_t>& holders = holders_[at(draws_[at(i)].resource)];
        if (holds) {
            holders.push_back(activity);
        } else {
            holders.erase(std::find(holders.begin(), holders.end(), activity));
        }
    }
}

Tangents::Run SharedWork::run_of(std::int32_t activity) const {
    const Activity& running = activities_[at(activity)];
    return {running.rate, queue_.now() - running.since_ps, carried_[at(activity)].slopes};
}

void SharedWork::finish(std::int32_t activity) {
    Activity& finished = activities_[at(activity)];
    finished.running = false;
    if (tangents_ != nullptr) tangents_->end(activity, run_of(activity), queue_.now());
    load(finished.draws, -1);
    hold(finished.held, -1);
    if (tangents_ != nullptr) set_holder(activity, false);
}

void SharedWork::change(std::int32_t activity, Draws draws, std::int64_t old_duration_ps, std::int64_t duration_ps) {
    Activity& changed = activities_[at(activity)];
    if (tangents_ != nullptr) tangents_->work_off(activity, run_of(activity));
    work_off(changed);
    if (old_duration_ps > 0) {  // left * new / old, in two parts that fit
        const Wide whole = changed.left / old_duration_ps, rest = changed.left % old_duration_ps;
        changed.left = whole * duration_ps + rest * duration_ps / old_duration_ps;
        if (tangents_ != nullptr) {
            tangents_->stretch(activity, static_cast<double>(duration_ps) / static_cast<double>(old_duration_ps));
        }
    }
    load(changed.draws, -1);
    changed.draws = draws;
    load(draws, 1);
    schedule_end(activity);
}

void SharedWork::mark_dirty(std::int32_t resource) {
    Resource& marked = resources_[at(resource)];
    if (marked.is_dirty) return;
    marked.is_dirty = true;
    dirty_.push_back(resource);
}

void SharedWork::load(Draws draws, std::int64_t sign) {
    for (std::int32_t i = draws.first; i < draws.last; ++i) {
        const Draw& draw = draws_[at(i)];
        Resource& loaded = resources_[at(draw.resource)];
        const bool was_over = loaded.is_over();
        loaded.load_units += sign * draw.units;
        if (was_over || loaded.is_over()) mark_dirty(draw.resource);
    }
}

void SharedWork::hold(Draws draws, std::int64_t sign) {
    for (std::int32_t i = draws.first; i < draws.last; ++i) hold(draws_[at(i)].resource, sign * draws_[at(i)].units);
}

void SharedWork::hold(std::int32_t resource, std::int64_t units) {
    Resource& held = resources_[at(resource)];
    const bool was_over = held.is_over();
    held.hold(units);
    if (was_over || held.is_over()) mark_dirty(resource);
}

/// Up to now, at the rate that it has.
void SharedWork::work_off(Activity& activity) {
    const std::int64_t now = queue_.now();
    activity.left -= static_cast<Wide>(now - activity.since_ps) * activity.rate;
    if (activity.left < 0) activity.left = 0;  // it ends now; its last picosecond was rounded up
    activity.since_ps = now;
}

/// The one place where the end of shared work is rounded: up to the next picosecond.
void SharedWork::schedule_end(std::int32_t activity) {
    const Activity& scheduled = activities_[at(activity)];
    const Wide duration = (scheduled.left + scheduled.rate - 1) / scheduled.rate;
    if (duration >= std::numeric_limits<std::int64_t>::max() - queue_.now()) refuse_time("the step");
    queue_.schedule(activity, queue_.now() + static_cast<std::int64_t>(duration));
}

void SharedWork::set_rate(std::int32_t activity, std::int64_t rate) {
    Activity& changed = activities_[at(activity)];
    if (changed.rate == rate) return;
    if (tangents_ != nullptr) tangents_->work_off(activity, run_of(activity));
    work_off(changed);
    changed.rate = rate;
    schedule_end(activity);
}

void SharedWork::add_slope(std::vector<Tangents::Term>& slopes, std::int32_t cell, double slope) {
    if (cell < 0 || slope == 0) return;
    const auto known = std::find_if(slopes.begin(), slopes.end(), [cell](const auto& one) { return one.cell == cell; });
    if (known == slopes.end()) {
        slopes.push_back({cell, slope});
    } else {
        known->picoseconds += slope;
    }
}

/// Of what the activity draws on, the resource that leaves its users least of what they ask; -1: none is over.
std::int32_t SharedWork::narrowest(const Activity& activity) const {
    std::int32_t found = -1;
    double least = 1;
    for (std::int32_t i = activity.draws.first; i < activity.draws.last; ++i) {
        const std::int32_t number = draws_[at(i)].resource;
        const Resource& resource = resources_[at(number)];
        if (!resource.is_over()) continue;
        const double level = static_cast<double>(resource.free_units) / static_cast<double>(resource.load_units);
        if (found >= 0 && level >= least) continue;
        found = number;
        least = level;
    }
    return found;
}

/// On a resource that is full, level = (capacity - held) / units demanded. What is held may grow with a cell's rate.
void SharedWork::set_slopes(std::int32_t activity) {
    std::vector<Tangents::Term>& slopes = carried_[at(activity)].slopes;
    slopes.clear();
    if (activities_[at(activity)].rate == kFullRate) return;
    const std::int32_t number = narrowest(activities_[at(activity)]);
    if (number < 0) return;
    const Resource& resource = resources_[at(number)];
    if (resource.capacity_units - resource.held_units < resource.free_units) return;  // held whole: kLeastShare
    for (const std::int32_t holder : holders_[at(number)]) {
        const Activity& other = activities_[at(holder)];
        double units = 0;
        for (std::int32_t i = other.held.first; i < other.held.last; ++i) {
            if (draws_[at(i)].resource == number) units += static_cast<double>(draws_[at(i)].units);
        }
        const Moves& moves = carried_[at(holder)].moves;
        add_slope(slopes, moves.held_cell, -moves.held_share * units / static_cast<double>(resource.load_units));
    }
}

void SharedWork::join_resource(std::int32_t resource) {
    Resource& state = resources_[at(resource)];
    if (state.index >= 0) return;
    state.index = static_cast<std::int32_t>(problem_resources_.size());
    problem_resources_.push_back(resource);
    problem_capacities_.push_back(static_cast<Wide>(state.free_units) * kFullRate);
}

void SharedWork::join(std::int32_t activity) {
    Activity& state = activities_[at(activity)];
    if (state.index >= 0 || !state.running) return;
    state.index = static_cast<std::int32_t>(problem_activities_.size());
    problem_activities_.push_back(activity);
    for (std::int32_t i = state.draws.first; i < state.draws.last; ++i) {
        const Resource& resource = resources_[at(draws_[at(i)].resource)];
        if (resource.is_over()) join_resource(draws_[at(i)].resource);
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
        if (tangents_ != nullptr) set_slopes(problem_activities_[i]);
        activities_[at(problem_activities_[i])].index = -1;
    }
    for (const std::int32_t resource : problem_resources_) resources_[at(resource)].index = -1;
}

}  // namespace orrery::sim
