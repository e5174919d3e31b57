#include "sim/program/scaling_curve.h"

#include <gtest/gtest.h>

#include "core/error.h"

namespace orrery::program {
namespace {

ScalingPoint point(std::int64_t devices, double tokens_per_s, double step_time_s = 1) {
    return {.devices = devices,
            .global_batch_size = 8,
            .devices_used = devices,
            .plan = {.implementation = "orrery"},
            .step_time_s = step_time_s,
            .tokens_per_s = tokens_per_s};
}

ScalingCurve curve_of(std::vector<ScalingPoint> points, ScalingMode mode = ScalingMode::weak) {
    return {.model = "gpt2",
            .cluster = "dgx-h100",
            .devices_per_node = 8,
            .implementations = {"orrery"},
            .mode = mode,
            .sequence_length = 1024,
            .batch = 8,
            .points = std::move(points)};
}

TEST(ScalingCurve, EfficiencyIsThatOfEachDeviceBesideTheFirstPoint) {
    // 8 devices bring 800; 16 bring 1,500 of 1,600; the 16 more of 32 bring 700 of 1,600, less than half.
    ScalingCurve curve = curve_of({point(8, 800), point(16, 1500), point(32, 2200)});
    measure_scaling(curve);
    EXPECT_DOUBLE_EQ(curve.points[0].efficiency, 1);
    EXPECT_DOUBLE_EQ(curve.points[0].marginal_efficiency, 1);
    EXPECT_DOUBLE_EQ(curve.points[1].speed_up, 1.875);
    EXPECT_DOUBLE_EQ(curve.points[1].efficiency, 0.9375);
    EXPECT_DOUBLE_EQ(curve.points[1].marginal_efficiency, 0.875);
    EXPECT_DOUBLE_EQ(curve.points[2].efficiency, 0.6875);
    EXPECT_DOUBLE_EQ(curve.points[2].marginal_efficiency, 0.4375);
    EXPECT_EQ(curve.knee_devices, 16);
}

TEST(ScalingCurve, PointsWithoutAPlanAreLeftOut) {
    ScalingPoint none = point(4, 0);
    none.reason = "none of 3 plans fits";
    ScalingCurve curve = curve_of({none, point(8, 800), point(16, 1600)});
    measure_scaling(curve);
    EXPECT_DOUBLE_EQ(curve.points[1].speed_up, 1);
    EXPECT_DOUBLE_EQ(curve.points[2].efficiency, 1);
    EXPECT_EQ(curve.knee_devices, 16);
    curve = curve_of({none});
    measure_scaling(curve);
    EXPECT_EQ(curve.knee_devices, 0);
}

TEST(ScalingCurve, IdleDevicesCountAsInefficiency) {
    ScalingPoint first = point(12, 800);
    first.devices_used = 8;
    ScalingCurve curve = curve_of({first, point(16, 1600)});
    measure_scaling(curve);
    EXPECT_DOUBLE_EQ(curve.points[0].efficiency, 8.0 / 12);
    EXPECT_DOUBLE_EQ(curve.points[1].efficiency, 1);
}

TEST(ScalingCurve, AJobLeavesDevicesIdleThatWouldSlowItDown) {
    ScalingCurve curve = curve_of({point(8, 800, 2), point(16, 1600, 1), point(32, 1000, 1.6)}, ScalingMode::strong);
    curve.points.push_back(point(64, 0));
    curve.points.back().reason = "no plan divides";
    leave_idle(curve);
    for (std::size_t i = 2; i < 4; ++i) {
        EXPECT_TRUE(curve.points[i].is_found());
        EXPECT_EQ(curve.points[i].devices_used, 16);
        EXPECT_EQ(curve.points[i].tokens_per_s, 1600);
    }
    EXPECT_EQ(curve.points[3].devices, 64);
    // A weak curve's points train different batches.
    ScalingCurve weak = curve_of({point(8, 800, 1), point(16, 1000, 1.6)});
    leave_idle(weak);
    EXPECT_EQ(weak.points[1].devices_used, 16);
}

TEST(ScalingCurve, TwiceThePriceIsTwiceTheDollars) {
    const auto usd_at = [](double price) {
        ScalingCurve curve = curve_of({point(8, 1e6)});
        curve.figures.usd_per_device_hour = {.value = price, .as_of = "2026-11", .source = "a test"};
        measure_scaling(curve);
        return *curve.points[0].usd_per_billion_tokens;
    };
    // 10^9 tokens take 1,000 s on 8 devices.
    EXPECT_DOUBLE_EQ(usd_at(3), 3 * 8 * 1000 / 3600.0);
    EXPECT_DOUBLE_EQ(usd_at(6), 2 * usd_at(3));
}

TEST(ScalingCurve, EnergyCountsNodesAndTheSite) {
    ScalingCurve curve = curve_of({point(12, 1e6)});
    curve.figures.watts = {.value = 700, .as_of = "", .source = "a test"};
    measure_scaling(curve);
    EXPECT_DOUBLE_EQ(*curve.points[0].kwh_per_billion_tokens, 12 * 0.7 * 1000 / 3600);
    EXPECT_FALSE(curve.points[0].usd_per_billion_tokens.has_value());
    curve.figures.node_watts = {.value = 2000, .as_of = "", .source = "a test"};  // 12 devices are on two nodes
    curve.figures.pue = {.value = 1.25, .as_of = "", .source = "a test"};
    measure_scaling(curve);
    EXPECT_DOUBLE_EQ(*curve.points[0].kwh_per_billion_tokens, (12 * 0.7 + 2 * 2) * 1.25 * 1000 / 3600);
}

TEST(ScalingCurve, AFileGivesTheCurveBack) {
    ScalingPoint none = point(4, 0);
    none.reason = "none of 3 plans fits";
    ScalingCurve curve = curve_of({none, point(8, 800), point(16, 1500)});
    curve.points[1].shares = {{Limit::compute, 0.75}, {Limit::dp_nic, 0.25}};
    curve.points[1].plan.parallelism.tp = 4;
    curve.figures.usd_per_device_hour = {.value = 3, .as_of = "2026-11", .source = "a test"};
    measure_scaling(curve);
    const std::string text = to_json_text(curve);
    EXPECT_EQ(to_json_text(scaling_from_json_text(text, "curve.json")), text);
    EXPECT_THROW((void)scaling_from_json_text(R"({"schema": "orrery.scaling/1", "modell": "gpt2"})", "curve.json"),
                 InputError);
}

}  // namespace
}  // namespace orrery::program
