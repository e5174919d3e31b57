// Views for kernels: rows inside wider rows, packed heads, and the positions of rows in a sequence.
#pragma once

#include <cstdint>

namespace orrery::kernels {

/// Some columns of a row-major matrix. Row r begins at data + r * width, where `width` is the width of the whole
/// matrix.
struct ConstRows {
    const float* data = nullptr;
    std::int64_t width = 0;
};
struct Rows {
    float* data = nullptr;
    std::int64_t width = 0;
    // NOLINTNEXTLINE(google-explicit-constructor): like the conversion of a pointer to a pointer to const
    operator ConstRows() const { return {data, width}; }
};

/// Packed query, key and value rows: [q: heads * head_dim | k: kv_heads * head_dim | v: kv_heads * head_dim].
struct HeadShape {
    std::int64_t rows = 0;
    std::int64_t heads = 0;
    std::int64_t kv_heads = 0;
    std::int64_t head_dim = 0;
    [[nodiscard]] std::int64_t row_width() const { return (heads + 2 * kv_heads) * head_dim; }
};

/// Consecutive positions of a sequence. A list of runs gives the positions of consecutive rows: with context
/// parallelism of degree c the sequence is split into 2c equal chunks, and rank r holds the chunks r and 2c-1-r.
struct PositionRun {
    std::int64_t first = 0;
    std::int64_t count = 0;
};

}  // namespace orrery::kernels
