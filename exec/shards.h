// The parameters that a rank updates: where they are in its buffers, and which of them it counts in the global norm.
#pragma once

#include <cstdint>
#include <vector>

#include "sim/program/program.h"

namespace orrery::exec {

/// Elements that are contiguous both in the flat order of the rank's parameters and in its shard buffers, including
/// padding.
struct ShardPiece {
    std::int64_t flat = 0;   // offset in the flat order
    std::int64_t shard = 0;  // offset in the shard buffers
    std::int64_t elements = 0;
};

/// A contiguous range of parameters, without padding, that this rank updates. The offsets are elements in the
/// optimizer's operands.
struct UpdateRange {
    std::int64_t parameter = 0;
    std::int64_t gradient = 0;
    std::int64_t state = 0;
    std::int64_t elements = 0;
    bool decays = false;   // weight decay applies
    bool counted = false;  // counted in norms by this rank; exactly one of the ranks that hold an element counts it
};

class Shards {
  public:
    Shards(const program::Program& program, std::int64_t rank);

    /// The elements that this rank updates: one piece of each bucket, or everything if states are not sharded.
    [[nodiscard]] const std::vector<ShardPiece>& pieces() const { return pieces_; }
    /// The offset of this rank's block in a buffer of `bytes` that is split equally over the ranks of the axis.
    [[nodiscard]] std::int64_t own_block(program::GroupAxis axis, std::int64_t bytes) const {
        return bytes / program_.mesh->group_size(axis) * place_in(axis);
    }
    /// The offset in the flat order of an element of the shard buffers.
    [[nodiscard]] std::int64_t flat(std::int64_t shard_offset) const;
    [[nodiscard]] std::vector<UpdateRange> update_ranges() const;
    /// The offset of a piece's element, given by its offset in the flat order, in the buffer of parameters at rest and
    /// in the buffer of optimizer states.
    [[nodiscard]] std::int64_t parameter_place(const ShardPiece& piece, std::int64_t flat) const;
    [[nodiscard]] std::int64_t state_place(const ShardPiece& piece, std::int64_t flat) const;
    /// The parts of the pieces that belong to the parameter.
    [[nodiscard]] std::vector<ShardPiece> parts_of(const program::Parameter& parameter) const;
    /// The contents of the buffer of parameters at rest: the pieces, or all parameters if the shards alias them.
    [[nodiscard]] std::vector<ShardPiece> parameters_at_rest() const;
    /// Whether this is the first of the ranks that update this rank's elements of the parameter.
    [[nodiscard]] bool is_first_copy(const program::Parameter& parameter) const;

  private:
    [[nodiscard]] bool counts(const program::Parameter& parameter) const;
    [[nodiscard]] bool is_first_of_model_copy(const program::Parameter& parameter) const;
    [[nodiscard]] std::int64_t place_in(program::GroupAxis axis) const;

    const program::Program& program_;
    const program::RankClass& class_;
    bool everyone_adds_up_ = false;  // whether the gradient norm is summed over all ranks of the job
    std::int64_t rank_ = 0;
    std::vector<ShardPiece> pieces_;
};

}  // namespace orrery::exec
