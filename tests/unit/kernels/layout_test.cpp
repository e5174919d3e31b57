#include "kernels/kernels.h"
#include "tests/unit/kernels/reference.h"

namespace orrery::kernels {
namespace {

using reference::Floats;

Floats counting(std::int64_t elements) {
    Floats x(static_cast<std::size_t>(elements));
    for (std::size_t i = 0; i < x.size(); ++i) x[i] = static_cast<float>(i);
    return x;
}

TEST(Columns, CopyAndAddTouchOnlyTheirColumns) {
    const Floats x = counting(3 * 5);
    Floats y(3 * 7, 100.0F);
    copy_columns(3, 2, {x.data() + 1, 5}, {y.data() + 4, 7});
    Floats sum = y;
    add_columns(3, 2, {x.data() + 3, 5}, {sum.data() + 4, 7});
    for (std::size_t r = 0; r < 3; ++r) {
        for (std::size_t c = 0; c < 7; ++c) {
            const bool inside = c == 4 || c == 5;
            const float copied = static_cast<float>(r * 5 + 1 + (c - 4));
            EXPECT_EQ(y[r * 7 + c], inside ? copied : 100.0F);
            EXPECT_EQ(sum[r * 7 + c], inside ? copied + (copied + 2.0F) : 100.0F);
        }
    }
    copy_columns(0, 2, {x.data(), 5}, {y.data(), 7});
    EXPECT_EQ(y[0], 100.0F);
}

TEST(Columns, RepeatedHeadsAreAdjacentAndSumBack) {
    constexpr std::int64_t kRows = 2, kHeads = 3, kDim = 2, kCopies = 4;
    const Floats x = counting(kRows * (kHeads * kDim + 1));
    Floats y(static_cast<std::size_t>(kRows * kHeads * kCopies * kDim));
    repeat_heads(kRows, kHeads, kDim, kCopies, {x.data() + 1, kHeads * kDim + 1}, {y.data(), kHeads * kCopies * kDim});
    for (std::int64_t r = 0; r < kRows; ++r) {
        for (std::int64_t h = 0; h < kHeads * kCopies; ++h) {
            for (std::int64_t i = 0; i < kDim; ++i) {
                EXPECT_EQ(y[static_cast<std::size_t>((r * kHeads * kCopies + h) * kDim + i)],
                          x[static_cast<std::size_t>(r * (kHeads * kDim + 1) + 1 + h / kCopies * kDim + i)]);
            }
        }
    }
    Floats back(x.size(), -1.0F);
    sum_repeated_heads(kRows, kHeads, kDim, kCopies, {y.data(), kHeads * kCopies * kDim},
                       {back.data() + 1, kHeads * kDim + 1});
    for (std::size_t i = 0; i < x.size(); ++i) {
        EXPECT_EQ(back[i], i % (kHeads * kDim + 1) == 0 ? -1.0F : x[i] * kCopies);
    }
}

TEST(HeadBlocks, EachBlockHoldsItsHeadsOfQKAndV) {
    constexpr std::int64_t kRows = 2, kBlocks = 2;
    const std::vector<std::int64_t> sections{8, 4, 2};  // 4 query heads and 2 key heads of 2, 2 value heads of 1
    const HeadBlocks shape{kRows, kBlocks, sections};
    const Floats x = counting(kRows * 14);
    Floats y(x.size());
    heads_to_blocks(shape, x.data(), y.data());
    const Floats first_row{0, 1, 2, 3, 8, 9, 12};
    const Floats last_row{18, 19, 20, 21, 24, 25, 27};
    EXPECT_EQ(Floats(y.begin(), y.begin() + 7), first_row);
    EXPECT_EQ(Floats(y.end() - 7, y.end()), last_row);
    Floats back(x.size());
    blocks_to_heads(shape, y.data(), back.data());
    EXPECT_EQ(back, x);
}

TEST(SequenceBlocks, ChunksOfTheRanksAreOrderedByPosition) {
    constexpr std::int64_t kRanks = 3, kMicroBatch = 2, kWidth = 2;
    const SequenceBlocks shape{4 * kMicroBatch, kRanks, kWidth};  // 12 positions in chunks of 2
    const std::vector<std::int64_t> positions{0, 1, 10, 11, 2, 3, 8, 9, 4, 5, 6, 7};
    const Floats sequence = counting(12 * kMicroBatch * kWidth);
    Floats blocks;
    for (const std::int64_t position : positions) {
        const auto* row = sequence.data() + position * kMicroBatch * kWidth;
        blocks.insert(blocks.end(), row, row + kMicroBatch * kWidth);
    }
    Floats y(sequence.size());
    blocks_to_sequence(shape, blocks.data(), y.data());
    EXPECT_EQ(y, sequence);
    Floats back(sequence.size());
    sequence_to_blocks(shape, y.data(), back.data());
    EXPECT_EQ(back, blocks);
}

/// The all-to-all of Ulysses: every rank sends shares of its rows' heads and receives its heads of the whole sequence.
TEST(SequenceBlocks, AllToAllGivesEachRankItsHeadsOfTheWholeSequence) {
    constexpr std::int64_t kRanks = 2, kPositions = 8, kHeads = 4, kDim = 3, kWidth = kHeads * kDim;
    const Floats sequence = counting(kPositions * kWidth);
    const SequenceBlocks all{kPositions / kRanks, kRanks, kWidth};
    Floats by_rank(sequence.size());
    sequence_to_blocks(all, sequence.data(), by_rank.data());
    const std::int64_t share = kPositions / kRanks * kWidth;
    const std::vector<std::int64_t> sections{kWidth};
    const HeadBlocks heads{kPositions / kRanks, kRanks, sections};
    std::vector<Floats> sent(kRanks, Floats(static_cast<std::size_t>(share)));
    for (std::int64_t rank = 0; rank < kRanks; ++rank) {
        heads_to_blocks(heads, by_rank.data() + rank * share, sent[static_cast<std::size_t>(rank)].data());
    }
    for (std::int64_t rank = 0; rank < kRanks; ++rank) {
        Floats received;
        for (const Floats& from : sent) {
            const auto* block = from.data() + rank * share / kRanks;
            received.insert(received.end(), block, block + share / kRanks);
        }
        Floats own(received.size());
        blocks_to_sequence({kPositions / kRanks, kRanks, kWidth / kRanks}, received.data(), own.data());
        for (std::int64_t p = 0; p < kPositions; ++p) {
            for (std::int64_t i = 0; i < kWidth / kRanks; ++i) {
                ASSERT_EQ(own[static_cast<std::size_t>(p * kWidth / kRanks + i)],
                          sequence[static_cast<std::size_t>(p * kWidth + rank * kWidth / kRanks + i)]);
            }
        }
    }
}

}  // namespace
}  // namespace orrery::kernels
