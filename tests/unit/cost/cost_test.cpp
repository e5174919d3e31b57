#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "core/error.h"
#include "sim/cost/interpolation.h"
#include "sim/cost/roofline_cost.h"
#include "sim/cost/table_cost.h"
#include "tests/unit/cost/round_device.h"

namespace orrery::sim {
namespace {

using models::Operator;
using models::OpKind;

using rounded::cluster;
using rounded::device;
using rounded::matmul;

TEST(Matmul, EfficiencyFollowsTilesWavesAndReductionLength) {
    const topologies::DeviceProfile profile = device();
    const double ramp = 6400.0 / 6464.0;
    // 10 whole tiles on 10 units.
    EXPECT_DOUBLE_EQ(matmul_efficiency(profile, {500, 200, 6400}), 0.8 * ramp);
    // 11 tiles need two waves: 11 of 20 slots are used.
    EXPECT_DOUBLE_EQ(matmul_efficiency(profile, {1100, 100, 6400}), 0.8 * ramp * 11.0 / 20.0);
    // 450 rows fill 4.5 of 5 tiles.
    EXPECT_DOUBLE_EQ(matmul_efficiency(profile, {450, 200, 6400}), 0.8 * ramp * 0.9);
    // At the half-rate reduction length: half of the plateau.
    EXPECT_DOUBLE_EQ(matmul_efficiency(profile, {500, 200, 64}), 0.4);
    topologies::DeviceProfile narrow = profile;
    narrow.narrow_matmul_efficiency = {{DType::fp8, {.value = 0.5}}};
    EXPECT_DOUBLE_EQ(matmul_efficiency(narrow, {500, 200, 6400}, DType::fp8), 0.5 * ramp);
    EXPECT_DOUBLE_EQ(matmul_efficiency(narrow, {500, 200, 6400}, DType::bf16), 0.8 * ramp);
    topologies::DeviceProfile cpu = profile;
    cpu.compute_units = cpu.tile_m = cpu.tile_n = 0;
    EXPECT_DOUBLE_EQ(matmul_efficiency(cpu, {7, 3, 1}), 0.8);
}

TEST(Matmul, GradientsHaveTheirOwnShapes) {
    using Shapes = models::ProductShapes;
    EXPECT_EQ(product_shapes(matmul(10, 20, 30)), (Shapes{{10, 20, 30}}));
    EXPECT_EQ(product_shapes(matmul(10, 20, 30, OpKind::linear_backward_input)), (Shapes{{10, 30, 20}}));
    EXPECT_EQ(product_shapes(matmul(10, 20, 30, OpKind::linear_backward_weight)), (Shapes{{20, 30, 10}}));
    EXPECT_TRUE(product_shapes(matmul(10, 20, 30, OpKind::gelu_forward)).empty());
}

// Pieces of a GEMM that run concurrently fill the waves together.
TEST(Matmul, PiecesTakeTheirShareOfTheWholeProduct) {
    const RooflineCost cost(cluster());
    for (const models::OpKind kind : {models::OpKind::linear_forward, models::OpKind::linear_backward_input,
                                      models::OpKind::linear_backward_weight}) {
        const Operator whole = matmul(1000, 300, 6400, kind);
        Operator piece = matmul(250, 300, 6400, kind);
        EXPECT_GT(4 * cost.operator_seconds(piece), 1.02 * cost.operator_seconds(whole)) << name_of(kind);
        piece.pieces = 4;
        EXPECT_EQ(product_shapes(piece), product_shapes(whole));
        EXPECT_DOUBLE_EQ(4 * cost.operator_seconds(piece), cost.operator_seconds(whole)) << name_of(kind);
    }
}

TEST(Roofline, TakesTheLongerOfArithmeticAndMemory) {
    const RooflineCost cost(cluster());
    Operator op = matmul(500, 200, 6400);
    EXPECT_DOUBLE_EQ(cost.operator_seconds(op), op.flops / (1e14 * 0.8 * 6400.0 / 6464.0));
    op.bytes_read = 3e9;
    op.bytes_written = 1e9;
    EXPECT_DOUBLE_EQ(cost.operator_seconds(op), 4e9 / 5e11);
    op.kind = OpKind::gelu_forward;
    EXPECT_DOUBLE_EQ(cost.operator_seconds(op), 4e9 / 5e11);
    Operator attention;
    attention.kind = OpKind::attention_forward;
    attention.math = DType::bf16;
    attention.flops = 1e12;
    attention.sequence = 1000;  // half of the rate for infinitely many keys
    attention.head_dim = 60;    // three quarters of the rate for infinitely wide heads
    const double seconds = 1e12 / (1e14 * 0.8 * kAttentionShareOfPlateau * 0.5 * 0.75);
    EXPECT_DOUBLE_EQ(cost.operator_seconds(attention), seconds);
    attention.kind = OpKind::attention_backward;
    EXPECT_DOUBLE_EQ(cost.operator_seconds(attention), seconds / kAttentionBackwardShare);
    attention.kind = OpKind::attention_forward;
    attention.sequence = 8000;
    attention.reach = 1000;  // documents of 1000 positions: tiles are as short
    EXPECT_DOUBLE_EQ(cost.operator_seconds(attention), seconds);
}

TEST(Roofline, RatesMultiplyTheTimeOfTheirWork) {
    program::Rates rates;
    rates.set(program::RateKey::computation, {"a", {.value = 2}});
    rates.set(program::RateKey::products, {"b", {.value = 1.5}});
    rates.set(program::RateKey::elementwise, {"c", {.value = 3}});
    const RooflineCost plain(cluster()), rated(cluster(), rates);
    Operator op = matmul(500, 200, 6400);
    EXPECT_DOUBLE_EQ(rated.operator_seconds(op), 3 * plain.operator_seconds(op));
    op.kind = OpKind::gelu_forward;
    op.bytes_read = 1e9;
    EXPECT_DOUBLE_EQ(rated.operator_seconds(op), 6 * plain.operator_seconds(op));
}

/// A device with 100 units whose GEMMs lose half of the idle part of the last wave.
topologies::DeviceProfile with_products(double kernel_us) {
    topologies::DeviceProfile profile = device();
    profile.compute_units = 100;
    profile.products = topologies::ProductFigures{.wave_share = rounded::figure(0.5),
                                                  .tile_share = rounded::figure(0.9),
                                                  .fill_length = rounded::figure(100),
                                                  .kernel_us = rounded::figure(kernel_us),
                                                  .power_slope = rounded::figure(0.1)};
    return profile;
}

TEST(Products, UseTheBestTileAndLosePartOfTheLastWave) {
    const topologies::DeviceProfile profile = with_products(0);
    // 100 tiles of 128 x 256 are one full wave; filling costs 100 of the reduction length.
    EXPECT_DOUBLE_EQ(matmul_efficiency(profile, {1280, 2560, 900}), 0.8 * 0.9);
    // 170 tiles: 1.7 waves, which cost 1.85.
    EXPECT_DOUBLE_EQ(matmul_efficiency(profile, {2176, 2560, 900}), 0.8 * 0.9 * 1.7 / 1.85);
    // 150 tiles: half-size tiles fill three waves, which is better than one and a half waves.
    EXPECT_DOUBLE_EQ(matmul_efficiency(profile, {1920, 2560, 900}), 0.8 * 0.9 * 0.9);
    // 64 x 64: a single tile of that size on one of 100 units.
    EXPECT_DOUBLE_EQ(matmul_efficiency(profile, {64, 64, 900}), 0.8 * 0.9 * 0.01 * 0.9 * 0.9 * 0.9);
    // A batch of 100 fills the units.
    EXPECT_DOUBLE_EQ(matmul_efficiency(profile, {64, 64, 900, 100}), 0.8 * 0.9 * 0.9 * 0.9 * 0.9);
}

TEST(Products, LargeOnesSlowDownByTheirPowerDraw) {
    const topologies::DeviceProfile profile = with_products(0);
    // 100 tiles of 128 x 256 with k = 10^6: 6.5536 10^12 FLOPs.
    const double k = 1e6, flops = 2.0 * 1280 * 2560 * k;
    EXPECT_DOUBLE_EQ(matmul_efficiency(profile, {1280, 2560, 1'000'000}),
                     0.8 * (k / (k + 100)) / (1 + 0.1 * std::log10(flops / 1e12)));
}

TEST(Products, EachKernelAddsItsLaunchTime) {
    const RooflineCost without(cluster(with_products(0))), with(cluster(with_products(3)));
    Operator op = matmul(500, 200, 6400);
    EXPECT_NEAR(with.operator_seconds(op) - without.operator_seconds(op), 3e-6, 1e-15);
    op.kind = OpKind::gelu_forward;
    EXPECT_NEAR(with.operator_seconds(op) - without.operator_seconds(op), 3e-6, 1e-15);
    op.kind = OpKind::host_wait;
    EXPECT_EQ(with.operator_seconds(op), 0);
}

TEST(Roofline, UsesThePeakOfTheType) {
    topologies::DeviceProfile profile = device();
    profile.peaks = {{DType::bf16, rounded::figure(100)},
                     {DType::fp8, rounded::figure(200)},
                     {DType::tf32, rounded::figure(50)},
                     {DType::fp32, rounded::figure(10)}};
    const RooflineCost cost(cluster(profile));
    Operator op = matmul(500, 200, 6400);
    const double seconds = cost.operator_seconds(op);
    op.math = DType::fp8;
    EXPECT_DOUBLE_EQ(cost.operator_seconds(op), seconds / 2);
    op.math = DType::tf32;
    EXPECT_DOUBLE_EQ(cost.operator_seconds(op), seconds * 2);
    op.math = DType::fp32;
    EXPECT_DOUBLE_EQ(cost.operator_seconds(op), seconds * 10);
    op.kind = OpKind::attention_forward;
    op.sequence = 1000;
    op.head_dim = 60;
    EXPECT_DOUBLE_EQ(cost.operator_seconds(op), op.flops / (1e13 * 0.8 * kAttentionShareOfPlateau * 0.5 * 0.75));
    op.math = DType::fp16;
    EXPECT_THROW((void)cost.operator_seconds(op), InputError);
    op.kind = OpKind::expert_linear_forward;
    try {
        (void)cost.operator_seconds(op);
        FAIL();
    } catch (const InputError& error) {
        EXPECT_NE(std::string(error.what()).find("fp16"), std::string::npos) << error.what();
        EXPECT_NE(std::string(error.what()).find("test-gpu"), std::string::npos) << error.what();
    }
    op.kind = OpKind::gelu_forward;  // no multiplication: works in any type
    EXPECT_EQ(cost.operator_seconds(op), 0);
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
    for (auto& sample : profile.matmul_samples) sample.dtype = DType::bf16;
    for (auto& sample : profile.operator_samples) sample.dtype = DType::bf16;
    return profile;
}

TEST(Measured, RatesAreExactAtSamplesAndInterpolatedElsewhere) {
    const RooflineCost cost(cluster(measured()));
    EXPECT_DOUBLE_EQ(cost.operator_seconds(matmul(10, 10, 10)), 2000 / 10e9);
    EXPECT_DOUBLE_EQ(cost.operator_seconds(matmul(1000, 10, 10)), 2e5 / 40e9);
    // Half-way in log-shape space both samples have the same weight: 25 GFLOP/s.
    EXPECT_NEAR(cost.operator_seconds(matmul(100, 10, 10)), 2e4 / 25e9, 1e-15);
    const double far = matmul(1 << 20, 1, 1).flops / cost.operator_seconds(matmul(1 << 20, 1, 1));
    EXPECT_GE(far, 10e9);
    EXPECT_LE(far, 40e9);
}

TEST(Measured, OtherOperatorsFollowTheirOwnCurve) {
    const RooflineCost cost(cluster(measured()));
    Operator op;
    op.kind = OpKind::gelu_forward;
    op.bytes_read = 10000;
    EXPECT_NEAR(cost.operator_seconds(op), 20e-6, 1e-12);
    op.bytes_read = 200000;
    EXPECT_NEAR(cost.operator_seconds(op), 400e-6, 1e-12);
    Operator attention;
    attention.kind = OpKind::attention_forward;
    attention.math = DType::bf16;
    attention.flops = 1e6;
    attention.head_dim = 16;
    attention.sequence = 128;  // the geometric mean of the samples' lengths: twice the time per flop
    EXPECT_NEAR(cost.operator_seconds(attention), 2e-3, 1e-12);
    attention.sequence = 4096;
    EXPECT_NEAR(cost.operator_seconds(attention), 4e-3, 1e-12);
    // 64 queries over 256 keys have the area of a square of 128.
    attention.sequence = 256;
    attention.queries = 64;
    EXPECT_NEAR(cost.operator_seconds(attention), 2e-3, 1e-12);
    attention.queries = 256;
    EXPECT_NEAR(cost.operator_seconds(attention), 4e-3, 1e-12);
}

TEST(Measured, TimingsInTheSameTypeTakePrecedence) {
    topologies::DeviceProfile profile = measured();
    profile.peaks.push_back({DType::fp32, rounded::figure(50)});
    profile.matmul_samples.push_back({"linear_forward", 10, 10, 10, 2000 / 5e9, DType::fp32});
    profile.operator_samples.push_back({"gelu_forward", 1000, 0, 0, 0, 0, 7e-6, DType::fp32});
    const RooflineCost cost(cluster(profile));
    Operator product = matmul(10, 10, 10);
    EXPECT_DOUBLE_EQ(cost.operator_seconds(product), 2000 / 10e9);
    product.math = DType::fp32;
    EXPECT_DOUBLE_EQ(cost.operator_seconds(product), 2000 / 5e9);
    Operator gelu;
    gelu.kind = OpKind::gelu_forward;
    gelu.bytes_read = 1000;
    EXPECT_DOUBLE_EQ(cost.operator_seconds(gelu), 7e-6);
    gelu.math = DType::bf16;
    EXPECT_DOUBLE_EQ(cost.operator_seconds(gelu), 2e-6);
    Operator attention;
    attention.kind = OpKind::attention_forward;
    attention.flops = 1e6;
    attention.head_dim = 16;
    attention.sequence = 64;
    EXPECT_DOUBLE_EQ(cost.operator_seconds(attention), 1e-3);

    program::Program program;
    program::Body body;
    body.operators = {product, gelu, attention};
    program.bodies = {body};
    EXPECT_EQ(cost.notes(program),
              (std::vector<std::string>{"cost of attention_forward on test-core: no timing in fp32, "
                                        "taken from another type's"}));
}

// Timings of products are of those with one result.
TEST(Matmul, ASecondResultIsWrittenInAddition) {
    Operator product = matmul(512, 512, 512);
    product.bytes_read = product.bytes_written = 3e6;
    Operator with_gelu = product;
    with_gelu.out[1] = 1;
    with_gelu.bytes_written = 6e6;
    const RooflineCost timed(cluster(measured()));
    const double second = 3e6 / (1e12 * 0.5);
    EXPECT_NEAR(timed.operator_seconds(with_gelu) - timed.operator_seconds(product), second, 1e-12);
    // Without timings only the larger of arithmetic and memory traffic counts.
    const RooflineCost untimed(cluster());
    EXPECT_LT(untimed.operator_seconds(with_gelu) - untimed.operator_seconds(product), 1.01 * second);
}

TEST(Notes, NameEveryOperatorWithoutATimingOnce) {
    program::Program program;
    program::Body body;
    body.operators = {matmul(1, 1, 1), matmul(2, 2, 2), matmul(1, 1, 1, OpKind::linear_backward_input)};
    Operator norm;
    norm.kind = OpKind::rms_norm_forward;
    body.operators.push_back(norm);
    program.bodies = {body, body};
    const std::vector<std::string> notes = RooflineCost(cluster(measured())).notes(program);
    ASSERT_EQ(notes.size(), 2U);
    EXPECT_NE(notes[0].find("linear_backward_input"), std::string::npos) << notes[0];
    EXPECT_NE(notes[1].find("rms_norm_forward"), std::string::npos) << notes[1];
    EXPECT_TRUE(RooflineCost(cluster()).notes(program).empty());
}

TEST(Interpolation, GrowingCurvesStayPositiveAndGrow) {
    const std::vector<CurvePoint> curve = make_curve({{10, 5}, {1, 3}, {10, 5}});
    ASSERT_EQ(curve.size(), 2U);
    EXPECT_DOUBLE_EQ(interpolate_growing(curve, 10), 5);
    EXPECT_DOUBLE_EQ(interpolate_growing(curve, 19), 7);       // 2 for each 9
    EXPECT_NEAR(interpolate_growing(curve, 0.1), 2.8, 1e-12);  // the constant part remains
    EXPECT_NEAR(interpolate_growing(curve, std::sqrt(10.0)), std::sqrt(15.0), 1e-12);
    // Superlinear: the line through both would be negative near zero.
    EXPECT_DOUBLE_EQ(interpolate_growing(make_curve({{1, 1}, {2, 4}}), 0.5), 0.5);
    EXPECT_DOUBLE_EQ(interpolate_growing(make_curve({{2, 3}}), 4), 6);
    // A falling end is not extrapolated.
    EXPECT_DOUBLE_EQ(interpolate_growing(make_curve({{1, 5}, {2, 4}}), 4), 8);
    EXPECT_DOUBLE_EQ(interpolate_clamped(curve, 0.5), 3);
    EXPECT_DOUBLE_EQ(interpolate_clamped(curve, 50), 5);
}

TEST(Interpolation, IgnoresTheSlopeBetweenCloseSamples) {
    // Pairs of samples 1% and 0.25% apart in x but 20% and 10% in y, like two timings of nearly the same operator.
    const std::vector<CurvePoint> curve =
        make_curve({{1.0, 1.0}, {1.01, 1.2}, {8.0, 8.0}, {16.0, 16.0}, {16.04, 17.6}});
    EXPECT_NEAR(interpolate_growing(curve, 32.0), 17.6 + (17.6 - 8.0) / 8.04 * 15.96, 1e-9);
    EXPECT_NEAR(interpolate_growing(curve, 0.5), 0.5, 1e-9);
    EXPECT_NEAR(interpolate_growing(std::vector<CurvePoint>{{10.0, 5.0}, {10.1, 9.0}}, 20.2), 18.0, 1e-9);
}

TEST(Interpolation, ShapesUseOnlyTheNearestPoints) {
    std::vector<ShapePoint> points;
    for (int i = 0; i < 4; ++i) points.push_back({{static_cast<double>(i), 0, 0}, 1.0});
    points.push_back({{100, 0, 0}, 50.0});
    EXPECT_DOUBLE_EQ(interpolate_shapes(points, {1.5, 0.5, 0}), 1.0);
    EXPECT_DOUBLE_EQ(interpolate_shapes(points, {100, 0, 0}), 50.0);
}

program::Program one_action(program::ActionKind kind, IndexedVector<program::BodyId, program::Body> bodies,
                            program::SegmentList segments) {
    program::Program program;
    program.bodies = std::move(bodies);
    program::RankClass stage;
    stage.segment_lists = {std::move(segments)};
    stage.actions.resize(1);
    stage.actions[0].kind = kind;
    program.classes = {stage};
    return program;
}

TEST(ActionTable, TheFirstComputeInstructionTakesTheWholeTime) {
    program::Body body;
    body.instructions.resize(3);
    body.instructions[0].is_communication = true;
    program::Program program =
        one_action(program::ActionKind::forward, {body}, {program::Segment{}, program::Segment{}});
    const ActionTableCost cost({{program::ActionKind::forward, Picoseconds(9)}});
    EXPECT_EQ(cost.instruction_time({program, 0, 0, 0, 1}).value(), 9);
    EXPECT_EQ(cost.instruction_time({program, 0, 0, 0, 2}).value(), 0);
    EXPECT_EQ(cost.instruction_time({program, 0, 0, 1, 1}).value(), 0);
    program.classes[0].actions[0].kind = program::ActionKind::backward;
    EXPECT_EQ(cost.instruction_time({program, 0, 0, 0, 1}).value(), 0);
}

TEST(ActionTable, CopiesHostWorkAndEventsTakeNoTime) {
    program::Body first;
    first.instructions.resize(3);
    first.instructions[0].stream = program::Stream::copy_in;
    first.instructions[0].operator_count = 1;
    first.instructions[1].stream = program::Stream::host;
    first.instructions[1].operator_count = 1;
    first.instructions[2].operator_count = 0;  // on the compute stream, but only an event
    program::Body second;
    second.instructions.resize(2);
    second.instructions[0].operator_count = 4;
    second.instructions[1].operator_count = 1;
    const program::Program program = one_action(program::ActionKind::backward_weight, {first, second},
                                                {program::Segment{.body = 0}, program::Segment{.body = 1}});
    const ActionTableCost cost({{program::ActionKind::backward_weight, Picoseconds(5)}});
    for (const program::InstructionIndex instruction : first.instructions.indices()) {
        EXPECT_EQ(cost.instruction_time({program, 0, 0, 0, instruction}).value(), 0) << instruction.value();
    }
    EXPECT_EQ(cost.instruction_time({program, 0, 0, 1, 0}).value(), 5);
    EXPECT_EQ(cost.instruction_time({program, 0, 0, 1, 1}).value(), 0);
}

TEST(ActionTable, TimesByChunkAndByVirtualStage) {
    using program::ActionKind;
    program::Body body;
    body.instructions.resize(1);
    program::Program program;
    program.bodies = {body};
    for (int rank = 0; rank < 2; ++rank) {  // a V: rank 0 holds virtual stages 0 and 3, rank 1 holds 1 and 2
        program::RankClass stage;
        stage.name = "stage " + std::to_string(rank);
        stage.chunks.resize(2);
        stage.chunks[0].virtual_stage = rank;
        stage.chunks[1].virtual_stage = 3 - rank;
        stage.segment_lists = {{program::Segment{}}};
        for (const program::ChunkIndex chunk : stage.chunks.indices()) {
            for (const ActionKind kind : {ActionKind::forward, ActionKind::backward_input, ActionKind::backward_weight,
                                          ActionKind::send_forward, ActionKind::optimizer_step}) {
                program::Action action;
                action.kind = kind;
                action.chunk = chunk;
                stage.actions.push_back(action);
            }
        }
        program.classes.push_back(stage);
    }
    const auto times = [](std::int64_t base) {
        return ActionTableCost::Durations{{ActionKind::forward, Picoseconds(base)},
                                          {ActionKind::backward_input, Picoseconds(base + 1)},
                                          {ActionKind::backward_weight, Picoseconds(base + 2)}};
    };
    const auto by_chunk = ActionTableCost::of_chunks({{times(10), times(20)}, {times(30), times(40)}});
    const auto by_stage = ActionTableCost::of_virtual_stages({times(10), times(30), times(40), times(20)});
    for (const ActionTableCost& cost : {by_chunk, by_stage}) {
        for (const program::ClassIndex rank : program.classes.indices()) {
            for (const program::ActionIndex action : program.classes[rank].actions.indices()) {
                const int chunk = action.value() / 5, kind = action.value() % 5;
                const std::int64_t base = 10 + 20 * rank.value() + 10 * chunk;
                EXPECT_EQ(cost.instruction_time({program, rank, action, 0, 0}).value(), kind < 3 ? base + kind : 0)
                    << rank.value() << action.value();
            }
        }
    }
    const auto too_few = ActionTableCost::of_chunks({{times(10), times(20)}, {times(30)}});
    EXPECT_EQ(too_few.instruction_time({program, 1, 0, 0, 0}).value(), 30);
    EXPECT_THROW((void)too_few.instruction_time({program, 1, 5, 0, 0}), BugError);
    EXPECT_EQ(too_few.instruction_time({program, 1, 9, 0, 0}).value(), 0);  // the optimizer belongs to no chunk
    const auto too_few_stages = ActionTableCost::of_virtual_stages({times(10), times(30), times(40)});
    EXPECT_THROW((void)too_few_stages.instruction_time({program, 0, 5, 0, 0}), BugError);
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
    EXPECT_NEAR(to_seconds(RooflineCost(cluster()).instruction_time({program, 0, 0, 0, 0})), 4e-9, 2e-12);
}

}  // namespace
}  // namespace orrery::sim
