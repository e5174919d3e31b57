// The best plan of a model for each of several numbers of devices, and how well they scale.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/enum_names.h"
#include "sim/program/cost_figures.h"
#include "sim/program/plan.h"
#include "sim/program/plan_result.h"
#include "sim/program/step_limits.h"

namespace orrery::program {

/// strong: every number of devices trains the same global batch. weak: the global batch grows with the devices.
enum class ScalingMode : std::uint8_t { strong, weak };
[[nodiscard]] std::string_view name_of(ScalingMode mode);

/// What the search chose. With model, cluster, implementation and training, it is a plan.
struct ChosenPlan {
    std::string implementation;
    Parallelism parallelism;
    std::int64_t micro_batch_size = 1;
    std::int64_t micro_batches = 1;
    MemorySavings memory;
};
[[nodiscard]] ChosenPlan chosen_plan(const Plan& plan);

struct ScalingPoint {
    std::int64_t devices = 0;            // that the job has
    std::int64_t global_batch_size = 0;  // sequences
    std::string reason;                  // why no plan was found; "": one was found, and what follows is set
    std::int64_t devices_used = 0;
    ChosenPlan plan;
    double step_time_s = 0;
    double step_time_low_s = 0, step_time_high_s = 0;  // 90% interval; 0: not known
    double tokens_per_s = 0;                           // of all devices
    double mfu = 0, hfu = 0;
    double peak_memory_gib = 0;
    double exposed_communication_s = 0, bubble_fraction = 0, idle_fraction = 0;  // as in PlanResult
    std::vector<LimitShare> shares;                                              // as in PlanResult
    std::int64_t considered = 0, simulated = 0;                                  // candidates of the search
    // Set by measure_scaling.
    double speed_up = 1;  // tokens/s over those of the first point with a plan
    /// Tokens/s for each device that the job has, over those for each device that the first point with a plan uses.
    double efficiency = 1;
    /// The same for the devices added since the point before. Of the first point with a plan: its efficiency.
    double marginal_efficiency = 1;
    std::optional<double> usd_per_billion_tokens, kwh_per_billion_tokens;

    [[nodiscard]] bool is_found() const { return reason.empty(); }
};

/// A point of the best plan found; the step interval, the shares and the limit are those of the result.
[[nodiscard]] ScalingPoint scaling_point(const PlanResult& result, std::int64_t devices);

/// As in `orrery.scaling/1`, on one line; what measure_scaling sets is not to be relied on.
[[nodiscard]] std::string to_json_text(const ScalingPoint& point);
[[nodiscard]] ScalingPoint scaling_point_from_json_text(const std::string& text, const std::string& file);

struct ScalingCurve {
    std::string model, cluster;
    std::int64_t devices_per_node = 1;
    std::vector<std::string> implementations;
    ScalingMode mode = ScalingMode::strong;
    bool is_fixed_plan = false;  // all points but the first have the plan of the first, with more replicas
    std::int64_t sequence_length = 0;
    std::int64_t batch = 0;  // sequences of a step (strong), or of a step for each device (weak)
    std::vector<ScalingPoint> points;
    CostFigures figures;
    /// The last point whose marginal efficiency is at least kKneeEfficiency; 0: no point has a plan.
    std::int64_t knee_devices = 0;
};
inline constexpr double kKneeEfficiency = 0.5;

/// Of a strong curve: where the best plan on fewer devices is faster, or no plan has as many, that plan is the point's;
/// the other devices are idle.
void leave_idle(ScalingCurve& curve);

/// Sets what compares the points with each other, their costs and the knee. The points are in order of devices.
void measure_scaling(ScalingCurve& curve);

/// Sets what compares a point that has a plan with `first`, and its costs. `before`: the point with a plan on the
/// next fewer devices; null: there is none. Returns whether its marginal efficiency is at least kKneeEfficiency.
bool measure_point(ScalingPoint& point, const ScalingPoint& first, const ScalingPoint* before,
                   const CostFigures& figures, std::int64_t devices_per_node);

/// `orrery.scaling/1`.
[[nodiscard]] std::string to_json_text(const ScalingCurve& curve);
[[nodiscard]] ScalingCurve scaling_from_json_text(const std::string& text, const std::string& file);

}  // namespace orrery::program

namespace orrery {
template <>
inline constexpr int kValuesOf<program::ScalingMode> = static_cast<int>(program::ScalingMode::weak) + 1;
}  // namespace orrery
