// Copies between layouts.
#include "kernels/layout.h"

#include "core/error.h"
#include "kernels/cpu/vector.h"
#include "kernels/kernels.h"

namespace orrery::kernels {
namespace {

/// Calls move(first column in the whole rows, block, first column in the block's rows, columns) for every share.
template <typename Move>
void for_each_share(const HeadBlocks& shape, const Move& move) {
    std::int64_t first = 0, first_in_block = 0;
    for (const std::int64_t section : shape.sections) {
        ORRERY_CHECK(section % shape.blocks == 0, "a section of the rows cannot be split into equal blocks");
        const std::int64_t share = section / shape.blocks;
        for (std::int64_t block = 0; block < shape.blocks; ++block) {
            move(first + block * share, block, first_in_block, share);
        }
        first += section;
        first_in_block += share;
    }
}
std::int64_t width_of(const HeadBlocks& shape) {
    std::int64_t width = 0;
    for (const std::int64_t section : shape.sections) width += section;
    return width;
}

/// Calls move(offset in the ranks' order, offset in the sequence, elements) for every chunk.
template <typename Move>
void for_each_chunk(const SequenceBlocks& shape, const Move& move) {
    ORRERY_CHECK(shape.rows % 2 == 0, "a rank's rows must be two equal chunks");
    const std::int64_t chunk = shape.rows / 2 * shape.width;
    for (std::int64_t rank = 0; rank < shape.ranks; ++rank) {
        move(2 * rank * chunk, rank * chunk, chunk);
        move((2 * rank + 1) * chunk, (2 * shape.ranks - 1 - rank) * chunk, chunk);
    }
}

}  // namespace

void copy_columns(std::int64_t rows, std::int64_t n, ConstRows x, Rows y) {
    for (std::int64_t row = 0; row < rows; ++row) copy(n, x.data + row * x.width, y.data + row * y.width);
}

ORRERY_VECTOR
void add_columns(std::int64_t rows, std::int64_t n, ConstRows x, Rows y) {
    for (std::int64_t row = 0; row < rows; ++row) {
        const float* from = x.data + row * x.width;
        float* to = y.data + row * y.width;
        ORRERY_INDEPENDENT
        for (std::int64_t i = 0; i < n; ++i) to[i] += from[i];
    }
}

void repeat_heads(std::int64_t rows, std::int64_t heads, std::int64_t head_dim, std::int64_t copies, ConstRows x,
                  Rows y) {
    for (std::int64_t row = 0; row < rows; ++row) {
        const float* from = x.data + row * x.width;
        float* to = y.data + row * y.width;
        for (std::int64_t head = 0; head < heads; ++head, from += head_dim) {
            for (std::int64_t i = 0; i < copies; ++i, to += head_dim) copy(head_dim, from, to);
        }
    }
}

ORRERY_VECTOR
void sum_repeated_heads(std::int64_t rows, std::int64_t heads, std::int64_t head_dim, std::int64_t copies, ConstRows dy,
                        Rows dx) {
    for (std::int64_t row = 0; row < rows; ++row) {
        const float* from = dy.data + row * dy.width;
        float* to = dx.data + row * dx.width;
        for (std::int64_t head = 0; head < heads; ++head, to += head_dim) {
            for (std::int64_t copy_index = 0; copy_index < copies; ++copy_index, from += head_dim) {
                if (copy_index == 0) {
                    for (std::int64_t i = 0; i < head_dim; ++i) to[i] = from[i];
                } else {
                    for (std::int64_t i = 0; i < head_dim; ++i) to[i] += from[i];
                }
            }
        }
    }
}

void heads_to_blocks(const HeadBlocks& shape, const float* x, float* y) {
    const std::int64_t width = width_of(shape), block_width = width / shape.blocks;
    for_each_share(shape, [&](std::int64_t whole, std::int64_t block, std::int64_t column, std::int64_t n) {
        copy_columns(shape.rows, n, {x + whole, width}, {y + block * shape.rows * block_width + column, block_width});
    });
}

void blocks_to_heads(const HeadBlocks& shape, const float* x, float* y) {
    const std::int64_t width = width_of(shape), block_width = width / shape.blocks;
    for_each_share(shape, [&](std::int64_t whole, std::int64_t block, std::int64_t column, std::int64_t n) {
        copy_columns(shape.rows, n, {x + block * shape.rows * block_width + column, block_width}, {y + whole, width});
    });
}

void blocks_to_sequence(const SequenceBlocks& shape, const float* x, float* y) {
    for_each_chunk(shape, [&](std::int64_t block, std::int64_t sequence, std::int64_t elements) {
        copy(elements, x + block, y + sequence);
    });
}

void sequence_to_blocks(const SequenceBlocks& shape, const float* x, float* y) {
    for_each_chunk(shape, [&](std::int64_t block, std::int64_t sequence, std::int64_t elements) {
        copy(elements, x + sequence, y + block);
    });
}

}  // namespace orrery::kernels
