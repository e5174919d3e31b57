// A rank's memory, laid out from the Program before the first step: a block of the device's, and one of the host's for
// what is offloaded. Nothing else is allocated for tensors.
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
    /// `shards` outlives the arena. Has the backend reserve what the class's memory footprint says; it throws JobError
    /// with the breakdown when there is less free, taking the other ranks to be like this one.
    Arena(const program::Program& program, const program::RankClass& rank_class, const Shards& shards,
          Backend& backend);

    /// Where a slot lies for this call of its body, which is of that phase. Throws BugError for a space that only
    /// programs have which are not executed: copies of weights.
    [[nodiscard]] void* address(const program::Slot& slot, program::Phase phase, const program::Segment& segment,
                                const program::Action& action) const;
    /// For operators on all that the rank updates, whose pieces UpdateRange places: the first element of the slot's
    /// buffer, which for shards without memory of their own is that of the whole.
    [[nodiscard]] void* flat_address(const program::Slot& slot) const;
    [[nodiscard]] std::byte* parameters() const { return start_of(program::Region::parameter); }
    /// Where an element that the rank updates lies between steps; `piece` is one of Shards::pieces().
    [[nodiscard]] std::byte* parameters_at_rest(const ShardPiece& piece) const;
    /// Of parameters between steps: shards may be kept in another type than units are gathered in.
    [[nodiscard]] DType resting_dtype() const { return resting_dtype_; }
    /// Whether they lie in host memory, and on the device only while they are gathered.
    [[nodiscard]] bool parameters_rest_on_host() const { return rests_on_host_; }
    [[nodiscard]] std::byte* gradients_at_rest(const ShardPiece& piece, std::int64_t element_bytes) const;
    [[nodiscard]] double* loss() const;  // device memory
    /// What lies where, by the names of program::memory_parts.
    struct Part {
        std::string name;
        const std::byte* memory = nullptr;
        std::int64_t bytes = 0;
    };
    [[nodiscard]] std::vector<Part> parts() const;
    [[nodiscard]] std::int64_t bytes() const { return bytes_ + host_bytes_; }

  private:
    /// The first byte of a region, or of the instance that an action binds.
    [[nodiscard]] std::byte* start_of(program::Region region) const;
    [[nodiscard]] std::byte* start_of(const program::Instance& bound) const;

    const program::RankClass& class_;
    const Shards& shards_;
    program::PerRegion<std::int64_t> starts_;                                // offset in its block; -1: it has none
    IndexedVector<program::ChunkIndex, std::int64_t> frames_, host_frames_;  // its pool
    std::int64_t bytes_ = 0, host_bytes_ = 0;
    DType resting_dtype_ = DType::fp32;
    bool rests_on_host_ = false;
    std::byte* base_ = nullptr;
    std::byte* host_ = nullptr;
};

}  // namespace orrery::exec
