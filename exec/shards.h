// Which of a rank's parameters it updates, where they lie, and which of them it speaks for in a norm over all ranks.
#pragma once

#include <cstdint>
#include <vector>

#include "sim/program/program.h"

namespace orrery::exec {

/// Elements that lie together in the flat order of the rank's parameters and in its shard buffers. Padding included.
struct ShardPiece {
    std::int64_t flat = 0;   // in the flat order
    std::int64_t shard = 0;  // in the shard buffers
    std::int64_t elements = 0;
};

/// A run of real parameters that this rank updates: where the optimizer's operands hold it, in elements.
struct UpdateRange {
    std::int64_t parameter = 0;
    std::int64_t gradient = 0;
    std::int64_t state = 0;
    std::int64_t elements = 0;
    bool decays = false;   // takes part in weight decay
    bool counted = false;  // this rank counts it in norms; of all ranks that hold the element, one does
};

class Shards {
  public:
    Shards(const program::Program& program, std::int64_t rank);

    /// What this rank updates: a piece of each bucket, or, where states are not sharded, everything.
    [[nodiscard]] const std::vector<ShardPiece>& pieces() const { return pieces_; }
    /// Where in so many bytes, cut into equal blocks for the ranks of the axis, this rank's own begins.
    [[nodiscard]] std::int64_t own_block(program::GroupAxis axis, std::int64_t bytes) const {
        return bytes / program_.mesh->group_size(axis) * place_in(axis);
    }
    /// Where an element of the shard buffers stands in the flat order.
    [[nodiscard]] std::int64_t flat(std::int64_t shard_offset) const;
    [[nodiscard]] std::vector<UpdateRange> update_ranges() const;
    /// Where an element of a piece, by its place in the flat order, lies in the buffers of parameters at rest and of
    /// optimizer states.
    [[nodiscard]] std::int64_t parameter_place(const ShardPiece& piece, std::int64_t flat) const;
    [[nodiscard]] std::int64_t state_place(const ShardPiece& piece, std::int64_t flat) const;
    /// The parts of the pieces that are the parameter's.
    [[nodiscard]] std::vector<ShardPiece> parts_of(const program::Parameter& parameter) const;
    /// What lies in the buffer of parameters at rest: the pieces, or everything where others' parts have a place too.
    [[nodiscard]] std::vector<ShardPiece> parameters_at_rest() const;
    /// Of all ranks that update the parameter's elements that this rank updates, whether it is the first.
    [[nodiscard]] bool is_first_copy(const program::Parameter& parameter) const;

  private:
    [[nodiscard]] bool counts(const program::Parameter& parameter) const;
    [[nodiscard]] bool is_first_of_model_copy(const program::Parameter& parameter) const;
    [[nodiscard]] std::int64_t place_in(program::GroupAxis axis) const;

    const program::Program& program_;
    const program::RankClass& class_;
    bool everyone_adds_up_ = false;  // their gradients' norms
    std::int64_t rank_ = 0;
    std::vector<ShardPiece> pieces_;
};

}  // namespace orrery::exec
