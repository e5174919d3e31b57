#include "exec/operator_samples.h"

#include <gtest/gtest.h>

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
