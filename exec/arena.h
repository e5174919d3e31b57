// One block of memory a rank, laid out from the Program before the first step. Nothing else is allocated for tensors.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "exec/shards.h"
#include "sim/program/program.h"

namespace orrery::exec {

class Arena {
  public:
    /// `shards` outlives the arena. Reserves and touches what the class's memory footprint says. Throws JobError with
    /// the breakdown when the machine has less memory free than this rank and the `ranks_on_host - 1` others together
    /// need, taking the others to be like this one.
    Arena(const program::Program& program, const program::RankClass& rank_class, const Shards& shards,
          int ranks_on_host);
    ~Arena();
    Arena(const Arena&) = delete;
    Arena& operator=(const Arena&) = delete;

    /// Where a slot lies for this call of its body, which is of that phase. Throws BugError for a space that only
    /// programs have which are not executed: copies of weights.
    [[nodiscard]] void* address(const program::Slot& slot, program::Phase phase, const program::Segment& segment,
                                const program::Action& action) const;
    /// For operators on all that the rank updates, whose pieces UpdateRange places: the first element of the slot's
    /// buffer, which for shards without memory of their own is that of the whole.
    [[nodiscard]] void* flat_address(const program::Slot& slot) const;
    [[nodiscard]] std::byte* parameters() const { return base_ + parameters_; }
    /// Where an element that the rank updates lies between steps; `piece` is one of Shards::pieces().
    [[nodiscard]] std::byte* parameters_at_rest(const ShardPiece& piece, std::int64_t element_bytes) const;
    [[nodiscard]] std::byte* gradients_at_rest(const ShardPiece& piece, std::int64_t element_bytes) const;
    [[nodiscard]] double* loss() const;
    [[nodiscard]] std::int64_t bytes() const { return bytes_; }

  private:
    [[nodiscard]] std::byte* boundary(std::int32_t index, std::int64_t pool) const;
    [[nodiscard]] std::byte* frame(const program::Action& action) const;
    [[nodiscard]] std::byte* host_frame(const program::Action& action) const;

    const program::RankClass& class_;
    const Shards& shards_;
    std::int64_t parameters_ = 0, gradients_ = 0, optimizer_ = 0, inputs_ = 0, outputs_ = 0, hidden_gradients_ = 0,
                 transients_ = 0, scalars_ = 0, parameter_shards_ = 0, gradient_shards_ = 0, reductions_ = 0,
                 offload_window_ = 0, host_ = 0;
    std::vector<std::int64_t> frames_, host_frames_;  // by chunk: its pool
    std::int64_t bytes_ = 0;
    std::byte* base_ = nullptr;
};

/// Bytes that this process has resident, and the most it ever had, as the operating system counts them.
struct ResidentMemory {
    std::int64_t now_bytes = 0;
    std::int64_t peak_bytes = 0;
};
[[nodiscard]] ResidentMemory resident_memory();
/// MemAvailable of the machine (or of the container's limit, when that is lower).
[[nodiscard]] std::int64_t available_memory_bytes();

}  // namespace orrery::exec
