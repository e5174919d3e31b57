#include <limits>

#include "kernels/kernels.h"
#include "tests/unit/kernels/reference.h"

namespace orrery::kernels {
namespace {

using reference::Doubles;
using reference::Floats;

constexpr std::int64_t kTokenRows = 5;
constexpr std::int64_t kVocab = 21;
const std::vector<std::int32_t> kTargets{0, 20, 7, 12, 13};

/// A shard of the logits. Padding columns hold large values, which must not matter.
struct Part {
    VocabShard shape;
    Floats logits;
};
std::vector<Part> cut(std::int64_t n, std::int64_t shards, const Floats& logits) {
    std::vector<Part> parts;
    for (std::int64_t shard = 0; shard < shards; ++shard) {
        const std::int64_t start = shard * n;
        Part part{{kTokenRows, n, std::clamp<std::int64_t>(kVocab - start, 0, n), start},
                  Floats(static_cast<std::size_t>(kTokenRows * n), 1e4F)};
        for (std::int64_t r = 0; r < kTokenRows; ++r) {
            for (std::int64_t c = 0; c < part.shape.valid; ++c) {
                part.logits[static_cast<std::size_t>(r * n + c)] =
                    logits[static_cast<std::size_t>(r * kVocab + start + c)];
            }
        }
        parts.push_back(std::move(part));
    }
    return parts;
}

/// The parts' columns without padding, concatenated. Expects that padding is zero.
Doubles joined(const std::vector<Part>& parts) {
    Doubles all(static_cast<std::size_t>(kTokenRows * kVocab));
    for (const Part& part : parts) {
        const std::int64_t n = part.shape.n;
        for (std::int64_t r = 0; r < kTokenRows; ++r) {
            for (std::int64_t c = 0; c < n; ++c) {
                const float value = part.logits[static_cast<std::size_t>(r * n + c)];
                if (c < part.shape.valid) {
                    all[static_cast<std::size_t>(r * kVocab + part.shape.start + c)] = static_cast<double>(value);
                } else {
                    EXPECT_EQ(value, 0.0F) << "padding column " << c;
                }
            }
        }
    }
    return all;
}

/// Runs the steps over shards of `n` columns with reductions in between, as tensor-parallel ranks do. Returns the
/// gradient without padding.
Doubles run_sharded(std::int64_t n, std::int64_t shards, const Floats& logits, float scale, double& loss, Floats& lse) {
    std::vector<Part> parts = cut(n, shards, logits);
    Floats row_max(kTokenRows, -std::numeric_limits<float>::infinity());
    for (const Part& part : parts) {
        Floats local(kTokenRows);
        cross_entropy_max(part.shape, part.logits.data(), local.data());
        maximum(kTokenRows, local.data(), row_max.data());
    }
    Floats sums(2 * kTokenRows, 0.0F);
    for (const Part& part : parts) {
        Floats local(2 * kTokenRows, 99.0F);
        cross_entropy_sum(part.shape, part.logits.data(), row_max.data(), kTargets.data(), local.data());
        add(2 * kTokenRows, local.data(), sums.data());
    }
    cross_entropy_loss(kTokenRows, row_max.data(), sums.data(), lse.data(), &loss);
    for (Part& part : parts) {
        cross_entropy_backward(part.shape, scale, lse.data(), kTargets.data(), part.logits.data());
    }
    return joined(parts);
}

/// The same with each shard's own statistics, which are gathered, as for a vocabulary sharded over the stages. Also
/// computes the gradient of a hidden state of `width` elements from the exponentials, corrects it, and expects the
/// gradient that follows from the gradient of the logits.
Doubles run_gathered(std::int64_t n, std::int64_t shards, const Floats& logits, float scale, double& loss, Floats& lse,
                     std::int64_t width) {
    std::vector<Part> parts = cut(n, shards, logits);
    const auto rows = static_cast<std::size_t>(kTokenRows);
    Floats row_max(parts.size() * rows), sums(parts.size() * 2 * rows, 99.0F);
    for (std::size_t i = 0; i < parts.size(); ++i) {
        float* values = parts[i].logits.data();
        cross_entropy_max(parts[i].shape, values, row_max.data() + i * rows);
        cross_entropy_sum(parts[i].shape, values, row_max.data() + i * rows, kTargets.data(),
                          sums.data() + i * 2 * rows, values);
    }
    cross_entropy_loss_of_parts(kTokenRows, shards, n, row_max.data(), sums.data(), kTargets.data(), lse.data(), &loss);
    for (std::size_t i = 0; i < parts.size(); ++i) {
        const float* own_max = row_max.data() + i * rows;
        const Floats weight = reference::values("weight" + std::to_string(i), n * width, 1.0);
        Floats corrected(static_cast<std::size_t>(kTokenRows * width)), direct(corrected.size());
        linear_backward_input({kTokenRows, n, width}, {parts[i].logits.data(), n}, weight.data(),
                              {corrected.data(), width});
        cross_entropy_correct(parts[i].shape, width, scale, own_max, lse.data(), kTargets.data(), weight.data(),
                              corrected.data());
        cross_entropy_backward_of_exponentials(parts[i].shape, scale, own_max, lse.data(), kTargets.data(),
                                               parts[i].logits.data());
        linear_backward_input({kTokenRows, n, width}, {parts[i].logits.data(), n}, weight.data(),
                              {direct.data(), width});
        for (std::size_t e = 0; e < direct.size(); ++e) EXPECT_NEAR(corrected[e], direct[e], 2e-6F * scale) << e;
    }
    return joined(parts);
}

TEST(CrossEntropy, AnyShardingMatchesTheDefinition) {
    const Floats logits = reference::values("logits", kTokenRows * kVocab, 9.0);
    constexpr float kScale = 0.125F;
    Doubles expected_gradient(logits.size());
    double expected_loss = 0.0;
    for (std::int64_t r = 0; r < kTokenRows; ++r) {
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
    // One shard; one padded shard; three even shards; four shards, the last with only padding.
    for (const auto& [n, shards] : {std::pair{21, 1}, {32, 1}, {7, 3}, {8, 4}}) {
        constexpr std::int64_t kWidth = 3;
        for (const bool gathered : {false, true}) {
            double loss = 1.5;  // accumulates
            Floats lse(kTokenRows);
            const Doubles gradient = gathered ? run_gathered(n, shards, logits, kScale, loss, lse, kWidth)
                                              : run_sharded(n, shards, logits, kScale, loss, lse);
            EXPECT_NEAR(loss - 1.5, expected_loss, 2e-6 * expected_loss) << n;
            for (std::size_t i = 0; i < gradient.size(); ++i) {
                ASSERT_NEAR(gradient[i], expected_gradient[i], 2e-6 * static_cast<double>(kScale)) << n << " at " << i;
            }
        }
    }
}

}  // namespace
}  // namespace orrery::kernels
