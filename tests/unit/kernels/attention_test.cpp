#include <limits>
#include <tuple>

#include "kernels/kernels.h"
#include "tests/unit/kernels/reference.h"

namespace orrery::kernels {
namespace {

using reference::Doubles;
using reference::Floats;
using reference::wide;

std::int64_t rows_of(const AttentionShape& s) {
    return s.sequence * s.micro_batch;
}
std::int64_t width_of(const AttentionShape& s) {
    return (s.heads + 2 * s.kv_heads) * s.head_dim;
}

/// Attention by definition, for every pair (query, key) of every head.
std::tuple<Doubles, Doubles> naive(const AttentionShape& s, const Doubles& qkv) {
    const std::int64_t d = s.head_dim;
    Doubles o(static_cast<std::size_t>(rows_of(s) * s.heads * d), 0.0);
    Doubles lse(static_cast<std::size_t>(rows_of(s) * s.heads));
    auto element = [&](std::int64_t position, std::int64_t sample, std::int64_t head, std::int64_t i) {
        return qkv[static_cast<std::size_t>((position * s.micro_batch + sample) * width_of(s) + head * d + i)];
    };
    for (std::int64_t sample = 0; sample < s.micro_batch; ++sample) {
        for (std::int64_t head = 0; head < s.heads; ++head) {
            const std::int64_t k_head = s.heads + head * s.kv_heads / s.heads;
            const std::int64_t v_head = k_head + s.kv_heads;
            for (std::int64_t query = 0; query < s.sequence; ++query) {
                const std::int64_t row = query * s.micro_batch + sample;
                const std::int64_t first =
                    s.sliding_window > 0 ? std::max<std::int64_t>(0, query - s.sliding_window + 1) : 0;
                double total = 0.0;
                Doubles weights;
                for (std::int64_t key = first; key <= query; ++key) {
                    double score = 0.0;
                    for (std::int64_t i = 0; i < d; ++i) {
                        score += element(query, sample, head, i) * element(key, sample, k_head, i);
                    }
                    weights.push_back(std::exp(score / std::sqrt(static_cast<double>(d))));
                    total += weights.back();
                }
                lse[static_cast<std::size_t>(head * rows_of(s) + row)] = std::log(total);
                for (std::int64_t key = first; key <= query; ++key) {
                    const double p = weights[static_cast<std::size_t>(key - first)] / total;
                    for (std::int64_t i = 0; i < d; ++i) {
                        o[static_cast<std::size_t>((row * s.heads + head) * d + i)] +=
                            p * element(key, sample, v_head, i);
                    }
                }
            }
        }
    }
    return {o, lse};
}

class Attention : public ::testing::TestWithParam<AttentionShape> {};

TEST_P(Attention, ForwardAndBackward) {
    const AttentionShape shape = GetParam();
    const Floats qkv = reference::values("qkv", rows_of(shape) * width_of(shape), 1.5);
    const auto [expected, expected_lse] = naive(shape, wide(qkv));
    const std::int64_t needed = attention_scratch_elements(shape.sequence, shape.head_dim);
    constexpr float kSentinel = 12345.0F;
    Floats scratch(static_cast<std::size_t>(needed + 16), std::numeric_limits<float>::quiet_NaN());
    std::fill(scratch.end() - 16, scratch.end(), kSentinel);
    Floats o(expected.size(), std::numeric_limits<float>::quiet_NaN());
    Floats lse(expected_lse.size());
    attention_forward(shape, qkv.data(), o.data(), lse.data(), scratch.data());
    reference::expect_close(o, expected, 2e-6, "o");
    reference::expect_close(lse, expected_lse, 1e-6, "lse");

    const Floats d_o = reference::values("do", static_cast<std::int64_t>(o.size()));
    Floats dqkv(qkv.size(), std::numeric_limits<float>::quiet_NaN());
    attention_backward(shape, d_o.data(), qkv.data(), o.data(), lse.data(), dqkv.data(), scratch.data());
    for (auto guard = scratch.end() - 16; guard != scratch.end(); ++guard) ASSERT_EQ(*guard, kSentinel);
    reference::expect_gradient([&](const Doubles& at) { return std::get<0>(naive(shape, at)); }, wide(qkv), wide(d_o),
                               dqkv, 2e-5, "dqkv", 60);

    Floats again(qkv.size());
    attention_backward(shape, d_o.data(), qkv.data(), o.data(), lse.data(), again.data(), scratch.data());
    EXPECT_EQ(again, dqkv) << "not reproducible";
}

constexpr std::int64_t kLongSequence = kAttentionBlock + 9;
INSTANTIATE_TEST_SUITE_P(Shapes, Attention,
                         ::testing::Values(AttentionShape{1, 1, 1, 1, 1, 0}, AttentionShape{5, 2, 3, 3, 4, 0},
                                           AttentionShape{19, 1, 4, 2, 6, 0}, AttentionShape{17, 3, 6, 2, 5, 0},
                                           AttentionShape{kLongSequence, 1, 2, 1, 4, 0},
                                           AttentionShape{kLongSequence, 2, 2, 2, 3, 0},
                                           AttentionShape{kLongSequence, 1, 2, 1, 4, 1},
                                           AttentionShape{kLongSequence, 1, 2, 1, 4, 11},
                                           AttentionShape{kLongSequence, 1, 1, 1, 4, kAttentionBlock + 2},
                                           AttentionShape{20, 1, 2, 2, 4, 50}));

TEST(Attention, LargeScoresDoNotOverflow) {
    const AttentionShape shape{8, 1, 1, 1, 4, 0};
    const Floats qkv = reference::values("qkv", rows_of(shape) * width_of(shape), 60.0);
    Floats scratch(static_cast<std::size_t>(attention_scratch_elements(shape.sequence, shape.head_dim)));
    Floats o(static_cast<std::size_t>(rows_of(shape) * shape.head_dim));
    Floats lse(static_cast<std::size_t>(rows_of(shape)));
    attention_forward(shape, qkv.data(), o.data(), lse.data(), scratch.data());
    Floats dqkv(qkv.size());
    attention_backward(shape, o.data(), qkv.data(), o.data(), lse.data(), dqkv.data(), scratch.data());
    for (float value : o) ASSERT_LE(std::abs(value), 60.0F);
    for (float value : dqkv) ASSERT_TRUE(std::isfinite(value));
}

}  // namespace
}  // namespace orrery::kernels
