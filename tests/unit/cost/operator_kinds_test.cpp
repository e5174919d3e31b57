#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "core/error.h"
#include "sim/cost/roofline_cost.h"
#include "tests/unit/cost/round_device.h"

namespace orrery::sim {
namespace {

using models::Operator;
using models::OpKind;
using rounded::cluster;
using rounded::device;
using rounded::matmul;
using Shapes = models::ProductShapes;

Operator experts(std::int64_t rows, std::int64_t n, std::int64_t k, std::int64_t groups, OpKind kind) {
    Operator op = matmul(rows, n, k, kind);
    op.groups = groups;
    return op;
}

TEST(ExpertProducts, AreOneProductOfAGroupsShapePerGroup) {
    EXPECT_EQ(product_shapes(experts(4000, 200, 300, 8, OpKind::expert_linear_forward)), (Shapes{{500, 200, 300, 8}}));
    EXPECT_EQ(product_shapes(experts(4000, 200, 300, 8, OpKind::expert_linear_backward_input)),
              (Shapes{{500, 300, 200, 8}}));
    EXPECT_EQ(product_shapes(experts(4000, 200, 300, 8, OpKind::expert_linear_backward_weight)),
              (Shapes{{200, 300, 500, 8}}));
    EXPECT_EQ(product_shapes(experts(4001, 200, 300, 8, OpKind::expert_linear_forward)), (Shapes{{501, 200, 300, 8}}));
    EXPECT_EQ(product_shapes(experts(40, 200, 300, 0, OpKind::expert_linear_forward)), (Shapes{{40, 200, 300}}));
}

TEST(ExpertProducts, OfAllGroupsFillWavesTogether) {
    const RooflineCost cost(cluster());
    const double ramp = 6400.0 / 6464.0;
    // Each group fills 2 tiles: one group keeps 2 of 10 units busy, five groups all of them.
    const Operator one = experts(200, 100, 6400, 1, OpKind::expert_linear_forward);
    const Operator five = experts(1000, 100, 6400, 5, OpKind::expert_linear_forward);
    EXPECT_DOUBLE_EQ(cost.operator_seconds(one), one.flops / (1e14 * 0.8 * ramp * 0.2));
    EXPECT_DOUBLE_EQ(cost.operator_seconds(five), five.flops / (1e14 * 0.8 * ramp));
    EXPECT_DOUBLE_EQ(cost.operator_seconds(five), cost.operator_seconds(one));
    // 50 rows per group leave tiles half empty.
    const Operator ten = experts(500, 100, 6400, 10, OpKind::expert_linear_forward);
    EXPECT_DOUBLE_EQ(cost.operator_seconds(ten), ten.flops / (1e14 * 0.8 * ramp * 0.5));
    // The weight gradient reduces over one group's rows only.
    const Operator weight = experts(640, 500, 200, 10, OpKind::expert_linear_backward_weight);
    EXPECT_DOUBLE_EQ(cost.operator_seconds(weight), weight.flops / (1e14 * 0.8 * 0.5));
}

TEST(ExpertProducts, SplittingRowsOverMoreExpertsIsNotFaster) {
    topologies::DeviceProfile profile = device();
    profile.compute_units = 132;
    profile.tile_m = profile.tile_n = 128;
    const RooflineCost cost(cluster(profile));
    for (const OpKind kind : {OpKind::expert_linear_forward, OpKind::expert_linear_backward_weight}) {
        const double dense = cost.operator_seconds(experts(65536, 4096, 4096, 1, kind));
        for (const std::int64_t groups : {16, 64, 256, 1024, 4096}) {
            const Operator op = experts(65536, 4096, 4096, groups, kind);
            EXPECT_GE(cost.operator_seconds(op), dense * 0.97) << groups;  // the dense product's last wave is not full
        }
        EXPECT_GT(cost.operator_seconds(experts(65536, 4096, 4096, 4096, kind)), 4 * dense);
    }
}

TEST(ExpertProducts, UseTheRatesOfTimedDenseProducts) {
    topologies::DeviceProfile profile = device();
    profile.matmul_samples = {{"linear_forward", 10, 10, 10, 2000 / 10e9},
                              {"linear_backward_input", 10, 20, 30, 12000 / 20e9},
                              {"linear_backward_input", 10, 30, 20, 12000 / 1e9},
                              {"linear_backward_weight", 10, 20, 30, 12000 / 30e9},
                              {"linear_backward_weight", 20, 30, 10, 12000 / 1e9}};
    const RooflineCost cost(cluster(profile));
    const auto rate = [&](const Operator& op) { return op.flops / cost.operator_seconds(op); };
    EXPECT_NEAR(rate(experts(40, 10, 10, 4, OpKind::expert_linear_forward)), 10e9, 1);
    EXPECT_NEAR(rate(experts(40, 20, 30, 4, OpKind::expert_linear_backward_input)), 20e9, 1);
    EXPECT_NEAR(rate(experts(40, 20, 30, 4, OpKind::expert_linear_backward_weight)), 30e9, 1);
}

/// 2 sequences with 5 heads: 10 products of each kind.
Operator attention_product(OpKind kind, std::int64_t queries, std::int64_t keys) {
    Operator op;
    op.kind = kind;
    op.math = DType::bf16;
    op.micro_batch = 2;
    op.heads = 5;
    op.head_dim = 64;
    op.sequence = keys;
    op.queries = queries;
    const bool two = kind == OpKind::scores_backward || kind == OpKind::context_backward;
    op.flops = (two ? 2.0 : 1.0) * 2.0 * 10.0 * 64.0 * static_cast<double>(queries * keys);
    return op;
}

TEST(UnfusedAttention, ConsistsOfBatchedProducts) {
    EXPECT_EQ(product_shapes(attention_product(OpKind::scores_forward, 200, 400)), (Shapes{{200, 400, 64, 10}}));
    EXPECT_EQ(product_shapes(attention_product(OpKind::context_forward, 200, 400)), (Shapes{{200, 64, 400, 10}}));
    EXPECT_EQ(product_shapes(attention_product(OpKind::scores_backward, 200, 400)),
              (Shapes{{200, 64, 400, 10}, {400, 64, 200, 10}}));
    Operator latent = attention_product(OpKind::context_backward, 200, 400);
    latent.value_dim = 32;
    EXPECT_EQ(product_shapes(latent), (Shapes{{200, 400, 32, 10}, {400, 32, 200, 10}}));
    latent.queries = 0;  // as many as keys
    EXPECT_EQ(product_shapes(latent), (Shapes{{400, 400, 32, 10}, {400, 32, 400, 10}}));

    const RooflineCost cost(cluster());
    // 8 tiles each, 80 in all, are 8 whole waves; a reduction length of 64 gives half of the plateau.
    const Operator scores = attention_product(OpKind::scores_forward, 200, 400);
    EXPECT_DOUBLE_EQ(cost.operator_seconds(scores), scores.flops / (1e14 * 0.4));
    // Two products with reduction lengths of 400 and 200; 64 of 100 columns of a tile are used.
    Operator backward = attention_product(OpKind::scores_backward, 200, 400);
    const double half = backward.flops / 2 / (1e14 * 0.8 * 0.64);
    EXPECT_DOUBLE_EQ(cost.operator_seconds(backward), half * 464.0 / 400.0 + half * 264.0 / 200.0);
    backward.bytes_read = 1e9;  // 2 ms: more than the arithmetic
    EXPECT_DOUBLE_EQ(cost.operator_seconds(backward), 2e-3);
}

TEST(UnfusedAttention, UsesTheBetterTileOrientation) {
    topologies::DeviceProfile profile = device();
    profile.tile_m = 64;
    profile.tile_n = 200;
    // Given orientation: 64 of 200 columns are used. Turned: all 64 columns, and 400 rows are 2 tiles.
    EXPECT_DOUBLE_EQ(matmul_efficiency(profile, {400, 64, 64, 5}), 0.8 * 0.5);
    EXPECT_DOUBLE_EQ(matmul_efficiency(profile, {400, 64, 64, 1}), 0.8 * 0.5 * (64.0 / 200) * (400.0 / 448) * 0.7);
}

TEST(ElementWise, EveryOtherKindCostsItsBytes) {
    const RooflineCost cost(cluster());
    for (const OpKind kind : {OpKind::softmax_forward, OpKind::dropout_backward, OpKind::attention_merge,
                              OpKind::relu_forward, OpKind::silu_backward, OpKind::bias_add, OpKind::multiply,
                              OpKind::accumulate, OpKind::cast, OpKind::router_forward, OpKind::permute_forward,
                              OpKind::permute_backward, OpKind::combine_forward, OpKind::combine_backward,
                              OpKind::adamw, OpKind::sgd_momentum, OpKind::gradient_norm, OpKind::gradient_scale}) {
        Operator op;
        op.kind = kind;
        op.flops = 1e12;
        op.bytes_read = 3e9;
        op.bytes_written = 1e9;
        EXPECT_DOUBLE_EQ(cost.operator_seconds(op), 4e9 / 5e11) << models::name_of(kind);
    }
}

Operator moving(OpKind kind, double read, double written) {
    Operator op;
    op.kind = kind;
    op.bytes_read = read;
    op.bytes_written = written;
    return op;
}

TEST(HostMemory, CopiesUseTheHostLink) {
    // The link reaches 50 GB/s * 0.8 = 40 GB/s; the node's 100 GB/s shared by 4 devices are 25 GB/s.
    EXPECT_DOUBLE_EQ(RooflineCost(cluster()).operator_seconds(moving(OpKind::copy_to_host, 1e9, 1e9)),
                     10e-6 + 1e9 / 25e9);
    topologies::ClusterSpec spec = cluster();
    spec.host_memory_bandwidth_gb_per_s.value = 0;  // unknown: no limit
    EXPECT_DOUBLE_EQ(RooflineCost(spec).operator_seconds(moving(OpKind::copy_from_host, 0, 1e9)), 10e-6 + 1e9 / 40e9);
    const RooflineCost whole(cluster());
    EXPECT_DOUBLE_EQ(whole.copy_seconds(moving(OpKind::copy_from_host, 1e9, 0), 1), 10e-6 + 1e9 / 40e9);
    EXPECT_DOUBLE_EQ(whole.copy_seconds(moving(OpKind::copy_from_host, 0, 0), 1), 10e-6);
    // A separate link to host memory takes precedence.
    spec.host_memory_link = {.name = "test-c2c",
                             .bandwidth_gb_per_s_per_direction = rounded::figure(400),
                             .latency_us = rounded::figure(1),
                             .efficiency = rounded::figure(0.5)};
    EXPECT_DOUBLE_EQ(RooflineCost(spec).operator_seconds(moving(OpKind::copy_to_host, 1e9, 1e9)), 1e-6 + 1e9 / 200e9);
    spec.host_memory_link = spec.host_link = {};
    EXPECT_THROW((void)RooflineCost(spec).operator_seconds(moving(OpKind::copy_to_host, 1, 1)), InputError);
    // If ranks run on the host, there is only one memory.
    spec.device.host_runs_compute = true;
    EXPECT_DOUBLE_EQ(RooflineCost(spec).operator_seconds(moving(OpKind::copy_to_host, 1e9, 1e9)), 2e9 / 5e11);
}

program::Program on_stream(program::Stream stream, const Operator& op, std::int64_t ranks) {
    program::Program program;
    auto plan = std::make_shared<program::Plan>();
    plan->parallelism.dp = ranks;
    program.plan = plan;
    program::Body body;
    body.operators = {op};
    body.instructions.resize(1);
    body.instructions[0].stream = stream;
    body.instructions[0].operator_count = 1;
    program.bodies = {body};
    program::RankClass stage;
    stage.segment_lists = {{program::Segment{}}};
    stage.actions.resize(1);
    program.classes = {stage};
    return program;
}

double first_seconds(const topologies::ClusterSpec& spec, const program::Program& program) {
    return to_seconds(RooflineCost(spec).instruction_time({program, 0, 0, 0, 0}));
}

TEST(HostMemory, TheHostUpdatesOffloadedStates) {
    const Operator update = moving(OpKind::adamw, 3e9, 1e9);
    const auto seconds = [&](program::Stream stream, std::int64_t ranks) {
        return first_seconds(cluster(), on_stream(stream, update, ranks));
    };
    EXPECT_NEAR(seconds(program::Stream::compute, 4), 4e9 / 5e11, 1e-11);
    EXPECT_NEAR(seconds(program::Stream::host, 1), 4e9 / 80e9, 1e-11);
    EXPECT_NEAR(seconds(program::Stream::host, 4), 4e9 / 20e9, 1e-11);
    EXPECT_NEAR(seconds(program::Stream::host, 64), 4e9 / 20e9, 1e-11);  // a node has 4 devices
    const Operator copy = moving(OpKind::copy_to_host, 1e9, 1e9);
    EXPECT_NEAR(first_seconds(cluster(), on_stream(program::Stream::copy_out, copy, 2)), 10e-6 + 1e9 / 40e9, 1e-11);
    EXPECT_NEAR(first_seconds(cluster(), on_stream(program::Stream::copy_out, copy, 4)), 10e-6 + 1e9 / 25e9, 1e-11);
    const Operator wait = moving(OpKind::host_wait, 0, 0);
    EXPECT_EQ(first_seconds(cluster(), on_stream(program::Stream::host, wait, 4)), 0);

    topologies::ClusterSpec spec = cluster();
    spec.host_memory_bandwidth_gb_per_s.value = 0;
    EXPECT_EQ(first_seconds(spec, on_stream(program::Stream::host, wait, 4)), 0);
    EXPECT_THROW((void)first_seconds(spec, on_stream(program::Stream::host, update, 4)), InputError);
    spec.device.host_runs_compute = true;  // the host is the device
    EXPECT_NEAR(first_seconds(spec, on_stream(program::Stream::host, update, 4)), 4e9 / 5e11, 1e-11);
}

bool mentions(const std::vector<std::string>& notes, const std::string& text) {
    return std::any_of(notes.begin(), notes.end(),
                       [&](const std::string& note) { return note.find(text) != std::string::npos; });
}

TEST(Notes, NameAssumptionsAboutHostCopiesAndTypes) {
    topologies::ClusterSpec spec = cluster();
    const Operator copy = moving(OpKind::copy_to_host, 1, 1);
    const auto notes_of = [&](program::Stream stream, const Operator& op) {
        return RooflineCost(spec).notes(on_stream(stream, op, 2));
    };
    EXPECT_TRUE(mentions(notes_of(program::Stream::copy_out, copy), "2 devices of a node are taken to copy"));
    EXPECT_FALSE(mentions(notes_of(program::Stream::copy_out, copy), "is assumed"));
    spec.host_link.efficiency.kind = topologies::Provenance::fallback;
    EXPECT_TRUE(mentions(notes_of(program::Stream::copy_out, copy), "share of test-link that is reached is assumed"));
    const Operator update = moving(OpKind::adamw, 1, 1);
    EXPECT_TRUE(mentions(notes_of(program::Stream::host, update), "host memory bandwidth"));
    EXPECT_TRUE(notes_of(program::Stream::compute, update).empty());
    EXPECT_TRUE(notes_of(program::Stream::host, moving(OpKind::host_wait, 0, 0)).empty());

    Operator product = matmul(1, 1, 1);
    EXPECT_TRUE(notes_of(program::Stream::compute, product).empty());
    product.math = DType::fp8;
    EXPECT_TRUE(mentions(notes_of(program::Stream::compute, product), "products in fp8"));
    EXPECT_TRUE(mentions(notes_of(program::Stream::compute, moving(OpKind::router_forward, 1, 1)), "router_forward"));

    spec.device.operator_samples = {{"attention_forward", 1, 1e6, 64, 16, 64, 1e-3}};
    Operator attention;
    attention.kind = OpKind::attention_forward;
    attention.sequence = 64;
    attention.queries = 64;
    EXPECT_TRUE(notes_of(program::Stream::compute, attention).empty());
    attention.queries = 32;
    EXPECT_TRUE(mentions(notes_of(program::Stream::compute, attention), "timed on squares"));
}

}  // namespace
}  // namespace orrery::sim
