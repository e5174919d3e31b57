// Copies between layouts, with one thread per element.
#include "kernels/cuda/each.cuh"
#include "kernels/cuda/layout.h"

namespace orrery::kernels::cuda {
namespace {

constexpr std::size_t kMostSections = 3;  // q, k and v

/// HeadBlocks for kernels.
struct Shares {
    std::int64_t rows = 0;
    unsigned width = 0, block_width = 0;
    unsigned share[kMostSections] = {};  // of a block in each section
    unsigned blocks = 0;

    explicit Shares(const HeadBlocks& shape) : rows(shape.rows), blocks(static_cast<unsigned>(shape.blocks)) {
        ORRERY_CHECK(shape.sections.size() <= kMostSections, "rows of more than three sections");
        for (std::size_t i = 0; i < shape.sections.size(); ++i) {
            ORRERY_CHECK(shape.sections[i] % shape.blocks == 0,
                         "a section of the rows cannot be split into equal blocks");
            share[i] = static_cast<unsigned>(shape.sections[i] / shape.blocks);
            block_width += share[i];
        }
        width = blocks * block_width;
    }
    /// The place in the blocks of an element of the whole rows.
    __device__ std::int64_t in_blocks(std::int64_t row, unsigned column) const {
        std::int64_t place = row * block_width;
#pragma unroll
        for (std::size_t i = 0; i + 1 < kMostSections; ++i) {
            if (column < share[i] * blocks) return place + in_section(column, share[i]);
            column -= share[i] * blocks;
            place += share[i];
        }
        return place + in_section(column, share[kMostSections - 1]);
    }

  private:
    __device__ std::int64_t in_section(unsigned column, unsigned of_block) const {
        return column / of_block * rows * block_width + column % of_block;
    }
};

/// Calls move(place in the ranks' order, place in the sequence) for every element.
template <typename Move>
void for_each_place(StreamHandle stream, const SequenceBlocks& shape, const char* name, Move move) {
    ORRERY_CHECK(shape.rows % 2 == 0, "a rank's rows must be two equal chunks");
    const auto chunk = static_cast<unsigned>(shape.rows / 2);
    const auto last = static_cast<unsigned>(2 * shape.ranks - 1);
    const std::int64_t width = shape.width;
    for_each_of_rows(stream, shape.ranks * shape.rows, width, name,
                     [=] __device__(std::int64_t row, std::int64_t column) {
                         const unsigned place = static_cast<unsigned>(row) / chunk;
                         const unsigned rank = place / 2;
                         const std::int64_t there = place % 2 == 0 ? rank : last - rank;  // chunk of the sequence
                         const std::int64_t rest = static_cast<unsigned>(row) % chunk;
                         move(row * width + column, (there * chunk + rest) * width + column);
                     });
}

}  // namespace

void copy_columns(StreamHandle stream, std::int64_t rows, std::int64_t n, ConstFloatRows x, FloatRows y) {
    for_each_of_rows(stream, rows, n, "copy_columns", [=] __device__(std::int64_t row, std::int64_t column) {
        put(y.data, row * y.width + column, get(x.data, row * x.width + column));
    });
}

void add_columns(StreamHandle stream, std::int64_t rows, std::int64_t n, ConstFloatRows x, FloatRows y) {
    for_each_of_rows(stream, rows, n, "add_columns", [=] __device__(std::int64_t row, std::int64_t column) {
        const std::int64_t to = row * y.width + column;
        put(y.data, to, get(y.data, to) + get(x.data, row * x.width + column));
    });
}

void repeat_heads(StreamHandle stream, std::int64_t rows, std::int64_t heads, std::int64_t head_dim,
                  std::int64_t copies, ConstFloatRows x, FloatRows y) {
    const auto width = static_cast<unsigned>(head_dim);
    const auto repeated = static_cast<unsigned>(copies * head_dim);
    for_each_of_rows(stream, rows, heads * repeated, "repeat_heads",
                     [=] __device__(std::int64_t row, std::int64_t column) {
                         const auto to = static_cast<unsigned>(column);
                         const unsigned from = to / repeated * width + to % width;
                         put(y.data, row * y.width + column, get(x.data, row * x.width + from));
                     });
}

void sum_repeated_heads(StreamHandle stream, std::int64_t rows, std::int64_t heads, std::int64_t head_dim,
                        std::int64_t copies, ConstFloatRows dy, FloatRows dx) {
    const auto width = static_cast<unsigned>(head_dim);
    for_each_of_rows(stream, rows, heads * head_dim, "sum_repeated_heads",
                     [=] __device__(std::int64_t row, std::int64_t column) {
                         const auto to = static_cast<unsigned>(column);
                         const std::int64_t first = row * dy.width + to / width * copies * width + to % width;
                         float sum = get(dy.data, first);
                         for (std::int64_t i = 1; i < copies; ++i) sum += get(dy.data, first + i * width);
                         put(dx.data, row * dx.width + column, sum);
                     });
}

void heads_to_blocks(StreamHandle stream, const HeadBlocks& shape, ConstFloats x, Floats y) {
    const Shares shares(shape);
    for_each_of_rows(
        stream, shape.rows, shares.width, "heads_to_blocks", [=] __device__(std::int64_t row, std::int64_t column) {
            put(y, shares.in_blocks(row, static_cast<unsigned>(column)), get(x, row * shares.width + column));
        });
}

void blocks_to_heads(StreamHandle stream, const HeadBlocks& shape, ConstFloats x, Floats y) {
    const Shares shares(shape);
    for_each_of_rows(
        stream, shape.rows, shares.width, "blocks_to_heads", [=] __device__(std::int64_t row, std::int64_t column) {
            put(y, row * shares.width + column, get(x, shares.in_blocks(row, static_cast<unsigned>(column))));
        });
}

void blocks_to_sequence(StreamHandle stream, const SequenceBlocks& shape, ConstFloats x, Floats y) {
    for_each_place(stream, shape, "blocks_to_sequence",
                   [=] __device__(std::int64_t block, std::int64_t sequence) { put(y, sequence, get(x, block)); });
}

void sequence_to_blocks(StreamHandle stream, const SequenceBlocks& shape, ConstFloats x, Floats y) {
    for_each_place(stream, shape, "sequence_to_blocks",
                   [=] __device__(std::int64_t block, std::int64_t sequence) { put(y, block, get(x, sequence)); });
}

}  // namespace orrery::kernels::cuda
