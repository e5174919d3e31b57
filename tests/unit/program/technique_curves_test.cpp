#include "sim/program/technique_curves.h"

#include <gtest/gtest.h>

#include <tuple>

#include "core/error.h"

namespace orrery::program {
namespace {

TechniquePoint found(std::int64_t devices, double tokens_per_s, std::vector<LimitShare> shares = {}) {
    return {.point = {.devices = devices,
                      .global_batch_size = 8,
                      .devices_used = devices,
                      .plan = {.implementation = "orrery"},
                      .step_time_s = 1,
                      .tokens_per_s = tokens_per_s,
                      .shares = std::move(shares)},
            .obstacle = {},
            .losses = {}};
}

TechniquePoint missing(std::int64_t devices, Obstacle obstacle) {
    return {
        .point = {.devices = devices, .global_batch_size = 8, .reason = "no plan"}, .obstacle = obstacle, .losses = {}};
}

TechniqueCurves curves_of(std::vector<TechniqueCurve> techniques) {
    TechniqueCurves curves{.model = "gpt2",
                           .cluster = "dgx-h100",
                           .devices_per_node = 8,
                           .implementations = {"orrery"},
                           .sequence_length = 1024,
                           .batch = 8,
                           .techniques = std::move(techniques)};
    measure_techniques(curves);
    return curves;
}

TEST(TechniqueCurves, AllAreComparedWithTheFastestPlanOnTheFewestDevices) {
    // Two devices are the fewest; pp has the faster plan there, 200.
    const TechniqueCurves curves =
        curves_of({{.technique = Technique::ddp, .points = {missing(2, Obstacle::memory), found(4, 380)}},
                   {.technique = Technique::tp, .points = {found(2, 160), found(4, 300)}},
                   {.technique = Technique::pp, .points = {found(2, 200), found(4, 240)}}});
    EXPECT_EQ(curves.base_devices, 2);
    EXPECT_EQ(curves.base_technique, Technique::pp);
    EXPECT_EQ(curves.base()->tokens_per_s, 200);
    const auto& [ddp, tp, pp] = std::tie(curves.techniques[0], curves.techniques[1], curves.techniques[2]);
    EXPECT_DOUBLE_EQ(ddp.points[1].point.speed_up, 1.9);
    EXPECT_DOUBLE_EQ(ddp.points[1].point.efficiency, 0.95);
    EXPECT_DOUBLE_EQ(ddp.points[1].point.marginal_efficiency, 0.95);
    EXPECT_DOUBLE_EQ(tp.points[0].point.efficiency, 0.8);
    EXPECT_DOUBLE_EQ(tp.points[1].point.efficiency, 0.75);
    EXPECT_DOUBLE_EQ(tp.points[1].point.marginal_efficiency, 0.7);
    EXPECT_DOUBLE_EQ(pp.points[1].point.marginal_efficiency, 0.2);
    EXPECT_EQ(ddp.knee_devices, 4);
    EXPECT_EQ(tp.knee_devices, 4);
    EXPECT_EQ(pp.knee_devices, 2);
}

TEST(TechniqueCurves, ATechniqueThatStartsBelowHalfDoesNotPay) {
    const TechniqueCurves curves = curves_of({{.technique = Technique::tp, .points = {found(8, 800)}},
                                              {.technique = Technique::pp, .points = {found(8, 390), found(16, 780)}}});
    EXPECT_EQ(curves.techniques[1].knee_devices, 0) << "390 of 800, then 390 more of 800 more";
    EXPECT_EQ(curves_of({{.technique = Technique::tp, .points = {missing(1, Obstacle::memory)}}}).base(), nullptr);
}

TEST(TechniqueCurves, LossesAreWhatTakesLongerThanOnTheBase) {
    // Of 4 x 100 tokens/s there are 200: half of the step is lost. The base spends 0.9 on computation and 0.1 on memory
    // bandwidth; for the same tokens that is 0.45 and 0.05 of this step.
    const TechniqueCurves curves =
        curves_of({{.technique = Technique::tp,
                    .points = {found(1, 100, {{Limit::compute, 0.9}, {Limit::memory_bandwidth, 0.1}}),
                               found(4, 200, {{Limit::compute, 0.6}, {Limit::tp_nic, 0.4}})}}});
    const std::vector<LimitShare>& losses = curves.techniques[0].points[1].losses;
    ASSERT_EQ(losses.size(), 3U);
    EXPECT_EQ(losses[0].limit, Limit::tp_nic);
    EXPECT_DOUBLE_EQ(losses[0].share, 0.4);
    EXPECT_EQ(losses[1].limit, Limit::compute);
    EXPECT_DOUBLE_EQ(losses[1].share, 0.15);
    EXPECT_EQ(losses[2].limit, Limit::memory_bandwidth);
    EXPECT_DOUBLE_EQ(losses[2].share, -0.05);
    EXPECT_TRUE(curves.techniques[0].points[0].losses.empty());
}

TEST(TechniqueCurves, AFileGivesThemBack) {
    TechniqueCurves curves = curves_of(
        {{.technique = Technique::tp,
          .points = {found(1, 100, {{Limit::compute, 1}}), found(2, 150, {{Limit::compute, 0.8}, {Limit::tp_nic, 0.2}}),
                     missing(16, Obstacle::heads)}}});
    curves.figures.usd_per_device_hour = {.value = 3, .as_of = "2026-11", .source = "a test"};
    measure_techniques(curves);
    EXPECT_GT(curves.techniques[0].points[1].point.usd_per_billion_tokens, 0);
    const std::string text = to_json_text(curves);
    EXPECT_EQ(to_json_text(techniques_from_json_text(text, "curves.json")), text);
    EXPECT_NE(text.find("\"obstacle\": \"heads\""), std::string::npos);
    EXPECT_THROW(
        (void)techniques_from_json_text(R"({"schema": "orrery.techniques/1", "modell": "gpt2"})", "curves.json"),
        InputError);
}

}  // namespace
}  // namespace orrery::program
