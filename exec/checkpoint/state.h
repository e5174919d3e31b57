// Locates the contents of a checkpoint in a rank's memory: parameters and optimizer states between two steps.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "exec/arena.h"
#include "exec/checkpoint/manifest.h"
#include "exec/shards.h"
#include "exec/slices.h"
#include "sim/program/program.h"

namespace orrery::exec {

/// A block of a global tensor in this rank's arena, row by row.
struct StateBlock {
    std::string tensor;
    StateKind kind{};
    DType dtype = DType::fp32;      // in a checkpoint
    DType held = DType::fp32;       // in memory; if the two differ, values are rounded when they are stored
    std::int64_t row = 0, col = 0;  // of the first element in the global tensor
    std::int64_t rows = 0, cols = 0;
    std::byte* first = nullptr;
    std::int64_t stride_bytes = 0;  // from row to row
    [[nodiscard]] std::int64_t row_bytes() const { return cols * size_of(held); }
    /// Bytes from the first element to the last, including the gaps between rows.
    [[nodiscard]] std::int64_t span_bytes() const { return (rows - 1) * stride_bytes + row_bytes(); }
};

/// The state that a rank reads from and writes to checkpoints: the operands of the optimizer's update, and the other
/// parameters that the rank holds. A rank that updates nothing and receives its parameters in every step (torch
/// DataParallel) needs and owns nothing.
class TrainingState {
  public:
    TrainingState(const program::Program& program, std::int64_t rank, const Shards& shards, const Arena& arena);

    /// The blocks that the rank must read to resume. Padding is not included; it is zero.
    [[nodiscard]] std::vector<StateBlock> needed() const;
    /// The blocks that the rank writes to a checkpoint. Over all ranks they cover every element of every tensor once.
    [[nodiscard]] std::vector<StateBlock> owned() const;

  private:
    enum class Order : std::uint8_t { parameters, states };  // order of a buffer's elements (see Shards)
    struct Buffer {
        StateKind kind{};
        DType dtype = DType::fp32;
        std::byte* first = nullptr;
        Order order = Order::states;
        bool is_copy = false;  // copy of parameters in host memory, for an update on the host
        DType held = dtype;    // in memory; a buffer with another `dtype` is not read, since its master restores it
    };
    void add_blocks(const Buffer& buffer, const std::vector<ShardPiece>& pieces, const std::vector<TensorSlice>& slices,
                    std::vector<StateBlock>& blocks) const;

    const program::Program& program_;
    std::int64_t rank_ = 0;
    const Shards& shards_;
    std::vector<Buffer> buffers_;
};

/// The settings of a plan that a resuming plan must share, because the training would otherwise be another one: JSON
/// pointer in the plan -> value, as JSON. All other settings may differ: the ranks and the parallelism, micro-batches,
/// recomputation, the optimizer's rates.
[[nodiscard]] std::map<std::string, std::string> bound_settings(const program::Plan& plan);

/// Throws InputError if a setting differs. The error names `plan_path`, the first such key and its value in the
/// checkpoint at `checkpoint_path`.
void check_settings(const program::Program& program, const std::string& plan_path, const Manifest& manifest,
                    const std::string& checkpoint_path);

}  // namespace orrery::exec
