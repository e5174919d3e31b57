// Maps a rank's shards to blocks of the global tensors, to assemble whole tensors and to reshard them for another plan.
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

/// A block of a global tensor that a rank holds in one piece of its flat order. It contains no padding.
struct TensorSlice {
    const program::Parameter* parameter = nullptr;  // points into the Program
    std::string tensor;                             // global name, "layers.0.attention.q.weight"
    TensorShape shape;                              // of the global tensor
    std::int64_t row = 0, col = 0;                  // of the first element in the global tensor
    std::int64_t rows = 0, cols = 0;
    std::size_t piece = 0;         // index in `pieces`
    std::int64_t flat = 0;         // offset of the first element in the flat order
    std::int64_t flat_stride = 0;  // elements from row to row in the flat order
};

/// All slices that the rank holds in these pieces of its flat order, tensor by tensor. `pieces` are ascending.
[[nodiscard]] std::vector<TensorSlice> slices_of(const program::Program& program, std::int64_t rank,
                                                 const std::vector<ShardPiece>& pieces);

/// The shapes of the model's global tensors, by name.
[[nodiscard]] std::map<std::string, TensorShape> whole_tensors(const program::Program& program);

}  // namespace orrery::exec
