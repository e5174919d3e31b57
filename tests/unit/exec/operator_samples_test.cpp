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

/// The same shape in half of the memory, as of norms in bf16, whose arithmetic is in fp32.
TEST(OperatorSamples, TypesOfOperandsAreDistinctByTheirTraffic) {
    OperatorSamples timed;
    Operator norm{.kind = OpKind::rms_norm_forward, .rows = 4, .n = 8};
    norm.bytes_read = norm.bytes_written = 128;
    timed.add(norm, 2e-6);
    norm.bytes_read = norm.bytes_written = 64;
    EXPECT_FALSE(timed.has(norm));
    timed.add(norm, 1e-6);
    EXPECT_EQ(timed.samples().operators.size(), 2U);
}

}  // namespace
}  // namespace orrery::exec
