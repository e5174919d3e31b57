// The sections of a page have the numbers of the results that they are made of.
#include <gtest/gtest.h>

#include <algorithm>

#include "core/error.h"
#include "core/units.h"
#include "reports/comparison.h"
#include "reports/explanation.h"
#include "reports/page/report.h"
#include "reports/page/sections.h"
#include "reports/row_predictions.h"
#include "tests/unit/reports/sample.h"
#include "tests/unit/reports/tiny_program.h"

namespace orrery::reports {
namespace {

using program::Limit;
using program::ScalingCurve;
using program::ScalingPoint;

ScalingPoint point(std::int64_t devices, double step_time_s) {
    return {.devices = devices,
            .global_batch_size = 8,
            .devices_used = devices,
            .plan = {.implementation = "orrery"},
            .step_time_s = step_time_s,
            .step_time_low_s = 0.8 * step_time_s,
            .step_time_high_s = 1.25 * step_time_s,
            .tokens_per_s = 8192 / step_time_s,
            .mfu = 0.5,
            .hfu = 0.5,
            .peak_memory_gib = 70,
            .shares = {{Limit::compute, 0.75}, {Limit::pipeline_bubble, 0.25}}};
}

ScalingCurve curve(const std::string& cluster = "dgx-h100") {
    ScalingCurve curve{.model = "gpt2",
                       .cluster = cluster,
                       .devices_per_node = 8,
                       .implementations = {"orrery"},
                       .sequence_length = 1024,
                       .batch = 8,
                       .points = {{.devices = 4, .global_batch_size = 8, .reason = "none of 3 plans fits"},
                                  point(8, 4),
                                  point(16, 2.5)},
                       .figures = {.usd_per_device_hour = program::DatedFigure{3, "2026-09", "a list"}}};
    program::measure_scaling(curve);
    return curve;
}

Chart chart_named(const PageSection& section, const std::string& title) {
    const auto found = std::find_if(section.charts.begin(), section.charts.end(),
                                    [&](const Chart& chart) { return chart.title == title; });
    if (found == section.charts.end()) throw BugError("no chart " + title);
    return *found;
}

std::string date_after(const std::string& start, double days) {
    return start + "+" + std::to_string(static_cast<int>(days));
}
const ReportWords kWords{.title = "", .version = "1.2.3", .date_after = date_after};

/// Written and read again, as the command does.
template <typename Written>
ResultFile read_back(const Written& result) {
    return result_from_json_text(program::to_json_text(result), "result.json");
}

TEST(PageSections, AScalingCurveHasItsIntervalsAndItsIdeal) {
    const PageSection section = scaling_section(curve());
    const ChartSeries efficiency = chart_named(section, "Scaling efficiency").series[0];
    ASSERT_EQ(efficiency.points.size(), 2U);
    EXPECT_DOUBLE_EQ(efficiency.points[1].x, 16);
    EXPECT_DOUBLE_EQ(*efficiency.points[1].y, 0.8);
    EXPECT_DOUBLE_EQ(*efficiency.points[1].low, 0.8 / 1.25);
    EXPECT_DOUBLE_EQ(*efficiency.points[1].high, 1);
    const Chart throughput = chart_named(section, "Throughput");
    EXPECT_DOUBLE_EQ(*throughput.series[0].points[1].y, 8192 / 2.5);
    EXPECT_EQ(throughput.series[1].role, SeriesRole::ideal);
    EXPECT_DOUBLE_EQ(*throughput.series[1].points[1].y, 4096);
    EXPECT_NE(section.notes.back().find("No plan on 4 devices: none of 3 plans fits"), std::string::npos);
}

TEST(PageSections, SharesAreSecondsThatSumToTheStep) {
    const Chart chart = chart_named(scaling_section(curve()), "Time of a step");
    ASSERT_EQ(chart.series.size(), 2U);
    EXPECT_EQ(chart.series[1].name, "pipeline bubble");
    EXPECT_EQ(chart.x.categories, (std::vector<std::string>{"8", "16"}));
    EXPECT_DOUBLE_EQ(*chart.series[0].points[1].y + *chart.series[1].points[1].y, 2.5);
    EXPECT_DOUBLE_EQ(*chart.series[1].points[0].y, 1);
}

TEST(PageSections, ACurveWithoutIntervalsAndPricesHasNeither) {
    ScalingCurve bare = curve();
    bare.figures = {};
    for (ScalingPoint& one : bare.points) {
        one.step_time_low_s = one.step_time_high_s = 0;
        one.usd_per_billion_tokens.reset();
        one.shares.clear();
    }
    const PageSection section = scaling_section(bare);
    EXPECT_EQ(chart_named(section, "Throughput").series[0].points[0].low, std::nullopt);
    EXPECT_EQ(table_of(chart_named(section, "Throughput")).columns.size(), 3U);
    for (const Chart& chart : section.charts) {
        EXPECT_NE(chart.title, "Cost of a billion tokens");
        EXPECT_NE(chart.title, "Time of a step");
    }
}

TEST(PageSections, ACurveWithoutAnyPlanSaysWhy) {
    ScalingCurve none = curve();
    none.points.resize(1);
    program::measure_scaling(none);
    const PageSection section = scaling_section(none);
    EXPECT_TRUE(section.charts.empty());
    EXPECT_EQ(section.notes.size(), 1U);
}

TEST(PageSections, CurvesOfOneJobAreCompared) {
    ScalingCurve other = curve();
    other.batch = 16;
    const ReportPage page = report_of({read_back(curve()), read_back(curve("dgx-a100")), read_back(other)}, kWords);
    ASSERT_EQ(page.sections.size(), 5U);
    const Chart chart = chart_named(page.sections[0], "Scaling efficiency");
    ASSERT_EQ(chart.series.size(), 3U);
    EXPECT_EQ(chart.series[0].name, "dgx-h100");
    EXPECT_EQ(chart.series[1].name, "dgx-a100");
    EXPECT_EQ(chart.series[2].role, SeriesRole::ideal);
    EXPECT_EQ(page.sections[1].title, "Scaling of gpt2 on dgx-h100");
}

program::SweepPoint sweep_point(const std::vector<std::string>& values, double speed) {
    return {.values = values, .point = point(8, 4 / speed), .fits = true, .speed = speed};
}

program::InputSweep sweep() {
    program::InputSweep sweep{.model = "gpt2",
                              .cluster = "dgx-h100",
                              .plan = "mine",
                              .paths = {"training.micro_batch_size", "cluster.nic.bandwidth"},
                              .base_values = {"1", "50"},
                              .base = sweep_point({"1", "50"}, 1)};
    sweep.points = {sweep_point({"1", "0.5x"}, 0.8), sweep_point({"1", "1x"}, 1),    sweep_point({"1", "2x"}, 1.3),
                    sweep_point({"2", "0.5x"}, 0.9), sweep_point({"2", "1x"}, 1.05), sweep_point({"2", "2x"}, 1.1)};
    sweep.points[5].fits = false;
    return sweep;
}

TEST(PageSections, ASweepHasTheInputWithMostNumbersOnItsAxis) {
    const PageSection section = sweep_section(sweep());
    const Chart chart = chart_named(section, "Speed");
    EXPECT_EQ(chart.x.measure.title(), "bandwidth (times the plan file's)");
    ASSERT_EQ(chart.series.size(), 2U);
    EXPECT_EQ(chart.series[1].name, "micro_batch_size 2");
    EXPECT_DOUBLE_EQ(chart.series[1].points[0].x, 0.5);
    EXPECT_DOUBLE_EQ(*chart.series[1].points[0].y, 0.9);
    EXPECT_DOUBLE_EQ(*chart_named(section, "Step time").series[0].points[2].high, 1.25 * 4 / 1.3);
    EXPECT_EQ(section.tables[0].rows.size(), 7U);
}

TEST(PageSections, ASweepSaysWhereLinesCross) {
    const std::vector<std::string> notes = sweep_section(sweep()).notes;
    EXPECT_EQ(std::count(notes.begin(), notes.end(),
                         "Between bandwidth 1x and 2x, micro_batch_size 1 becomes faster than micro_batch_size 2."),
              1);
    EXPECT_EQ(notes[1].substr(0, 37), "1 of 6 points does not fit into the m");
}

TEST(PageSections, ASweepOfNamesHasBarsAndReasonsLeaveGaps) {
    program::InputSweep names = sweep();
    names.paths = {"parallelism.data_parallel"};
    names.base_values = {"ddp"};
    names.base.values = {"ddp"};
    names.points = {sweep_point({"ddp"}, 1),
                    {.values = {"zero9"}, .point = {.reason = "no such thing"}},
                    sweep_point({"zero1"}, 1.2)};
    const PageSection section = sweep_section(names);
    const Chart chart = chart_named(section, "Speed");
    EXPECT_EQ(chart.kind, ChartKind::bars);
    EXPECT_EQ(chart.x.categories, (std::vector<std::string>{"ddp", "zero9", "zero1"}));
    ASSERT_EQ(chart.series[0].points.size(), 2U);
    EXPECT_DOUBLE_EQ(chart.series[0].points[1].x, 2);
    EXPECT_EQ(section.tables[0].rows[2][1].text, "no such thing");
}

TEST(PageSections, MoreLinesThanCanBeReadAreOnlyInTheTable) {
    program::InputSweep many = sweep();
    many.points.clear();
    for (int size = 1; size <= 9; ++size) {
        for (const char* factor : {"0.1x", "0.2x", "0.3x", "0.4x", "0.5x", "0.6x", "0.7x", "0.8x", "0.9x", "1x"}) {
            many.points.push_back(sweep_point({std::to_string(size), factor}, 1));
        }
    }
    const PageSection section = sweep_section(many);
    EXPECT_EQ(chart_named(section, "Speed").series.size(), 8U);
    EXPECT_EQ(chart_named(section, "Speed").x.scale, AxisScale::logarithmic);
    EXPECT_EQ(section.tables[0].rows.size(), 91U);
    EXPECT_NE(section.notes[0].find("the first 8 of 9 combinations"), std::string::npos);
}

program::TornadoBar bar(const std::string& path, double elasticity, double less, double more) {
    program::TornadoBar bar{.path = path, .value = "50.0", .elasticity = elasticity};
    bar.less = {.values = {"0.9x"}, .point = point(8, 4 / less), .speed = less};
    bar.more = {.values = {"1.1x"}, .point = point(8, 4 / more), .speed = more};
    return bar;
}

TEST(PageSections, ATornadoHasTheLargestEffectFirst) {
    program::Tornado tornado{.model = "gpt2", .cluster = "dgx-h100", .plan = "small"};
    tornado.base.point = point(8, 4);
    tornado.bars = {bar("cluster.nic.bandwidth", 0.1, 0.99, 1.01), bar("cluster.device.peak", -0.5, 0.95, 1.06),
                    bar("cluster.unused", 0, 1, 1), bar("cluster.refused", 0.2, 0.98, 1)};
    tornado.bars.back().more.point = {.devices = 8, .global_batch_size = 8, .reason = "got 1.1; allowed: at most 1"};
    program::rank(tornado);
    const PageSection section = tornado_section(program::tornado_from_json_text(to_json_text(tornado), "t.json"));
    const Chart& chart = section.charts.at(0);
    EXPECT_EQ(chart.x.categories, (std::vector<std::string>{"device.peak", "refused", "nic.bandwidth"}));
    EXPECT_EQ(chart.kind, ChartKind::floating_bars);
    EXPECT_EQ(table_of(chart).columns.size(), 3U) << "the ends of the bars are no intervals";
    EXPECT_NEAR(*chart.series[0].points[0].low, -0.05, 1e-12);
    EXPECT_DOUBLE_EQ(*chart.series[0].points[0].high, 0);
    EXPECT_NEAR(*chart.series[1].points[0].high, 0.06, 1e-12);
    EXPECT_FALSE(chart.series[1].points[1].y.has_value());
    EXPECT_EQ(section.tables.at(0).rows.at(0)[2].value, -0.5);
    EXPECT_EQ(section.tables.at(0).rows.at(0)[4].text, "106.0%");
    EXPECT_EQ(section.facts.at(1).value, "device.peak");
    EXPECT_EQ(section.notes.at(0), "got 1.1; allowed: at most 1");
    EXPECT_NE(section.notes.back().find("1 further input"), std::string::npos);
}

TEST(PageSections, ACrossoverListsItsRanges) {
    const ScalingPoint none{.devices = 8, .global_batch_size = 8, .reason = "too large"};
    program::Crossover crossover{.model = "gpt2",
                                 .cluster = "dgx-h100",
                                 .path = "cluster.nic.bandwidth",
                                 .plans = {"wide", "deep"},
                                 .accuracy = 0.005};
    crossover.ranges = {{.low = 1, .high = 38, .plan = "deep", .at_low = point(8, 4), .at_high = point(8, 3)},
                        {.low = 38, .high = 90, .plan = "", .at_low = none, .at_high = none}};
    const PageSection section = crossover_section(program::crossover_from_json_text(to_json_text(crossover), "c.json"));
    const PageTable& table = section.tables.at(0);
    EXPECT_EQ(table.rows.at(0)[1].value, 38);
    EXPECT_EQ(table.rows.at(0)[2].text, "deep");
    EXPECT_EQ(table.rows.at(0)[4].value, 3);
    EXPECT_EQ(table.rows.at(1)[2].text, "no plan");
    EXPECT_FALSE(table.rows.at(1)[3].value.has_value());
    EXPECT_EQ(section.notes.at(0), "At 38: too large");
}

TEST(PageSections, TechniquesAreComparedWithOnePlan) {
    program::TechniqueCurves curves{
        .model = "gpt2", .cluster = "dgx-h100", .implementations = {"orrery"}, .sequence_length = 1024, .batch = 8};
    const program::TechniquePoint none{.point = {.devices = 4, .global_batch_size = 8, .reason = "12 heads"},
                                       .obstacle = program::Obstacle::heads};
    curves.techniques = {{program::Technique::ddp, {{point(1, 4)}, {point(2, 2)}, {point(4, 1.25)}}},
                         {program::Technique::tp, {{point(1, 4)}, {point(2, 3.5)}, none}}};
    program::measure_techniques(curves);
    const PageSection section = technique_section(program::techniques_from_json_text(to_json_text(curves), "t.json"));
    const Chart speed_up = chart_named(section, "Speed-up"), efficiency = chart_named(section, "Efficiency");
    ASSERT_EQ(speed_up.series.size(), 3U);
    EXPECT_EQ(speed_up.series[2].role, SeriesRole::ideal);
    EXPECT_DOUBLE_EQ(*speed_up.series[0].points[2].y, 3.2);
    EXPECT_DOUBLE_EQ(*speed_up.series[2].points[2].y, 4);
    EXPECT_DOUBLE_EQ(*efficiency.series[0].points[2].y, 0.8);
    EXPECT_FALSE(efficiency.series[1].points[2].y.has_value());
    const PageTable& pays = section.tables.at(0);
    EXPECT_EQ(pays.rows.at(0)[1].value, 4);
    EXPECT_EQ(pays.rows.at(1)[1].value, 1);
    EXPECT_EQ(pays.rows.at(1)[2].text, "4");
    EXPECT_EQ(pays.rows.at(1)[3].text, "heads");
}

program::CapacitySize size(std::int64_t devices, double days, std::int64_t spare = 0) {
    return {.devices = devices,
            .spare_devices = spare,
            .point = point(devices, 1),
            .hours_between_interruptions = 100,
            .checkpoint_gb = 1,
            .checkpoint_s = 1,
            .checkpoint_interval_s = 100,
            .recovery_s = 10,
            .goodput = 0.9,
            .days_ideal = days,
            .days_p10 = 0.9 * days,
            .days_p50 = days,
            .days_p90 = 1.1 * days,
            .days_needed = 1.1 * days,
            .usd = 1000 * days,
            .megawatt_hours = 5,
            .megawatts = 0.1};
}

program::Capacity capacity() {
    program::CapacityAnswer answer{.cluster = "dgx-h100",
                                   .devices_per_node = 8,
                                   .meets = true,
                                   .limit = program::CapacityLimit::deadline,
                                   .best = size(16, 50),
                                   .explored = {size(8, 100), size(16, 55, 8), size(16, 50)},
                                   .figures = {.watts = program::DatedFigure{700, "", "a datasheet"}}};
    program::CapacityAnswer other = answer;
    other.cluster = "dgx-a100";
    other.meets = false;
    return {.goal = {.model = "gpt2",
                     .tokens = 1e12,
                     .sequence_length = 1024,
                     .global_batch_size = 8,
                     .days = 60,
                     .start = "2027-01-01",
                     .by = "2027-03-02",
                     .max_devices = 1024},
            .faults = {.restart_s = program::DatedFigure{300, "", "assumption"}},
            .answers = {answer, other}};
}

TEST(PageSections, CapacityHasDaysWithBandsAndAllAnswers) {
    const PageSection section = capacity_section(capacity(), date_after);
    const Chart days = chart_named(section, "Days until the job is done");
    ASSERT_EQ(days.series.size(), 3U);
    ASSERT_EQ(days.series[0].points.size(), 2U) << "one point for each number of devices";
    EXPECT_DOUBLE_EQ(*days.series[0].points[1].y, 50);
    EXPECT_DOUBLE_EQ(*days.series[0].points[1].low, 45);
    EXPECT_DOUBLE_EQ(*days.series[0].points[0].high, 110);
    EXPECT_EQ(days.series[2].role, SeriesRole::limit);
    EXPECT_DOUBLE_EQ(*days.series[2].points[0].y, 60);
    EXPECT_DOUBLE_EQ(*chart_named(section, "Cost of the job").series[1].points[0].y, 100000);
    ASSERT_EQ(section.tables[0].rows.size(), 2U);
    EXPECT_EQ(section.tables[0].rows[1][0].text, "dgx-a100");
    EXPECT_EQ(section.tables[0].rows[1][1].text, "no");
    EXPECT_EQ(section.tables[0].rows[0][10].text, "2027-01-01+50");
    EXPECT_EQ(section.tables[1].rows.size(), 6U);
}

TEST(PageSections, CapacityWithoutAnyPlanSaysWhy) {
    program::Capacity none = capacity();
    none.answers.resize(1);
    none.answers[0].best = {.devices = 8, .reason = "nothing fits"};
    none.answers[0].explored = {none.answers[0].best};
    const PageSection section = capacity_section(none, date_after);
    EXPECT_TRUE(section.charts.empty());
    EXPECT_EQ(section.tables[0].rows[0][4].text, "nothing fits");
}

program::PlanDiff diff() {
    return {.before = "plans/a.plan.json",
            .after = "b.plan.json",
            .step_before_s = 3,
            .step_after_s = 2.5,
            .tokens_per_s_before = 100,
            .tokens_per_s_after = 120,
            .time_ps = {{"products", 2'000'000'000'000, 1'000'000'000'000},
                        {"tp", 500'000'000'000, 1'000'000'000'000},
                        {"optimizer", 500'000'000'000, 500'000'000'000}},
            .memory_bytes = {{"weights", std::int64_t{1} << 30, std::int64_t{2} << 30}},
            .inputs = {{"parallelism.tp", "1", "2"}}};
}

TEST(PageSections, AWaterfallLeadsFromTheStepBeforeToTheStepAfter) {
    const PageSection section = diff_section(diff());
    EXPECT_EQ(section.title, "From a to b");
    const Chart chart = chart_named(section, "Time of a step");
    EXPECT_EQ(chart.x.categories, (std::vector<std::string>{"before", "matrix products", "exposed tp", "after"}));
    const ChartSeries &total = chart.series[0], &more = chart.series[1], &less = chart.series[2];
    EXPECT_DOUBLE_EQ(*total.points[0].high, 3);
    EXPECT_DOUBLE_EQ(*less.points[0].high, 3);
    EXPECT_DOUBLE_EQ(*less.points[0].low, 2);
    EXPECT_DOUBLE_EQ(*less.points[0].y, -1);
    EXPECT_DOUBLE_EQ(*more.points[0].low, 2);
    EXPECT_DOUBLE_EQ(*more.points[0].high, 2.5);
    EXPECT_DOUBLE_EQ(*total.points[1].high, 2.5);
    const PageTable table = table_of(chart);
    EXPECT_EQ(table.rows[1][1].value, -1.0);
    EXPECT_EQ(table.rows[1][2].value, 2.0) << "where the change leads";
    EXPECT_EQ(table.rows[3][2].value, 2.5);
    EXPECT_EQ(section.tables[2].rows[0][2].text, "2");
}

TEST(PageSections, ResultsAreReadAsTheyAreWritten) {
    EXPECT_EQ(program::to_json_text(program::sweep_from_json_text(program::to_json_text(sweep()), "f")),
              program::to_json_text(sweep()));
    EXPECT_EQ(program::to_json_text(program::capacity_from_json_text(program::to_json_text(capacity()), "f")),
              program::to_json_text(capacity()));
    EXPECT_EQ(program::to_json_text(program::diff_from_json_text(program::to_json_text(diff()), "f")),
              program::to_json_text(diff()));
}

TEST(PageSections, ARecordHasItsMemoryAgainstTheLimit) {
    const program::Program program = sample::program();
    program::RunRecord record = sample::predicted();
    record.memory_needed_bytes = 4 << 20;
    record.memory_allowed_bytes = 8 << 20;
    for (program::RankRecord& rank : record.ranks) rank.memory = {{"parameters", 1 << 20}, {"runtime", 3 << 20}};
    const ResultFile file = result_from_json_text(program::to_json_text(record, program), "record.json");
    const PageSection section = run_section(std::get<RunFacts>(file.result));
    EXPECT_EQ(section.title, "Simulated step of sample");
    const Chart chart = chart_named(section, "Memory by what it holds");
    ASSERT_EQ(chart.series.size(), 3U);
    EXPECT_DOUBLE_EQ(*chart.series[0].points[0].y, (1 << 20) / kGibibyte);
    EXPECT_EQ(chart.series[2].role, SeriesRole::limit);
    EXPECT_DOUBLE_EQ(*chart.series[2].points[0].y, (8 << 20) / kGibibyte);
}

TEST(PageSections, AMeasuredRunHasItsStepsAndLosses) {
    program::RunRecord record = sample::measured();
    record.step_seconds = {2, 3, 4};
    record.losses = {9, 8, 7};
    record.first_step = 10;
    record.environment = {{"host", "lab-1"}};
    const ResultFile file = result_from_json_text(program::to_json_text(record, sample::program()), "record.json");
    const PageSection section = run_section(std::get<RunFacts>(file.result));
    EXPECT_EQ(section.title, "Run of sample");
    EXPECT_DOUBLE_EQ(*chart_named(section, "Step times").series[0].points[2].y, 4);
    EXPECT_DOUBLE_EQ(chart_named(section, "Loss").series[0].points[0].x, 10);
    EXPECT_DOUBLE_EQ(*chart_named(section, "Loss").series[0].points[2].y, 7);
    EXPECT_EQ(section.tables[0].rows[0][1].text, "lab-1");
}

TEST(PageSections, AnExplanationHasPartsThatSumToTheStep) {
    const tiny::Step step = tiny::step(20 * sample::kMicrosecond, {tiny::compute(0, 15 * sample::kMicrosecond)});
    const Explanation explanation = explain(step.program, step.record, tiny::same_weight, {});
    const ResultFile file = result_from_json_text(explanation_json(explanation), "explanation.json");
    const PageSection section = step_section(std::get<StepFacts>(file.result));
    const Chart chart = chart_named(section, "Time of a step");
    for (std::size_t i = 0; i < chart.x.categories.size(); ++i) {
        double sum = 0;
        for (const ChartSeries& series : chart.series) sum += *series.points[i].y;
        EXPECT_NEAR(sum, static_cast<double>(explanation.time.mean.step_ps()) / kPicosecondsPerSecond, 1e-12);
    }
    EXPECT_EQ(chart.x.categories, (std::vector<std::string>{"mean", "stage 0"}));
    EXPECT_EQ(chart.series.size(), 2U) << "computation, and the idle end";
}

TEST(PageSections, PlansThatRanAreBesideTheirPredictions) {
    Comparison comparison = compare(sample::program(), sample::predicted(), sample::measured());
    Comparison aside = comparison;
    aside.plan_name = "crowded";
    aside.judged = false;
    const ResultFile file =
        result_from_json_text(comparisons_json(std::vector<Comparison>{comparison, aside}), "comparison.json");
    const PageSection section = validation_section(std::get<ValidationFacts>(file.result));
    const Chart chart = chart_named(section, "Step time");
    ASSERT_EQ(chart.series.size(), 3U);
    EXPECT_DOUBLE_EQ(chart.series[0].points[0].x, comparison.step_time().measured);
    EXPECT_DOUBLE_EQ(*chart.series[0].points[0].y, comparison.step_time().predicted);
    EXPECT_EQ(chart.series[1].role, SeriesRole::secondary);
    EXPECT_EQ(chart.series[1].points[0].label, "crowded");
    const ChartSeries& ideal = chart.series[2];
    EXPECT_DOUBLE_EQ(ideal.points[0].x, *ideal.points[0].y);
    EXPECT_DOUBLE_EQ(ideal.points[1].x, *ideal.points[1].y);
    EXPECT_EQ(section.facts.at(0).note.substr(0, 11), "plans judge");
}

TEST(PageSections, PublishedRunsAreBesideTheirPredictions) {
    RowPrediction row{.id = "run 1", .source = "a paper", .counts = true};
    row.predicted_step_time_s = 9;
    row.measured_step_time_s = 10;
    RowPrediction skipped{.id = "run 2", .source = "a paper", .counts = true, .skipped = "no plan"};
    const ResultFile file = result_from_json_text(row_predictions_json({row, skipped}), "rows.json");
    const PageSection section = published_section(std::get<PublishedFacts>(file.result));
    ASSERT_EQ(section.charts.size(), 1U);
    ASSERT_EQ(section.charts[0].series[0].points.size(), 1U);
    EXPECT_EQ(section.charts[0].series[0].points[0].label, "run 1");
    EXPECT_DOUBLE_EQ(section.charts[0].series[0].points[0].x, 10);
    const PageTable table = table_of(section.charts[0]);
    EXPECT_EQ(table.rows[0][3].text, "-10.0%");
    EXPECT_EQ(section.tables[0].rows[0][0].text, "all");
    EXPECT_EQ(section.tables[0].rows[1][0].text, "a paper");
    EXPECT_EQ(section.facts.at(0).value, "10.0%");
}

TEST(PageSections, SourcesNameFilesFiguresAndVersion) {
    const ReportPage page = report_of({read_back(curve()), read_back(capacity()), read_back(curve())}, kWords);
    const PageSection& sources = page.sections.back();
    EXPECT_NE(sources.lead.find("orrery 1.2.3"), std::string::npos);
    ASSERT_EQ(sources.tables.size(), 2U);
    EXPECT_EQ(sources.tables[0].rows.size(), 3U);
    EXPECT_EQ(sources.tables[0].rows[1][1].text, "orrery.capacity/1");
    std::vector<std::string> figures;
    for (const auto& row : sources.tables[1].rows) figures.push_back(row[0].text + " " + row[1].text);
    EXPECT_EQ(figures, (std::vector<std::string>{"price of a device, dgx-h100 3", "power of a device, dgx-h100 700",
                                                 "power of a device, dgx-a100 700", "restart of the job 300"}));
    EXPECT_EQ(sources.tables[1].rows[0][3].text, "2026-09");
    EXPECT_EQ(sources.tables[1].rows[0][4].text, "a list");
}

TEST(PageSections, OtherFilesAreRefusedWithWhatIsAllowed) {
    try {
        (void)result_from_json_text(R"({"schema": "orrery.plan/1"})", "my.plan.json");
        FAIL() << "a plan is no result";
    } catch (const InputError& error) {
        const std::string message = error.what();
        EXPECT_NE(message.find("my.plan.json: /schema: got \"orrery.plan/1\""), std::string::npos) << message;
        for (const std::string& schema : schemas_shown()) EXPECT_NE(message.find(schema), std::string::npos);
    }
    program::InputSweep other = sweep();
    other.points[0].values.pop_back();
    EXPECT_THROW((void)result_from_json_text(program::to_json_text(other), "f"), InputError);
    EXPECT_THROW((void)result_from_json_text("{}", "f"), InputError);
    EXPECT_THROW((void)result_from_json_text("[]", "f"), InputError);
    EXPECT_THROW((void)result_from_json_text(R"({"schema": "orrery.run_record/1", "plan": "x"})", "f"), InputError);
}

}  // namespace
}  // namespace orrery::reports
