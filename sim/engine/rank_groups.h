// The process groups of a Program's mesh, laid out flat: asked for once instead of for each rank again.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "sim/engine/seats.h"
#include "sim/program/program.h"

namespace orrery::sim {

/// All groups of one axis, numbered by their lowest rank; pairs by their sender.
struct GroupFamily {
    program::GroupAxis axis{};
    bool used = false;
    bool pairs = false;                     // send and receive; otherwise a collective
    std::int64_t size = 0;                  // members of each
    std::int64_t count = 0;                 // groups
    std::vector<std::int32_t> ranks;        // members of group g: ranks[g * size, (g + 1) * size); of a pair, the
                                            //   sender first
    std::vector<std::int32_t> group_of;     // by rank; of pairs, by the sender; -1: none
    std::vector<std::int32_t> received_of;  // pairs: by the receiver

    [[nodiscard]] std::span<const std::int32_t> members(std::int64_t group) const {
        return {ranks.data() + group * size, static_cast<std::size_t>(size)};
    }
};

class RankGroups {
  public:
    /// Only axes that some instruction of the Program uses have groups.
    explicit RankGroups(const program::Program& program);

    [[nodiscard]] std::int64_t world_size() const { return world_size_; }
    [[nodiscard]] const GroupFamily& family(std::size_t axis) const { return families_[axis]; }
    /// Seats on axes that are used.
    [[nodiscard]] const std::vector<Seat>& seats() const { return seats_; }
    /// The rank's group on the axis of the seat, or -1; the axis must be used.
    [[nodiscard]] std::int64_t group(Seat seat, std::int64_t rank) const {
        const GroupFamily& family = families_[static_cast<std::size_t>(axis_of(seat))];
        return (receives(seat) ? family.received_of : family.group_of)[static_cast<std::size_t>(rank)];
    }

  private:
    void add_family(const program::Mesh& mesh, GroupFamily& family) const;

    std::int64_t world_size_ = 1;
    program::PerAxis<GroupFamily> families_;  // by GroupAxis
    std::vector<Seat> seats_;
};

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
