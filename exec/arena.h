// A rank's memory, laid out from the Program before the first step: one block of device memory, and one block of host
// memory for offloaded tensors. No tensor is allocated anywhere else.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "exec/backend.h"
#include "exec/shards.h"
#include "sim/program/memory_map.h"
#include "sim/program/program.h"

namespace orrery::exec {

class Arena {
  public:
    /// Reserves the memory of the class's footprint from the backend. Throws JobError with a breakdown if too little
    /// memory is free, assuming that the other ranks need as much as this one. `shards` must outlive the arena.
    Arena(const program::Program& program, const program::RankClass& rank_class, const Shards& shards,
          Backend& backend);

    /// The address of a slot in this call of its body, whose phase is `phase`. Throws BugError for a memory space that
    /// only simulated programs use (copies of weights).
    [[nodiscard]] void* address(const program::Slot& slot, program::Phase phase, const program::Segment& segment,
                                const program::Action& action) const;
    /// The first element of the slot's buffer, for operators that work on everything the rank updates; UpdateRange
    /// gives the offsets in it. Shards that alias the whole tensors use the buffer of the whole tensors.
    [[nodiscard]] void* flat_address(const program::Slot& slot) const;
    [[nodiscard]] std::byte* parameters() const { return start_of(program::Region::parameter); }
    /// The address of a piece's parameters between steps; `piece` is one of Shards::pieces().
    [[nodiscard]] std::byte* parameters_at_rest(const ShardPiece& piece) const;
    /// The type of the parameters between steps. Shards may be stored in another type than the gathered parameters.
    [[nodiscard]] DType resting_dtype() const { return resting_dtype_; }
    /// Whether the parameters stay in host memory between steps and are on the device only while they are gathered.
    [[nodiscard]] bool parameters_rest_on_host() const { return rests_on_host_; }
    [[nodiscard]] std::byte* gradients_at_rest(const ShardPiece& piece, std::int64_t element_bytes) const;
    [[nodiscard]] double* loss() const;  // device memory
    /// A part of the arena, named as in program::memory_parts.
    struct Part {
        std::string name;
        const std::byte* memory = nullptr;
        std::int64_t bytes = 0;
    };
    [[nodiscard]] std::vector<Part> parts() const;
    [[nodiscard]] std::int64_t bytes() const { return bytes_ + host_bytes_; }

  private:
    /// The first byte of a region, or of the instance of a region that an action binds.
    [[nodiscard]] std::byte* start_of(program::Region region) const;
    [[nodiscard]] std::byte* start_of(const program::Instance& bound) const;

    const program::RankClass& class_;
    const Shards& shards_;
    program::PerRegion<std::int64_t> starts_;  // offset in its block; -1: not in the arena
    IndexedVector<program::ChunkIndex, std::int64_t> frames_, host_frames_;  // offset of the pool of activation frames
    std::int64_t bytes_ = 0, host_bytes_ = 0;
    DType resting_dtype_ = DType::fp32;
    bool rests_on_host_ = false;
    std::byte* base_ = nullptr;
    std::byte* host_ = nullptr;
};

}  // namespace orrery::exec
