// The fields of a scaling curve's file, object by object (core/json_fields.h).
#pragma once

#include "core/json_fields.h"
#include "sim/program/plan_fields.h"
#include "sim/program/scaling_curve.h"

namespace orrery::program {

inline constexpr NumberRange kShares{-kLargestNumber, kLargestNumber};

template <Either<DatedFigure> Object>
void visit_fields(Object& f, auto&& visit) {
    visit("value", f.value, kRequired, kPositive);
    visit("as_of", f.as_of, kIfChanged);
    visit("source", f.source, kRequired);
}

template <Either<CostFigures> Object>
void visit_fields(Object& f, auto&& visit) {
    visit("usd_per_device_hour", f.usd_per_device_hour);
    visit("watts", f.watts);
    visit("node_watts", f.node_watts);
    visit("pue", f.pue);
}

template <Either<FaultFigures> Object>
void visit_fields(Object& f, auto&& visit) {
    visit("device_hours_per_interruption", f.device_hours_per_interruption);
    visit("replaced_share", f.replaced_share);
    visit("detection_s", f.detection_s);
    visit("restart_s", f.restart_s);
    visit("repair_hours", f.repair_hours);
    visit("checkpoint_gb_per_s_per_node", f.checkpoint_gb_per_s_per_node);
    visit("checkpoint_bytes_per_parameter", f.checkpoint_bytes_per_parameter);
}

template <Either<LimitShare> Object>
void visit_fields(Object& s, auto&& visit) {
    visit("limit", s.limit, kRequired);
    visit("share", s.share, kRequired, kShares);
}

template <Either<ChosenPlan> Object>
void visit_fields(Object& p, auto&& visit) {
    visit("implementation", p.implementation, kRequired);
    visit("parallelism", p.parallelism, kRequired);
    visit("micro_batch_size", p.micro_batch_size, kRequired, kBatchLimits);
    visit("micro_batches", p.micro_batches, kRequired, kBatchLimits);
    visit("memory", p.memory, kRequired);
}

/// A positive number, or 0 or no value where it is not known; then there is no key.
struct OrNotKnown {};
inline void read_field(const JsonReader& reader, const std::string& key, double& field, const OrNotKnown&) {
    field = reader.number(key, kPositive);
}
[[nodiscard]] inline JsonValue field_json(double field, const OrNotKnown&) {
    return field > 0 ? JsonValue(field) : JsonValue();
}
inline void read_field(const JsonReader& reader, const std::string& key, std::optional<double>& field,
                       const OrNotKnown&) {
    field = reader.number(key, kPositive);
}
[[nodiscard]] inline JsonValue field_json(const std::optional<double>& field, const OrNotKnown&) {
    return field ? JsonValue(*field) : JsonValue();
}

template <Either<ScalingPoint> Object>
void visit_fields(Object& p, auto&& visit) {
    visit("devices", p.devices, kRequired, kDegreeLimits);
    visit("global_batch_size", p.global_batch_size, kRequired, kBatchLimits);
    visit("reason", p.reason, kIfChanged);
    const Presence found = required_if(p.is_found());
    visit("devices_used", p.devices_used, found, kDegreeLimits);
    visit("plan", p.plan, found);
    visit("step_time_s", p.step_time_s, found, kPositive);
    visit("step_time_low_s", p.step_time_low_s, Presence{.exists = p.is_found()}, OrNotKnown{});
    visit("step_time_high_s", p.step_time_high_s, Presence{.exists = p.is_found()}, OrNotKnown{});
    visit("tokens_per_s", p.tokens_per_s, found, kPositive);
    visit("mfu", p.mfu, found, kNotNegative);
    visit("hfu", p.hfu, found, kNotNegative);
    visit("peak_memory_gib", p.peak_memory_gib, found, kNotNegative);
    visit("exposed_communication_s", p.exposed_communication_s, found, kNotNegative);
    visit("bubble_fraction", p.bubble_fraction, found, kFraction);
    visit("idle_fraction", p.idle_fraction, found, kFraction);
    visit("shares", p.shares, found);
    visit("considered", p.considered, found, kCount);
    visit("simulated", p.simulated, found, kCount);
    visit("speed_up", p.speed_up, found, kPositive);
    visit("efficiency", p.efficiency, found, kPositive);
    visit("marginal_efficiency", p.marginal_efficiency, found, kShares);
    visit("usd_per_billion_tokens", p.usd_per_billion_tokens, Presence{.exists = p.is_found()}, OrNotKnown{});
    visit("kwh_per_billion_tokens", p.kwh_per_billion_tokens, Presence{.exists = p.is_found()}, OrNotKnown{});
}

template <Either<ScalingCurve> Object>
void visit_fields(Object& c, auto&& visit) {
    visit("model", c.model, kRequired);
    visit("cluster", c.cluster, kRequired);
    visit("devices_per_node", c.devices_per_node, kRequired, kDegreeLimits);
    visit("implementations", c.implementations, kRequired);
    visit("mode", c.mode, kRequired);
    visit("is_fixed_plan", c.is_fixed_plan, kRequired);
    visit("sequence_length", c.sequence_length, kRequired, kSequenceLimits);
    visit("batch", c.batch, kRequired, kBatchLimits);
    visit("points", c.points, kRequired);
    visit("figures", c.figures, kRequired);
    visit("knee_devices", c.knee_devices, kRequired, kNumber);
}

}  // namespace orrery::program
