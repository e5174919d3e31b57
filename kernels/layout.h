// Layout changes around communication: copying columns into and out of wider rows, repeating heads, and packing for the
// all-to-all of Ulysses, which turns shards of the sequence into shards of the heads.
#pragma once

#include <cstdint>
#include <span>

#include "kernels/views.h"

namespace orrery::kernels {

/// x -> y, both rows x n.
void copy_columns(std::int64_t rows, std::int64_t n, ConstRows x, Rows y);
/// y += x, both rows x n.
void add_columns(std::int64_t rows, std::int64_t n, ConstRows x, Rows y);

/// x[rows, heads * d] -> y[rows, heads * copies * d]. The copies of a head are adjacent, so that the query heads of a
/// group still use the same keys.
void repeat_heads(std::int64_t rows, std::int64_t heads, std::int64_t head_dim, std::int64_t copies, ConstRows x,
                  Rows y);
/// dy[rows, heads * copies * d] -> dx[rows, heads * d]: the sum over the copies, in order.
void sum_repeated_heads(std::int64_t rows, std::int64_t heads, std::int64_t head_dim, std::int64_t copies, ConstRows dy,
                        Rows dx);

/// A matrix whose rows consist of sections (q, k and v of packed rows, or o alone), each split into `blocks` equal
/// shares. Share j of every section goes to, or comes from, rank j of the all-to-all.
struct HeadBlocks {
    std::int64_t rows = 0;
    std::int64_t blocks = 0;
    std::span<const std::int64_t> sections;  // widths, multiples of `blocks`
};
/// x[rows, width] -> y[blocks][rows, width / blocks]; each row of a block has the shares side by side: [q | k | v].
void heads_to_blocks(const HeadBlocks& shape, const float* x, float* y);
/// The inverse of heads_to_blocks().
void blocks_to_heads(const HeadBlocks& shape, const float* x, float* y);

/// A sequence split over `ranks` ranks in 2 * ranks equal chunks: rank r holds the chunks r and 2 * ranks - 1 - r.
/// Tokens are ordered by (position, sample), both in a rank's rows and in the sequence.
struct SequenceBlocks {
    std::int64_t rows = 0;  // of one rank: an even number of positions times the micro-batch
    std::int64_t ranks = 0;
    std::int64_t width = 0;
};
/// x[ranks][rows, width], in the order of ranks -> y[ranks * rows, width], in the order of positions.
void blocks_to_sequence(const SequenceBlocks& shape, const float* x, float* y);
/// The inverse of blocks_to_sequence().
void sequence_to_blocks(const SequenceBlocks& shape, const float* x, float* y);

}  // namespace orrery::kernels
