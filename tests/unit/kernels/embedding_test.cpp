#include "kernels/kernels.h"
#include "tests/unit/kernels/reference.h"

namespace orrery::kernels {
namespace {

using reference::Floats;

constexpr std::int64_t kEmbeddingWidth = 5;
const std::vector<std::int32_t> kEmbeddedTokens{0, 3, 7, 3, 9, 4};

TEST(Embedding, ShardsSumToTheWhole) {
    const Floats table = reference::values("table", 10 * kEmbeddingWidth);
    const auto rows = static_cast<std::int64_t>(kEmbeddedTokens.size());
    Floats whole(kEmbeddedTokens.size() * kEmbeddingWidth, 99.0F);
    embedding_forward({rows, kEmbeddingWidth, 0, 10}, kEmbeddedTokens.data(), table.data(), whole.data());
    for (std::size_t r = 0; r < kEmbeddedTokens.size(); ++r) {
        for (std::size_t i = 0; i < kEmbeddingWidth; ++i) {
            EXPECT_EQ(whole[r * kEmbeddingWidth + i],
                      table[static_cast<std::size_t>(kEmbeddedTokens[r]) * kEmbeddingWidth + i]);
        }
    }
    Floats sum(whole.size(), 0.0F);
    for (std::int64_t start : {0, 5}) {
        Floats part(whole.size(), 99.0F);
        embedding_forward({rows, kEmbeddingWidth, start, 5}, kEmbeddedTokens.data(),
                          table.data() + start * kEmbeddingWidth, part.data());
        add(static_cast<std::int64_t>(sum.size()), part.data(), sum.data());
    }
    EXPECT_EQ(sum, whole);
}

TEST(Embedding, BackwardScattersIntoTheShard) {
    const auto rows = static_cast<std::int64_t>(kEmbeddedTokens.size());
    const Floats dy = reference::values("dy", rows * kEmbeddingWidth);
    Floats expected(5 * kEmbeddingWidth, 1.0F);  // tokens 3..7
    for (std::size_t r = 0; r < kEmbeddedTokens.size(); ++r) {
        if (kEmbeddedTokens[r] < 3 || kEmbeddedTokens[r] > 7) continue;
        for (std::size_t i = 0; i < kEmbeddingWidth; ++i) {
            expected[static_cast<std::size_t>(kEmbeddedTokens[r] - 3) * kEmbeddingWidth + i] +=
                dy[r * kEmbeddingWidth + i];
        }
    }
    Floats dweight(5 * kEmbeddingWidth, 1.0F);
    embedding_backward({rows, kEmbeddingWidth, 3, 5}, dy.data(), kEmbeddedTokens.data(), dweight.data());
    EXPECT_EQ(dweight, expected);
}

TEST(Position, ShardStartsAtItsOffset) {
    constexpr std::int64_t kMicroBatch = 2;
    const Floats table = reference::values("table", 6 * kEmbeddingWidth);
    const Floats x = reference::values("x", 4 * kEmbeddingWidth);
    Floats y(x.size());
    position_forward({4, kEmbeddingWidth, kMicroBatch, 3}, x.data(), table.data(), y.data());
    Floats dtable(table.size(), 0.0F);
    position_backward({4, kEmbeddingWidth, kMicroBatch, 3}, x.data(), dtable.data());
    for (std::size_t i = 0; i < kEmbeddingWidth; ++i) {
        for (std::size_t r = 0; r < 4; ++r) {
            EXPECT_EQ(y[r * kEmbeddingWidth + i],
                      x[r * kEmbeddingWidth + i] + table[(3 + r / 2) * kEmbeddingWidth + i]);
        }
        EXPECT_EQ(dtable[2 * kEmbeddingWidth + i], 0.0F);
        EXPECT_EQ(dtable[3 * kEmbeddingWidth + i], x[i] + x[kEmbeddingWidth + i]);
        EXPECT_EQ(dtable[4 * kEmbeddingWidth + i], x[2 * kEmbeddingWidth + i] + x[3 * kEmbeddingWidth + i]);
        EXPECT_EQ(dtable[5 * kEmbeddingWidth + i], 0.0F);
    }
    Floats in_place = x;
    position_forward({4, kEmbeddingWidth, kMicroBatch, 3}, in_place.data(), table.data(), in_place.data());
    EXPECT_EQ(in_place, y);
}

}  // namespace
}  // namespace orrery::kernels
