#include "exec/operator_samples.h"

#include <gtest/gtest.h>

#include <tuple>

namespace orrery::exec {
namespace {

using models::Operator;
using models::OpKind;

TEST(OperatorSamples, AreTheMedianOfEachShape) {
    const Operator product{.kind = OpKind::linear_forward, .rows = 4, .n = 8, .k = 16};
    Operator wider = product;
    wider.n = 16;
    OperatorSamples timed;
    EXPECT_FALSE(timed.has(product));
    for (const double seconds : {4e-6, 1e-6, 2e-6}) timed.add(product, seconds);
    timed.add(wider, 2e-6);
    EXPECT_TRUE(timed.has(product));
    const OperatorSamples::Samples samples = timed.samples();
    ASSERT_EQ(samples.matmuls.size(), 2U);
    EXPECT_TRUE(samples.operators.empty());
    EXPECT_EQ(samples.matmuls[0].n, 8);
    EXPECT_DOUBLE_EQ(samples.matmuls[0].seconds, 2e-6);
    EXPECT_DOUBLE_EQ(samples.best_flops_per_s.at(DType::fp32), 2.0 * 4 * 16 * 16 / 2e-6);
}

TEST(OperatorSamples, UpdatesOfDifferentSizesAreDistinct) {
    OperatorSamples timed;
    timed.add({.kind = OpKind::adamw, .elements = 100}, 1e-6);
    timed.add({.kind = OpKind::adamw, .elements = 200}, 3e-6);
    EXPECT_EQ(timed.samples().operators.size(), 2U);
    EXPECT_TRUE(timed.samples().best_flops_per_s.empty());
}

TEST(OperatorSamples, StateTheirShape) {
    OperatorSamples timed;
    timed.add({.kind = OpKind::attention_forward, .rows = 6, .heads = 4, .kv_heads = 2, .head_dim = 8, .sequence = 3},
              1e-6);
    timed.add({.kind = OpKind::rms_norm_forward, .rows = 6, .k = 32, .sequence = 3}, 1e-6);
    timed.add({.kind = OpKind::adamw, .elements = 100}, 1e-6);
    timed.add({.kind = OpKind::linear_forward, .rows = 6, .n = 8, .k = 32, .in = {0, 1, 2}}, 1e-6);
    timed.add({.kind = OpKind::linear_forward, .rows = 6, .n = 9, .k = 32, .in = {0, 1}}, 1e-6);
    timed.add({.kind = OpKind::linear_backward_weight, .rows = 6, .n = 8, .k = 32, .in = {0, 1}, .out = {2, 3}}, 1e-6);
    timed.add({.kind = OpKind::linear_backward_weight, .rows = 6, .n = 9, .k = 32, .in = {0, 1}, .out = {2}}, 1e-6);
    const OperatorSamples::Samples samples = timed.samples();
    ASSERT_EQ(samples.operators.size(), 3U);
    const topologies::OperatorSample& norm = samples.operators[0];
    EXPECT_EQ(norm.op, "rms_norm_forward");
    EXPECT_EQ(std::tuple(norm.rows, norm.n, norm.k, norm.sequence), std::tuple(6, 0, 32, 3));
    const topologies::OperatorSample& attention = samples.operators[1];
    EXPECT_EQ(attention.op, "attention_forward");
    EXPECT_EQ(std::tuple(attention.rows, attention.heads, attention.kv_heads), std::tuple(24, 4, 2));
    EXPECT_EQ(std::tuple(attention.head_dim, attention.sequence), std::tuple(8, 3));
    EXPECT_EQ(samples.operators[2].elements, 100);
    ASSERT_EQ(samples.matmuls.size(), 4U);
    for (const topologies::MatmulSample& one : samples.matmuls) EXPECT_EQ(one.bias, one.n == 8) << one.op;
}

TEST(OperatorSamples, TypesOfArithmeticAreDistinct) {
    OperatorSamples timed;
    Operator product{.kind = OpKind::linear_forward, .rows = 4, .n = 8, .k = 16};
    timed.add(product, 2e-6);
    product.math = DType::bf16;
    EXPECT_FALSE(timed.has(product));
    timed.add(product, 1e-6);
    const auto best = timed.samples().best_flops_per_s;
    EXPECT_DOUBLE_EQ(best.at(DType::bf16), 2 * best.at(DType::fp32));
}

}  // namespace
}  // namespace orrery::exec
