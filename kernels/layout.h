// Layout changes around communication: columns in and out of wider rows, copies of heads, and the two sides of the
// all-to-all that turns shares of a sequence into shares of the heads.
#pragma once

#include <cstdint>
#include <span>

#include "kernels/views.h"

namespace orrery::kernels {

/// x -> y, both rows x n.
void copy_columns(std::int64_t rows, std::int64_t n, ConstRows x, Rows y);
/// y += x, both rows x n.
void add_columns(std::int64_t rows, std::int64_t n, ConstRows x, Rows y);

/// x[rows, heads * d] -> y[rows, heads * copies * d]: the copies of a head lie side by side, so that the query heads of
/// a group go on meeting the same keys.
void repeat_heads(std::int64_t rows, std::int64_t heads, std::int64_t head_dim, std::int64_t copies, ConstRows x,
                  Rows y);
/// dy[rows, heads * copies * d] -> dx[rows, heads * d]: sums over the copies, in their order.
void sum_repeated_heads(std::int64_t rows, std::int64_t heads, std::int64_t head_dim, std::int64_t copies, ConstRows dy,
                        Rows dx);

/// A matrix whose rows consist of `sections` (widths: q, k and v of packed rows, or o alone), each of which is cut into
/// `blocks` equal shares: share j of every section goes to, or comes from, rank j of the all-to-all.
struct HeadBlocks {
    std::int64_t rows = 0;
    std::int64_t blocks = 0;
    std::span<const std::int64_t> sections;  // multiples of `blocks`
};
/// x[rows, width] -> y[blocks][rows, width / blocks], each row the shares side by side: [q | k | v] again.
void heads_to_blocks(const HeadBlocks& shape, const float* x, float* y);
/// And back.
void blocks_to_heads(const HeadBlocks& shape, const float* x, float* y);

/// What `ranks` ranks hold of a sequence: rank r the chunks r and 2 ranks - 1 - r of 2 ranks equal chunks. Tokens are
/// ordered by (position, sample) in a rank's rows and in those of the sequence.
struct SequenceBlocks {
    std::int64_t rows = 0;  // of one rank: an even number of positions times the micro-batch
    std::int64_t ranks = 0;
    std::int64_t width = 0;
};
/// x[ranks][rows, width], as ranks are numbered -> y[ranks * rows, width], in the order of positions.
void blocks_to_sequence(const SequenceBlocks& shape, const float* x, float* y);
/// And back.
void sequence_to_blocks(const SequenceBlocks& shape, const float* x, float* y);

}  // namespace orrery::kernels
