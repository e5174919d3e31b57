// How far each technique of parallelism scales alone: its best plans on each of several numbers of devices, beside one
// plan that all techniques are compared with.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/enum_names.h"
#include "sim/program/obstacle.h"
#include "sim/program/scaling_curve.h"

namespace orrery::program {

/// Of which the degree is the number of devices, and all other degrees are 1.
enum class Technique : std::uint8_t { dp, ddp, zero1, zero2, zero3, tp, pp };
inline constexpr std::size_t kTechniqueCount = static_cast<std::size_t>(Technique::pp) + 1;
[[nodiscard]] std::string_view name_of(Technique technique);

struct TechniquePoint {
    ScalingPoint point;
    Obstacle obstacle{};  // of a point without a plan
    /// What makes the step longer than an ideal one, as shares of the step, the largest first: a kind of work's share
    /// less what the base spends on it for the same tokens. Negative: work that the base does and this plan does not.
    /// The sum is 1 - efficiency. Empty: the shares of one of the two plans are not known.
    std::vector<LimitShare> losses;
};

struct TechniqueCurve {
    Technique technique{};
    std::vector<TechniquePoint> points;
    /// As ScalingCurve::knee_devices; 0: no point has a plan whose devices pay.
    std::int64_t knee_devices = 0;
};

struct TechniqueCurves {
    std::string model, cluster;
    std::int64_t devices_per_node = 1;
    std::vector<std::string> implementations;
    ScalingMode mode = ScalingMode::strong;
    std::int64_t sequence_length = 0;
    std::int64_t batch = 0;  // as ScalingCurve::batch
    CostFigures figures;
    /// The number of devices of the plan that all points are compared with: the fastest on the fewest devices on which
    /// any technique has one. 0: none has one.
    std::int64_t base_devices = 0;
    /// Of the curve that has this plan; on one device all have it.
    Technique base_technique{};
    std::vector<TechniqueCurve> techniques;

    /// Null if no technique has a plan.
    [[nodiscard]] const ScalingPoint* base() const;
};

/// Sets the base, what compares the points with it, their losses and costs, and the last numbers that pay. Each
/// technique's points are in order of devices.
void measure_techniques(TechniqueCurves& curves);

/// `orrery.techniques/1`.
[[nodiscard]] std::string to_json_text(const TechniqueCurves& curves);
[[nodiscard]] TechniqueCurves techniques_from_json_text(const std::string& text, const std::string& file);

}  // namespace orrery::program

namespace orrery {
template <>
inline constexpr int kValuesOf<program::Technique> = static_cast<int>(program::kTechniqueCount);
}  // namespace orrery
