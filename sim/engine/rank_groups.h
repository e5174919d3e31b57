// The process groups of a Program's mesh as arithmetic on ranks, for when asking for each rank's group would cost more
// than the simulation.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "sim/engine/symmetry.h"
#include "sim/program/program.h"

namespace orrery::sim {

/// All groups of one axis. Member i of group g is rank first(g) + i * stride; of a pair, member 0 sends.
struct GroupFamily {
    program::GroupAxis axis{};
    bool used = false;
    bool pairs = false;       // send and receive; otherwise a collective
    std::int64_t count = 0;   // groups
    std::int64_t size = 0;    // members of each
    std::int64_t stride = 0;  // between members
    std::int64_t block = 1;   // first(g) = g / block * block_stride + g % block + offset
    std::int64_t block_stride = 1;
    std::int64_t offset = 0;
    [[nodiscard]] std::int64_t first(std::int64_t group) const {
        return group / block * block_stride + group % block + offset;
    }
};

class RankGroups {
  public:
    /// Only axes that some instruction of the Program uses have groups.
    explicit RankGroups(const program::Program& program);

    [[nodiscard]] std::int64_t world_size() const { return world_size_; }
    /// Ranks of one pipeline stage, which are consecutive.
    [[nodiscard]] std::int64_t stage_size() const { return stage_size_; }
    [[nodiscard]] const GroupFamily& family(std::size_t axis) const { return families_[axis]; }
    /// The rank's group on the axis of the seat, or -1.
    [[nodiscard]] std::int64_t group(Seat seat, std::int64_t rank) const;

  private:
    std::int64_t tp_ = 1, stage_size_ = 1, stages_ = 1, world_size_ = 1;
    std::array<GroupFamily, kAxisCount> families_;  // by GroupAxis
};

[[nodiscard]] program::GroupAxis axis_of(Seat seat);
/// The seat of member `member` of a group of the axis.
[[nodiscard]] Seat member_seat(program::GroupAxis axis, std::int64_t member);

/// Small dense numbers for 64-bit hashes, in order of first appearance.
class DenseIds {
  public:
    DenseIds() : table_(64) {}
    /// The hash's number; a new one gets size().
    std::int32_t id_of(std::uint64_t hash);
    [[nodiscard]] std::int32_t size() const { return size_; }

  private:
    struct Entry {
        std::uint64_t hash = 0;
        std::int32_t id = -1;
    };
    [[nodiscard]] Entry& place(std::uint64_t hash);
    std::vector<Entry> table_;  // open addressing, a power of two, at most half full
    std::int32_t size_ = 0;
};

}  // namespace orrery::sim
