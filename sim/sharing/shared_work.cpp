#include "sim/sharing/shared_work.h"

#include <algorithm>
#include <limits>

#include "core/error.h"
#include "core/index.h"
#include "core/units.h"

namespace orrery::sim {

std::int32_t SharedWork::add_activities(std::int32_t count) {
    activities_.resize(activities_.size() + at(count));
    queue_.resize(activities_.size());
    return sharing_.add_activities(count);
}

void SharedWork::seal(std::int32_t more_slots) {
    queue_.resize(activities_.size() + at(more_slots));
    for (std::int32_t resource = 0; resource < sharing_.resource_count(); ++resource) {
        const auto units = static_cast<std::int64_t>(sharing_.capacity(resource) / kFullRate);
        held_.push_back({.capacity_units = units, .least_units = std::max<std::int64_t>(units / kLeastShare, 1)});
    }
    if (tangents_ == nullptr) return;
    tangents_->set_activities(activities_.size());
    carried_.resize(activities_.size());
    movers_.resize(held_.size());
}

void SharedWork::start(std::int32_t activity, Draws draws, Draws held, std::int64_t duration_ps,
                       std::span<const Move> moves) {
    Activity& started = activities_[at(activity)];
    started.left = static_cast<Wide>(duration_ps) * kFullRate;
    started.since_ps = queue_.now();
    started.held = held;
    // An activity without duration uses no resource.
    if (sharing_.start(activity, duration_ps > 0 ? draws : Draws{}, kFullRate)) {
        started.rate = kFullRate;
        std::int64_t end = 0;
        if (__builtin_add_overflow(queue_.now(), duration_ps, &end)) refuse_time("the step");
        queue_.schedule(activity, end);
    } else {
        await_settling(activity);
    }
    if (held.last > 0) hold(held, 1);
    if (tangents_ == nullptr) return;
    Carried& carried = carried_[at(activity)];
    carried.slopes.clear();
    carried.moves = moves;
    list_moves(activity, true);
}

void SharedWork::start(std::int32_t activity, Draws draws, const Work& work) {
    Activity& started = activities_[at(activity)];
    started = {.left = work.left, .since_ps = queue_.now(), .weight = work.weight, .order = work.order};
    if (sharing_.start(activity, draws, work.cap, work.weight)) {
        started.rate = work.cap * work.weight;
        schedule_end(activity);
    } else {
        await_settling(activity);
    }
}

void SharedWork::await_settling(std::int32_t activity) {
    activities_[at(activity)].rate = 0;
    ++standing_still_;
    unsettled_.push_back(activity);
}

void SharedWork::list_moves(std::int32_t activity, bool runs) {
    for (const Move& move : carried_[at(activity)].moves) {
        std::vector<std::int32_t>& movers = movers_[at(move.resource)];
        const auto known = std::find(movers.begin(), movers.end(), activity);
        if (runs && known == movers.end()) movers.push_back(activity);
        if (!runs && known != movers.end()) movers.erase(known);
    }
}

/// An activity that is not settled yet counts as running at full speed, since no time has passed.
Tangents::Run SharedWork::run_of(std::int32_t activity) const {
    const Activity& running = activities_[at(activity)];
    return {running.rate > 0 ? running.rate : kFullRate, queue_.now() - running.since_ps,
            carried_[at(activity)].slopes};
}

void SharedWork::finish(std::int32_t activity) {
    if (tangents_ != nullptr) tangents_->end(activity, run_of(activity), queue_.now());
    sharing_.stop(activity);
    const Draws held = activities_[at(activity)].held;
    if (held.last > 0) hold(held, -1);
    if (tangents_ != nullptr) list_moves(activity, false);
}

void SharedWork::change(std::int32_t activity, Draws draws, std::int64_t old_duration_ps, std::int64_t duration_ps) {
    Activity& changed = activities_[at(activity)];
    if (tangents_ != nullptr) tangents_->work_off(activity, run_of(activity));
    work_off(changed);
    if (old_duration_ps > 0) {  // left * new / old, in two parts that do not overflow
        const Wide whole = changed.left / old_duration_ps, rest = changed.left % old_duration_ps;
        changed.left = whole * duration_ps + rest * duration_ps / old_duration_ps;
        if (tangents_ != nullptr) {
            tangents_->stretch(activity, static_cast<double>(duration_ps) / static_cast<double>(old_duration_ps));
        }
    }
    sharing_.stop(activity);
    if (changed.rate == 0) --standing_still_;
    if (sharing_.start(activity, changed.left > 0 ? draws : Draws{}, kFullRate)) {
        changed.rate = kFullRate;
    } else {
        await_settling(activity);
    }
    schedule_end(activity);
}

void SharedWork::hold(Draws draws, std::int64_t sign) {
    for (const Draw& draw : sharing_.list(draws)) hold(draw.resource, sign * draw.units);
}

void SharedWork::hold(std::int32_t resource, std::int64_t units) {
    Held& held = held_[at(resource)];
    held.held_units += units;
    sharing_.set_capacity(resource, static_cast<Wide>(held.free_units()) * kFullRate);
}

/// Advances the activity's work to now at its current rate.
void SharedWork::work_off(Activity& activity) {
    const std::int64_t now = queue_.now();
    activity.left -= static_cast<Wide>(now - activity.since_ps) * activity.rate;
    if (activity.left < 0) activity.left = 0;  // it ends now, at a time that was rounded up
    activity.since_ps = now;
}

/// Schedules the end of the activity, rounded up to the next picosecond. Ends are rounded nowhere else.
void SharedWork::schedule_end(std::int32_t activity) {
    const Activity& scheduled = activities_[at(activity)];
    if (scheduled.rate == 0) {
        queue_.cancel(activity);
        return;
    }
    const Wide duration = (scheduled.left + scheduled.rate - 1) / scheduled.rate;
    if (duration >= std::numeric_limits<std::int64_t>::max() - queue_.now()) {
        if (too_long_) too_long_(activity, scheduled.rate);
        refuse_time("the step");
    }
    const std::int64_t end_ps = queue_.now() + static_cast<std::int64_t>(duration);
    if (scheduled.order != 0) {
        queue_.schedule(activity, end_ps, scheduled.order);
    } else {
        queue_.schedule(activity, end_ps);
    }
}

void SharedWork::set_rate(std::int32_t activity) {
    Activity& changed = activities_[at(activity)];
    const std::int64_t rate = sharing_.level(activity) * changed.weight;
    if (changed.rate == rate) return;
    if (tangents_ != nullptr) tangents_->work_off(activity, run_of(activity));
    work_off(changed);
    if (rate == 0) ++standing_still_;
    if (changed.rate == 0) --standing_still_;
    changed.rate = rate;
    schedule_end(activity);
}

void SharedWork::add_slope(std::vector<Tangents::Term>& slopes, std::int32_t cell, double slope) {
    if (slope == 0) return;
    const auto known = std::find_if(slopes.begin(), slopes.end(), [cell](const auto& one) { return one.cell == cell; });
    if (known == slopes.end()) {
        slopes.push_back({cell, slope});
    } else {
        known->picoseconds += slope;
    }
}

/// The most over-subscribed resource on which the activity draws; -1: none is over-subscribed.
std::int32_t SharedWork::narrowest(std::int32_t activity) const {
    std::int32_t found = -1;
    double least = 1;
    for (const Draw& draw : sharing_.draws_of(activity)) {
        const std::int64_t free_units = held_[at(draw.resource)].free_units();
        const std::int64_t load_units = sharing_.units(draw.resource);
        if (load_units <= free_units) continue;
        const double level = static_cast<double>(free_units) / static_cast<double>(load_units);
        if (found >= 0 && level >= least) continue;
        found = draw.resource;
        least = level;
    }
    return found;
}

/// On a full resource, level = (capacity - held) / units drawn. Moves change both.
void SharedWork::set_slopes(std::int32_t activity) {
    std::vector<Tangents::Term>& slopes = carried_[at(activity)].slopes;
    slopes.clear();
    if (activities_[at(activity)].rate == kFullRate) return;
    const std::int32_t number = narrowest(activity);
    if (number < 0) return;
    const Held& resource = held_[at(number)];
    const bool is_held_whole = resource.capacity_units - resource.held_units < resource.free_units();  // kLeastShare
    const auto drawn_units = static_cast<double>(sharing_.units(number));
    const double level = static_cast<double>(resource.free_units()) / drawn_units;
    for (const std::int32_t mover : movers_[at(number)]) {
        for (const Move& move : carried_[at(mover)].moves) {
            if (move.resource != number) continue;
            const double less_free = is_held_whole ? 0 : move.held_units;
            add_slope(slopes, move.cell, -(less_free + level * move.drawn_units) / drawn_units);
        }
    }
}

void SharedWork::settle() {
    const auto set = [this](std::int32_t activity) {
        set_rate(activity);
        if (tangents_ != nullptr) set_slopes(activity);
    };
    const std::vector<std::int32_t>& changed = sharing_.settle();
    for (const std::int32_t activity : unsettled_) set(activity);
    unsettled_.clear();
    for (const std::int32_t activity : changed) set(activity);
}

}  // namespace orrery::sim
