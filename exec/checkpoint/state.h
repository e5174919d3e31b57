// Where a rank has what a checkpoint holds: parameters and optimizer states between two steps.
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

/// A block of a whole tensor in this rank's memory on the device, row by row.
struct StateBlock {
    std::string tensor;
    StateKind kind{};
    DType dtype = DType::fp32;      // in a checkpoint
    DType held = DType::fp32;       // in memory; where it is another one, values are rounded when they are stored
    std::int64_t row = 0, col = 0;  // of the first element in the whole tensor
    std::int64_t rows = 0, cols = 0;
    std::byte* first = nullptr;
    std::int64_t stride_bytes = 0;  // from row to row
    [[nodiscard]] std::int64_t row_bytes() const { return cols * size_of(held); }
    /// From the first element to the last. What is between the rows is padding.
    [[nodiscard]] std::int64_t span_bytes() const { return (rows - 1) * stride_bytes + row_bytes(); }
};

/// What the optimizer's update works on is what a checkpoint holds, and what the rank has of the parameters besides. A
/// rank that updates nothing and is given its parameters in every step (torch DataParallel) needs and owns nothing.
class TrainingState {
  public:
    TrainingState(const program::Program& program, std::int64_t rank, const Shards& shards, const Arena& arena);

    /// Everything that the rank must be given to go on. Padding is not part of it; it is zero.
    [[nodiscard]] std::vector<StateBlock> needed() const;
    /// What the rank puts into a checkpoint: over all ranks, every element of every tensor once.
    [[nodiscard]] std::vector<StateBlock> owned() const;

  private:
    enum class Order : std::uint8_t { parameters, states };  // in which a buffer's elements lie (see Shards)
    struct Buffer {
        StateKind kind{};
        DType dtype = DType::fp32;
        std::byte* first = nullptr;
        Order order = Order::states;
        bool is_copy = false;  // of parameters, in host memory for an update there
        DType held = dtype;    // in memory; what rests in another type follows from its master
    };
    void add_blocks(const Buffer& buffer, const std::vector<ShardPiece>& pieces, const std::vector<TensorSlice>& slices,
                    std::vector<StateBlock>& blocks) const;

    const program::Program& program_;
    std::int64_t rank_ = 0;
    const Shards& shards_;
    std::vector<Buffer> buffers_;
};

/// What of a plan a checkpoint is bound to: another value of one of these would not go on with the same training. JSON
/// pointer in the plan -> value, as JSON. What is not among them may differ: ranks and how work is cut over them,
/// micro-batches, what is recomputed, the optimizer's rates.
[[nodiscard]] std::map<std::string, std::string> bound_settings(const program::Plan& plan);

/// Throws InputError naming `plan_path`, the first key that differs, and what the checkpoint at `checkpoint_path`
/// allows.
void check_settings(const program::Program& program, const std::string& plan_path, const Manifest& manifest,
                    const std::string& checkpoint_path);

}  // namespace orrery::exec
