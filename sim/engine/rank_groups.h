// The process groups of a Program's mesh in flat arrays, so that the mesh is asked for each group only once.
#pragma once

#include <cstdint>
#include <numeric>
#include <span>
#include <utility>
#include <vector>

#include "sim/engine/endpoints.h"
#include "sim/program/program.h"

namespace orrery::sim {

using GroupIndex = Index<struct GroupTag>;  // in a GroupFamily

/// All groups of one axis, in ascending order of their lowest rank; pairs in ascending order of their sender.
struct GroupFamily {
    program::GroupAxis axis{};
    bool pairs = false;     // of a sender and a receiver; otherwise for collectives
    std::int64_t size = 0;  // of each group
    GroupIndex end = 0;
    std::vector<std::int32_t> ranks;      // members of group g: ranks[g * size, (g + 1) * size); sender, receiver
    std::vector<GroupIndex> group_of;     // by member, or by sender; -1: none
    std::vector<GroupIndex> received_of;  // pairs: by receiver

    [[nodiscard]] IndexRange<GroupIndex> groups() const { return {0, end}; }
    [[nodiscard]] std::span<const std::int32_t> members(GroupIndex group) const {
        return {ranks.data() + group.value() * size, static_cast<std::size_t>(size)};
    }
};

class RankGroups {
  public:
    /// Axes that no instruction of the Program uses have no groups.
    explicit RankGroups(const program::Program& program);

    [[nodiscard]] std::int64_t world_size() const { return world_size_; }
    [[nodiscard]] const GroupFamily& family(program::GroupAxis axis) const { return families_[axis]; }
    /// The endpoints on used axes.
    [[nodiscard]] const std::vector<Endpoint>& endpoints() const { return endpoints_; }
    /// The rank's group at the endpoint, or -1; its axis must be used.
    [[nodiscard]] GroupIndex group(Endpoint endpoint, std::int64_t rank) const {
        const GroupFamily& family = families_[axis_of(endpoint)];
        return (receives(endpoint) ? family.received_of : family.group_of)[static_cast<std::size_t>(rank)];
    }

  private:
    void add_family(const program::Mesh& mesh, GroupFamily& family) const;

    std::int64_t world_size_ = 1;
    program::PerAxis<GroupFamily> families_;
    std::vector<Endpoint> endpoints_;
};

/// Assigns consecutive indices to 64-bit hashes, in order of first appearance.
template <typename I>
class DenseIds {
  public:
    DenseIds() : table_(64) {}
    /// The index of the hash; next() if it is new.
    I id_of(std::uint64_t hash) {
        Entry& entry = place(hash);
        if (entry.id >= 0) return entry.id;
        const I id = next_;
        entry = {hash, id};
        ++next_;
        if (next_.position() * 2 > table_.size()) {
            const std::vector<Entry> old = std::exchange(table_, std::vector<Entry>(table_.size() * 4));
            for (const Entry& moved : old) {
                if (moved.id >= 0) place(moved.hash) = moved;
            }
        }
        return id;
    }
    [[nodiscard]] I next() const { return next_; }

  private:
    struct Entry {
        std::uint64_t hash = 0;
        I id = -1;
    };
    [[nodiscard]] Entry& place(std::uint64_t hash) {
        const std::size_t mask = table_.size() - 1;
        std::size_t at = static_cast<std::size_t>(hash) & mask;
        while (table_[at].id >= 0 && table_[at].hash != hash) at = (at + 1) & mask;
        return table_[at];
    }
    std::vector<Entry> table_;  // open addressing; its size is a power of two, at most half of it is used
    I next_ = 0;
};

/// Elements by bucket, flat; within a bucket in the order in which they were given.
template <typename I, typename T>
class Buckets {
  public:
    Buckets() = default;
    /// Puts each element into the bucket of_element(element), one of the first `count`.
    template <typename OfElement>
    Buckets(std::size_t count, std::span<const T> elements, const OfElement& of_element)
        : first_(count + 1), elements_(elements.size()) {
        for (const T& element : elements) ++first_[of_element(element) + 1];
        std::partial_sum(first_.begin(), first_.end(), first_.begin());
        IndexedVector<I, std::int32_t> next = first_;
        for (const T& element : elements) {
            elements_[static_cast<std::size_t>(next[of_element(element)]++)] = element;
        }
    }
    [[nodiscard]] std::size_t size() const { return first_.size() - 1; }
    [[nodiscard]] IndexRange<I> indices() const { return {0, I::of(size())}; }
    [[nodiscard]] std::span<const T> operator[](I bucket) const {
        return {elements_.data() + first_[bucket], elements_.data() + first_[bucket + 1]};
    }
    [[nodiscard]] std::span<const T> all() const { return elements_; }

  private:
    IndexedVector<I, std::int32_t> first_{0};
    std::vector<T> elements_;
};

}  // namespace orrery::sim
