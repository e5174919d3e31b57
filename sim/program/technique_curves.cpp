#include "sim/program/technique_curves.h"

#include <algorithm>

#include "core/index.h"
#include "sim/program/technique_fields.h"

namespace orrery::program {
namespace {

constexpr const char* kTechniquesSchema = "orrery.techniques/1";

constexpr auto kTechniqueNames = name_table<Technique::pp>({"dp", "ddp", "zero1", "zero2", "zero3", "tp", "pp"});
constexpr auto kObstacleNames = name_table<Obstacle::rule>(
    {"memory", "heads", "kv_heads", "ffn", "layers", "batch", "nodes", "implementation", "rule"});

void find_base(TechniqueCurves& curves) {
    const ScalingPoint* base = nullptr;
    for (const TechniqueCurve& curve : curves.techniques) {
        for (const auto& [point, obstacle, losses] : curve.points) {
            if (!point.is_found()) continue;
            const bool is_smaller = base == nullptr || point.devices < base->devices;
            if (is_smaller || (point.devices == base->devices && point.tokens_per_s > base->tokens_per_s)) {
                base = &point;
                curves.base_technique = curve.technique;
            }
        }
    }
    curves.base_devices = base == nullptr ? 0 : base->devices;
}

std::vector<LimitShare> losses_of(const ScalingPoint& point, const ScalingPoint& base) {
    if (point.shares.empty() || base.shares.empty()) return {};
    EnumArray<Limit, double, kLimitCount> share{};
    for (const LimitShare& one : point.shares) share[one.limit] += one.share;
    // For the same tokens, the base takes the efficiency's share of this plan's device time.
    for (const LimitShare& one : base.shares) share[one.limit] -= point.efficiency * one.share;
    std::vector<LimitShare> losses;
    for (const Limit limit : enum_values<Limit, kLimitCount>()) {
        if (share[limit] != 0) losses.push_back({limit, share[limit]});
    }
    std::stable_sort(losses.begin(), losses.end(),
                     [](const LimitShare& a, const LimitShare& b) { return a.share > b.share; });
    return losses;
}

}  // namespace

std::string_view name_of(Technique technique) {
    return kTechniqueNames[technique];
}

std::string_view name_of(Obstacle obstacle) {
    return kObstacleNames[obstacle];
}

const ScalingPoint* TechniqueCurves::base() const {
    for (const TechniqueCurve& curve : techniques) {
        if (curve.technique != base_technique) continue;
        for (const TechniquePoint& one : curve.points) {
            if (one.point.devices == base_devices && one.point.is_found()) return &one.point;
        }
    }
    return nullptr;
}

void measure_techniques(TechniqueCurves& curves) {
    find_base(curves);
    if (curves.base_devices == 0) return;
    const ScalingPoint base = *curves.base();
    for (TechniqueCurve& curve : curves.techniques) {
        const ScalingPoint* before = nullptr;
        curve.knee_devices = 0;
        for (TechniquePoint& one : curve.points) {
            if (!one.point.is_found()) continue;
            if (measure_point(one.point, base, before, curves.figures, curves.devices_per_node)) {
                curve.knee_devices = one.point.devices;
            }
            one.losses = losses_of(one.point, base);
            before = &one.point;
        }
    }
}

std::string to_json_text(const TechniqueCurves& curves) {
    return document_text(kTechniquesSchema, curves);
}

TechniqueCurves techniques_from_json_text(const std::string& text, const std::string& file) {
    return object_of_document<TechniqueCurves>(kTechniquesSchema, text, file);
}

}  // namespace orrery::program
