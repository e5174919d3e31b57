#include "sim/program/scaling_curve.h"

#include "core/error.h"
#include "sim/program/scaling_fields.h"

namespace orrery::program {
namespace {

constexpr const char* kScalingSchema = "orrery.scaling/1";

/// Tokens/s that as many devices would have, if each had those of a used device of the first point with a plan.
double ideal_tokens_per_s(const ScalingPoint& first, std::int64_t devices) {
    return first.tokens_per_s * static_cast<double>(devices) / static_cast<double>(first.devices_used);
}

}  // namespace

std::string_view name_of(ScalingMode mode) {
    return mode == ScalingMode::strong ? "strong" : "weak";
}

ChosenPlan chosen_plan(const Plan& plan) {
    return {.implementation = plan.implementation.name,
            .parallelism = plan.parallelism,
            .micro_batch_size = plan.training.micro_batch_size,
            .micro_batches = plan.micro_batches(),
            .memory = plan.training.memory};
}

ScalingPoint scaling_point(const PlanResult& result, std::int64_t devices) {
    const auto used = static_cast<double>(result.plan.parallelism.world_size());
    return {.devices = devices,
            .global_batch_size = result.plan.training.global_batch_size,
            .devices_used = result.plan.parallelism.world_size(),
            .plan = chosen_plan(result.plan),
            .step_time_s = result.step_time_s,
            .step_time_low_s = result.step_time_low_s,
            .step_time_high_s = result.step_time_high_s,
            .tokens_per_s = result.tokens_per_s_per_device * used,
            .mfu = result.utilization.mfu,
            .hfu = result.utilization.hfu,
            .peak_memory_gib = result.peak_memory_gib,
            .exposed_communication_s = result.exposed_communication_s,
            .bubble_fraction = result.bubble_fraction,
            .idle_fraction = result.idle_fraction,
            .shares = result.shares};
}

void leave_idle(ScalingCurve& curve) {
    if (curve.mode == ScalingMode::weak) return;
    const ScalingPoint* best = nullptr;
    for (ScalingPoint& point : curve.points) {
        if (best != nullptr && (!point.is_found() || best->step_time_s < point.step_time_s)) {
            const std::int64_t devices = point.devices;
            point = *best;
            point.devices = devices;
        }
        if (point.is_found()) best = &point;
    }
}

bool measure_point(ScalingPoint& point, const ScalingPoint& first, const ScalingPoint* before,
                   const CostFigures& figures, std::int64_t devices_per_node) {
    point.speed_up = point.tokens_per_s / first.tokens_per_s;
    point.efficiency = point.tokens_per_s / ideal_tokens_per_s(first, point.devices);
    point.marginal_efficiency = point.efficiency;
    if (before != nullptr) {
        ORRERY_CHECK(before->devices < point.devices, "the points of a scaling curve are not in order");
        point.marginal_efficiency =
            (point.tokens_per_s - before->tokens_per_s) / ideal_tokens_per_s(first, point.devices - before->devices);
    }
    const TokenCosts costs = figures.token_costs(point.tokens_per_s, point.devices, devices_per_node);
    point.usd_per_billion_tokens = costs.usd_per_billion_tokens;
    point.kwh_per_billion_tokens = costs.kwh_per_billion_tokens;
    return point.marginal_efficiency >= kKneeEfficiency;
}

void measure_scaling(ScalingCurve& curve) {
    const ScalingPoint *first = nullptr, *before = nullptr;
    curve.knee_devices = 0;
    for (ScalingPoint& point : curve.points) {
        if (!point.is_found()) continue;
        if (first == nullptr) first = &point;
        if (measure_point(point, *first, before, curve.figures, curve.devices_per_node)) {
            curve.knee_devices = point.devices;
        }
        before = &point;
    }
}

std::string to_json_text(const ScalingPoint& point) {
    return object_text(point);
}

ScalingPoint scaling_point_from_json_text(const std::string& text, const std::string& file) {
    return object_of_text<ScalingPoint>(text, file);
}

std::string to_json_text(const ScalingCurve& curve) {
    return document_text(kScalingSchema, curve);
}

ScalingCurve scaling_from_json_text(const std::string& text, const std::string& file) {
    return object_of_document<ScalingCurve>(kScalingSchema, text, file);
}

}  // namespace orrery::program
