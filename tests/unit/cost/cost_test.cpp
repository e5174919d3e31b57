#include <gtest/gtest.h>

#include <cmath>
#include <memory>

#include "sim/cost/interpolation.h"
#include "sim/cost/roofline_cost.h"
#include "sim/cost/table_cost.h"

namespace orrery::sim {
namespace {

using models::Operator;
using models::OpKind;

topologies::Figure figure(double value, topologies::Provenance kind = topologies::Provenance::datasheet) {
    return {value, kind, "round number"};
}

/// 100 TFLOP/s, 1000 GB/s, 10 units with tiles of 100 x 100.
topologies::DeviceProfile device() {
    topologies::DeviceProfile profile;
    profile.name = "test-gpu";
    profile.peaks = {{DType::bf16, figure(100)}};
    profile.memory_bandwidth_gb_per_s = figure(1000);
    profile.matmul_efficiency = figure(0.8);
    profile.memory_efficiency = figure(0.5);
    profile.compute_units = 10;
    profile.tile_m = 100;
    profile.tile_n = 100;
    return profile;
}

Operator matmul(std::int64_t rows, std::int64_t n, std::int64_t k, OpKind kind = OpKind::linear_forward) {
    Operator op;
    op.kind = kind;
    op.rows = rows;
    op.n = n;
    op.k = k;
    op.flops = 2.0 * static_cast<double>(rows) * static_cast<double>(n) * static_cast<double>(k);
    return op;
}

TEST(Matmul, EfficiencyFollowsTilesWavesAndReductionLength) {
    const topologies::DeviceProfile profile = device();
    const double ramp = 6400.0 / 6464.0;
    // 10 whole tiles on 10 units.
    EXPECT_DOUBLE_EQ(matmul_efficiency(profile, {500, 200, 6400}), 0.8 * ramp);
    // 11 tiles need two waves: 11 of 20 places work.
    EXPECT_DOUBLE_EQ(matmul_efficiency(profile, {1100, 100, 6400}), 0.8 * ramp * 11.0 / 20.0);
    // 450 rows fill 4.5 of 5 tiles.
    EXPECT_DOUBLE_EQ(matmul_efficiency(profile, {450, 200, 6400}), 0.8 * ramp * 0.9);
    // At the ramp's half length half of the plateau.
    EXPECT_DOUBLE_EQ(matmul_efficiency(profile, {500, 200, 64}), 0.4);
    topologies::DeviceProfile cpu = profile;
    cpu.compute_units = cpu.tile_m = cpu.tile_n = 0;
    EXPECT_DOUBLE_EQ(matmul_efficiency(cpu, {7, 3, 1}), 0.8);
}

TEST(Matmul, GradientsHaveTheirOwnShape) {
    const ProductShape input = product_shape(matmul(10, 20, 30, OpKind::linear_backward_input));
    EXPECT_EQ(input.m, 10);
    EXPECT_EQ(input.n, 30);
    EXPECT_EQ(input.k, 20);
    const ProductShape weight = product_shape(matmul(10, 20, 30, OpKind::linear_backward_weight));
    EXPECT_EQ(weight.m, 20);
    EXPECT_EQ(weight.n, 30);
    EXPECT_EQ(weight.k, 10);
}

TEST(Roofline, TakesTheLongerOfArithmeticAndMemory) {
    const RooflineCost cost(device(), DType::bf16);
    Operator op = matmul(500, 200, 6400);
    EXPECT_DOUBLE_EQ(cost.operator_seconds(op), op.flops / (1e14 * 0.8 * 6400.0 / 6464.0));
    op.bytes_read = 3e9;
    op.bytes_written = 1e9;
    EXPECT_DOUBLE_EQ(cost.operator_seconds(op), 4e9 / 5e11);
    op.kind = OpKind::gelu_forward;
    EXPECT_DOUBLE_EQ(cost.operator_seconds(op), 4e9 / 5e11);
    Operator attention;
    attention.kind = OpKind::attention_forward;
    attention.flops = 1e12;
    EXPECT_DOUBLE_EQ(cost.operator_seconds(attention), 1e12 / (1e14 * 0.8 * kAttentionShareOfPlateau));
}

TEST(Roofline, NeedsAPeakForTheType) {
    EXPECT_THROW(RooflineCost(device(), DType::fp16), InputError);
}

topologies::DeviceProfile measured() {
    topologies::DeviceProfile profile = device();
    profile.name = "test-core";
    profile.compute_units = profile.tile_m = profile.tile_n = 0;
    // 10 and 40 GFLOP/s.
    profile.matmul_samples = {{"linear_forward", 10, 10, 10, 2000 / 10e9},
                              {"linear_forward", 1000, 10, 10, 2e5 / 40e9}};
    profile.operator_samples = {{"gelu_forward", 1000, 0, 0, 0, 0, 2e-6},
                                {"gelu_forward", 100000, 0, 0, 0, 0, 200e-6},
                                {"attention_forward", 1, 1e6, 64, 16, 64, 1e-3},
                                {"attention_forward", 1, 1e6, 256, 16, 256, 4e-3}};
    return profile;
}

TEST(Measured, RatesAreExactAtSamplesAndBetweenThemElsewhere) {
    const RooflineCost cost(measured(), DType::bf16);
    EXPECT_DOUBLE_EQ(cost.operator_seconds(matmul(10, 10, 10)), 2000 / 10e9);
    EXPECT_DOUBLE_EQ(cost.operator_seconds(matmul(1000, 10, 10)), 2e5 / 40e9);
    // Half-way in log-shape space both count the same: 25 GFLOP/s.
    EXPECT_NEAR(cost.operator_seconds(matmul(100, 10, 10)), 2e4 / 25e9, 1e-15);
    const double far = matmul(1 << 20, 1, 1).flops / cost.operator_seconds(matmul(1 << 20, 1, 1));
    EXPECT_GE(far, 10e9);
    EXPECT_LE(far, 40e9);
}

TEST(Measured, OtherOperatorsFollowTheirOwnCurve) {
    const RooflineCost cost(measured(), DType::bf16);
    Operator op;
    op.kind = OpKind::gelu_forward;
    op.bytes_read = 10000;
    EXPECT_NEAR(cost.operator_seconds(op), 20e-6, 1e-12);
    op.bytes_read = 200000;
    EXPECT_NEAR(cost.operator_seconds(op), 400e-6, 1e-12);
    Operator attention;
    attention.kind = OpKind::attention_forward;
    attention.flops = 1e6;
    attention.head_dim = 16;
    attention.sequence = 128;  // the geometric mean of the samples' lengths: twice the time per flop
    EXPECT_NEAR(cost.operator_seconds(attention), 2e-3, 1e-12);
    attention.sequence = 4096;
    EXPECT_NEAR(cost.operator_seconds(attention), 4e-3, 1e-12);
}

TEST(Notes, NameEveryOperatorWithoutAFigureOnce) {
    program::Program program;
    program::Body body;
    body.operators = {matmul(1, 1, 1), matmul(2, 2, 2), matmul(1, 1, 1, OpKind::linear_backward_input)};
    Operator norm;
    norm.kind = OpKind::rms_norm_forward;
    body.operators.push_back(norm);
    program.bodies = {body, body};
    const std::vector<std::string> notes = RooflineCost(measured(), DType::bf16).notes(program);
    ASSERT_EQ(notes.size(), 2U);
    EXPECT_NE(notes[0].find("linear_backward_input"), std::string::npos) << notes[0];
    EXPECT_NE(notes[1].find("rms_norm_forward"), std::string::npos) << notes[1];
    EXPECT_TRUE(RooflineCost(device(), DType::bf16).notes(program).empty());
}

TEST(Interpolation, GrowingCurvesStayPositiveAndGrow) {
    const std::vector<CurvePoint> curve = make_curve({{10, 5}, {1, 3}, {10, 5}});
    ASSERT_EQ(curve.size(), 2U);
    EXPECT_DOUBLE_EQ(interpolate_growing(curve, 10), 5);
    EXPECT_DOUBLE_EQ(interpolate_growing(curve, 19), 7);       // 2 for each 9
    EXPECT_NEAR(interpolate_growing(curve, 0.1), 2.8, 1e-12);  // the fixed part stays
    EXPECT_NEAR(interpolate_growing(curve, std::sqrt(10.0)), std::sqrt(15.0), 1e-12);
    // Superlinear: the line through both would be negative near zero.
    EXPECT_DOUBLE_EQ(interpolate_growing(make_curve({{1, 1}, {2, 4}}), 0.5), 0.5);
    EXPECT_DOUBLE_EQ(interpolate_growing(make_curve({{2, 3}}), 4), 6);
    // A falling end is not continued.
    EXPECT_DOUBLE_EQ(interpolate_growing(make_curve({{1, 5}, {2, 4}}), 4), 8);
    EXPECT_DOUBLE_EQ(interpolate_clamped(curve, 0.5), 3);
    EXPECT_DOUBLE_EQ(interpolate_clamped(curve, 50), 5);
}

TEST(Interpolation, NoiseBetweenCloseSamplesIsNotASlope) {
    // 0.25% apart in x and 10% in y, as two timings of nearly the same operator may be.
    const std::vector<CurvePoint> curve =
        make_curve({{1.0, 1.0}, {1.01, 1.2}, {8.0, 8.0}, {16.0, 16.0}, {16.04, 17.6}});
    EXPECT_NEAR(interpolate_growing(curve, 32.0), 17.6 + (17.6 - 8.0) / 8.04 * 15.96, 1e-9);
    EXPECT_NEAR(interpolate_growing(curve, 0.5), 0.5, 1e-9);
    EXPECT_NEAR(interpolate_growing(std::vector<CurvePoint>{{10.0, 5.0}, {10.1, 9.0}}, 20.2), 18.0, 1e-9);
}

TEST(Interpolation, ShapesUseTheNearestOnly) {
    std::vector<ShapePoint> points;
    for (int i = 0; i < 4; ++i) points.push_back({{static_cast<double>(i), 0, 0}, 1.0});
    points.push_back({{100, 0, 0}, 50.0});
    EXPECT_DOUBLE_EQ(interpolate_shapes(points, {1.5, 0.5, 0}), 1.0);
    EXPECT_DOUBLE_EQ(interpolate_shapes(points, {100, 0, 0}), 50.0);
}

TEST(ActionTable, TheFirstComputeInstructionTakesAll) {
    program::Program program;
    program::Body body;
    body.instructions.resize(3);
    body.instructions[0].is_communication = true;
    program.bodies = {body};
    program::RankClass stage;
    stage.segment_lists = {{program::Segment{}, program::Segment{}}};
    stage.actions.resize(1);
    program.classes = {stage};
    const ActionTableCost cost({{program::ActionKind::forward, Picoseconds(9)}});
    EXPECT_EQ(cost.instruction_time({program, 0, 0, 0, 1}).value(), 9);
    EXPECT_EQ(cost.instruction_time({program, 0, 0, 0, 2}).value(), 0);
    EXPECT_EQ(cost.instruction_time({program, 0, 0, 1, 1}).value(), 0);
    program.classes[0].actions[0].kind = program::ActionKind::backward;
    EXPECT_EQ(cost.instruction_time({program, 0, 0, 0, 1}).value(), 0);
}

TEST(Roofline, AnInstructionIsTheSumOfItsOperators) {
    program::Program program;
    program::Body body;
    Operator op;
    op.kind = OpKind::gelu_forward;
    op.bytes_read = 1000;  // 2 ns at 500 GB/s
    body.operators = {op, op, op};
    body.instructions.resize(1);
    body.instructions[0].first_operator = 1;
    body.instructions[0].operator_count = 2;
    program.bodies = {body};
    program::RankClass stage;
    stage.segment_lists = {{program::Segment{}}};
    stage.actions.resize(1);
    program.classes = {stage};
    // Rounded up after a sum of doubles.
    EXPECT_NEAR(to_seconds(RooflineCost(device(), DType::bf16).instruction_time({program, 0, 0, 0, 0})), 4e-9, 2e-12);
}

}  // namespace
}  // namespace orrery::sim
