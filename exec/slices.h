// Blocks of whole tensors, and where a rank has them: by this, what plans have cut is put together again, and cut anew
// for others.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "exec/shards.h"
#include "sim/program/program.h"

namespace orrery::exec {

struct TensorShape {
    std::int64_t rows = 0;
    std::int64_t cols = 0;
    bool operator==(const TensorShape&) const = default;
};

/// Rows and columns of a whole tensor that a rank has in one piece of its flat order. Never padding.
struct TensorSlice {
    const program::Parameter* parameter = nullptr;  // of the program that was asked
    std::string tensor;                             // global name, "layers.0.attention.q.weight"
    TensorShape shape;                              // of the whole tensor
    std::int64_t row = 0, col = 0;                  // of the first element in the whole tensor
    std::int64_t rows = 0, cols = 0;
    std::size_t piece = 0;         // index in the pieces that were asked for
    std::int64_t flat = 0;         // of the first element, in the flat order
    std::int64_t flat_stride = 0;  // elements from row to row
};

/// All that the rank has in these pieces of its flat order (ascending), tensor by tensor.
[[nodiscard]] std::vector<TensorSlice> slices_of(const program::Program& program, std::int64_t rank,
                                                 const std::vector<ShardPiece>& pieces);

/// The model's whole tensors by name.
[[nodiscard]] std::map<std::string, TensorShape> whole_tensors(const program::Program& program);

}  // namespace orrery::exec
