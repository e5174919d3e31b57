// The fields of a capacity answer's file (core/json_fields.h).
#pragma once

#include "sim/program/capacity_answer.h"
#include "sim/program/scaling_fields.h"

namespace orrery::program {

template <Either<CapacityGoal> Object>
void visit_fields(Object& g, auto&& visit) {
    visit("model", g.model, kRequired);
    visit("tokens", g.tokens, kRequired, kPositive);
    visit("sequence_length", g.sequence_length, kRequired, kSequenceLimits);
    visit("global_batch_size", g.global_batch_size, kRequired, kBatchLimits);
    visit("days", g.days, kRequired, kPositive);
    visit("probability", g.probability, kRequired, kFraction);
    visit("start", g.start, kIfChanged);
    visit("by", g.by, kIfChanged);
    visit("max_usd", g.max_usd, Presence{}, OrNotKnown{});
    visit("max_megawatts", g.max_megawatts, Presence{}, OrNotKnown{});
    visit("max_devices", g.max_devices, kRequired, kDegreeLimits);
}

template <Either<CapacitySize> Object>
void visit_fields(Object& s, auto&& visit) {
    visit("devices", s.devices, kRequired, kDegreeLimits);
    visit("spare_devices", s.spare_devices, kRequired, kNumber);
    visit("reason", s.reason, kIfChanged);
    const Presence found = required_if(s.is_found());
    visit("point", s.point, found);
    visit("hours_between_interruptions", s.hours_between_interruptions, found, kPositive);
    visit("checkpoint_gb", s.checkpoint_gb, found, kPositive);
    visit("checkpoint_s", s.checkpoint_s, found, kNotNegative);
    visit("checkpoint_interval_s", s.checkpoint_interval_s, found, kPositive);
    visit("recovery_s", s.recovery_s, found, kNotNegative);
    visit("goodput", s.goodput, found, kFraction);
    visit("days_ideal", s.days_ideal, found, kPositive);
    visit("days_p10", s.days_p10, found, kPositive);
    visit("days_p50", s.days_p50, found, kPositive);
    visit("days_p90", s.days_p90, found, kPositive);
    visit("days_needed", s.days_needed, found, kPositive);
    const Presence maybe{.exists = s.is_found()};
    visit("usd", s.usd, maybe, OrNotKnown{});
    visit("megawatt_hours", s.megawatt_hours, maybe, OrNotKnown{});
    visit("megawatts", s.megawatts, maybe, OrNotKnown{});
}

template <Either<CapacityAnswer> Object>
void visit_fields(Object& a, auto&& visit) {
    visit("cluster", a.cluster, kRequired);
    visit("devices_per_node", a.devices_per_node, kRequired, kDegreeLimits);
    visit("meets", a.meets, kRequired);
    visit("limit", a.limit, kRequired);
    visit("best", a.best, kRequired);
    visit("explored", a.explored, kRequired);
    visit("figures", a.figures, kRequired);
}

template <Either<Capacity> Object>
void visit_fields(Object& c, auto&& visit) {
    visit("goal", c.goal, kRequired);
    visit("faults", c.faults, kRequired);
    visit("answers", c.answers, kRequired);
}

}  // namespace orrery::program
