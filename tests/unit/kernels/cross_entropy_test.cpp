#include <limits>

#include "kernels/kernels.h"
#include "tests/unit/kernels/reference.h"

namespace orrery::kernels {
namespace {

using reference::Doubles;
using reference::Floats;

constexpr std::int64_t kRows = 5;
constexpr std::int64_t kVocab = 21;
const std::vector<std::int32_t> kTargets{0, 20, 7, 12, 13};

/// Runs the pieces over shards of `n` columns with the reductions in between, as tensor-parallel ranks would. Padding
/// columns hold large values that must not matter. Returns the gradient of the real columns.
Doubles run_sharded(std::int64_t n, std::int64_t shards, const Floats& logits, float scale, double& loss, Floats& lse) {
    std::vector<VocabShard> shapes;
    std::vector<Floats> parts;
    Floats row_max(kRows, -std::numeric_limits<float>::infinity());
    for (std::int64_t shard = 0; shard < shards; ++shard) {
        const std::int64_t start = shard * n;
        shapes.push_back({kRows, n, std::clamp<std::int64_t>(kVocab - start, 0, n), start});
        Floats part(static_cast<std::size_t>(kRows * n), 1e4F);
        for (std::int64_t r = 0; r < kRows; ++r) {
            for (std::int64_t c = 0; c < shapes.back().valid; ++c) {
                part[static_cast<std::size_t>(r * n + c)] = logits[static_cast<std::size_t>(r * kVocab + start + c)];
            }
        }
        Floats local(kRows);
        cross_entropy_max(shapes.back(), part.data(), local.data());
        maximum(kRows, local.data(), row_max.data());
        parts.push_back(part);
    }
    Floats sums(2 * kRows, 0.0F);
    for (std::size_t shard = 0; shard < parts.size(); ++shard) {
        Floats local(2 * kRows, 99.0F);
        cross_entropy_sum(shapes[shard], parts[shard].data(), row_max.data(), kTargets.data(), local.data());
        add(2 * kRows, local.data(), sums.data());
    }
    cross_entropy_loss(kRows, row_max.data(), sums.data(), lse.data(), &loss);
    Doubles gradient(static_cast<std::size_t>(kRows * kVocab));
    for (std::size_t shard = 0; shard < parts.size(); ++shard) {
        cross_entropy_backward(shapes[shard], scale, lse.data(), kTargets.data(), parts[shard].data());
        for (std::int64_t r = 0; r < kRows; ++r) {
            for (std::int64_t c = 0; c < n; ++c) {
                const float value = parts[shard][static_cast<std::size_t>(r * n + c)];
                if (c < shapes[shard].valid) {
                    gradient[static_cast<std::size_t>(r * kVocab + shapes[shard].start + c)] =
                        static_cast<double>(value);
                } else {
                    EXPECT_EQ(value, 0.0F) << "padding column " << c;
                }
            }
        }
    }
    return gradient;
}

TEST(CrossEntropy, AnyShardingMatchesTheDefinition) {
    const Floats logits = reference::values("logits", kRows * kVocab, 9.0);
    constexpr float kScale = 0.125F;
    Doubles expected_gradient(logits.size());
    double expected_loss = 0.0;
    for (std::int64_t r = 0; r < kRows; ++r) {
        double total = 0.0;
        const float* row = logits.data() + r * kVocab;
        for (std::int64_t c = 0; c < kVocab; ++c) total += std::exp(static_cast<double>(row[c]));
        const std::int32_t target = kTargets[static_cast<std::size_t>(r)];
        expected_loss += std::log(total) - static_cast<double>(row[target]);
        for (std::int64_t c = 0; c < kVocab; ++c) {
            const double p = std::exp(static_cast<double>(row[c])) / total;
            expected_gradient[static_cast<std::size_t>(r * kVocab + c)] =
                (p - (c == target ? 1.0 : 0.0)) * static_cast<double>(kScale);
        }
    }
    // One shard; one padded shard; three even shards; four shards of which the last is padding only.
    for (const auto& [n, shards] : {std::pair{21, 1}, {32, 1}, {7, 3}, {8, 4}}) {
        double loss = 1.5;  // accumulates
        Floats lse(kRows);
        const Doubles gradient = run_sharded(n, shards, logits, kScale, loss, lse);
        EXPECT_NEAR(loss - 1.5, expected_loss, 2e-6 * expected_loss) << n;
        for (std::size_t i = 0; i < gradient.size(); ++i) {
            ASSERT_NEAR(gradient[i], expected_gradient[i], 2e-6 * static_cast<double>(kScale)) << n << " at " << i;
        }
    }
}

}  // namespace
}  // namespace orrery::kernels
