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
    /// Where an element of the shard buffers stands in the flat order.
    [[nodiscard]] std::int64_t flat(std::int64_t shard_offset) const;
    [[nodiscard]] std::vector<UpdateRange> update_ranges() const;

  private:
    [[nodiscard]] bool counts(const program::Parameter& parameter) const;
    [[nodiscard]] std::int64_t place_in(program::GroupAxis axis) const;

    const program::Program& program_;
    const program::RankClass& class_;
    std::int64_t rank_ = 0;
    std::vector<ShardPiece> pieces_;
};

}  // namespace orrery::exec
