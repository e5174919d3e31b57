#include "reports/technique_report.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

namespace orrery::reports {
namespace {

using program::Limit;
using program::Obstacle;
using program::Technique;
using program::TechniqueCurves;
using program::TechniquePoint;

TechniquePoint with_plan(std::int64_t devices, double tokens_per_s, std::vector<program::LimitShare> shares) {
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

TechniquePoint without(std::int64_t devices, Obstacle obstacle) {
    return {.point = {.devices = devices, .global_batch_size = 8, .reason = "the reason"},
            .obstacle = obstacle,
            .losses = {}};
}

std::string text_of(std::vector<program::TechniqueCurve> techniques) {
    TechniqueCurves curves{.model = "gpt2", .cluster = "dgx-h100", .techniques = std::move(techniques)};
    measure_techniques(curves);
    return techniques_text(curves);
}

TEST(TechniqueReport, SaysHowFarEachTechniquePays) {
    const TechniquePoint one = with_plan(1, 100, {{Limit::compute, 0.8}, {Limit::recomputation, 0.2}});
    // 300 of 400 tokens/s: of the step 25% are lost, and the base's recomputation would take 15% of it.
    const std::string text = text_of(
        {{.technique = Technique::ddp,
          .points = {one, with_plan(4, 300, {{Limit::compute, 0.6}, {Limit::dp_nic, 0.4}}),
                     without(8, Obstacle::batch)}},
         {.technique = Technique::zero3,
          .points = {one, with_plan(4, 400, {{Limit::compute, 1}}), with_plan(8, 800, {{Limit::compute, 1}})}},
         {.technique = Technique::tp,
          .points = {one, with_plan(4, 100, {{Limit::compute, 0.2}, {Limit::tp_nic, 0.8}}),
                     without(8, Obstacle::heads)}},
         {.technique = Technique::pp,
          .points = {without(1, Obstacle::memory), with_plan(4, 100, {{Limit::compute, 1}}),
                     without(8, Obstacle::layers)}},
         {.technique = Technique::dp,
          .points = {without(1, Obstacle::memory), without(4, Obstacle::memory), without(8, Obstacle::nodes)}}});
    for (const char* line : {
             "ddp: pays to 4 devices, and has no plan on 8 (batch); at 4 devices 25% of the step is lost: dp "
             "communication between nodes 40%; saved: recomputation 15%\n",
             "zero3: pays to 8 devices, the most asked for; at 8 devices nothing is lost; saved: recomputation 20%\n",
             "tp: pays to 1 device; at 4 devices 75% of the step is lost: tp communication between nodes 80%\n",
             "pp: does not pay; at 4 devices 75% of the step is lost: compute 80%\n",
             "dp: no plan (memory)\n",
             "1.00: the fastest plan on 1 device, ",
             "memory (pp on 1; dp on 1, 4): the reason\n",
             "heads (tp on 8): the reason\n",
         }) {
        EXPECT_NE(text.find(line), std::string::npos) << line << text;
    }
}

TEST(TechniqueReport, CsvHasARowForEachCell) {
    TechniqueCurves curves{
        .techniques = {{.technique = Technique::tp, .points = {with_plan(1, 100, {}), without(8, Obstacle::heads)}}}};
    measure_techniques(curves);
    const std::string csv = techniques_csv(curves);
    EXPECT_EQ(csv.rfind("technique,devices,", 0), 0U) << csv;
    EXPECT_NE(csv.find("\ntp,1,1,8,orrery,"), std::string::npos) << csv;
    EXPECT_NE(csv.find("\ntp,8,,8,"), std::string::npos) << csv;
    EXPECT_NE(csv.find(",the reason,heads\n"), std::string::npos) << csv;
    std::set<std::ptrdiff_t> commas;
    for (std::size_t at = 0; at < csv.size();) {
        const std::size_t end = csv.find('\n', at);
        commas.insert(std::count(csv.begin() + static_cast<std::ptrdiff_t>(at),
                                 csv.begin() + static_cast<std::ptrdiff_t>(end), ','));
        at = end + 1;
    }
    EXPECT_EQ(commas.size(), 1U) << csv;
}

}  // namespace
}  // namespace orrery::reports
