// Private to the planner: what a rank's times and bytes owe to how the ranks of its stage share parameters, gradients
// and optimizer states. None of it depends on the micro-batch size.
#pragma once

#include <cstdint>
#include <map>
#include <tuple>
#include <utility>
#include <vector>

#include "sim/network/collectives.h"
#include "sim/planner/isolated_times.h"
#include "sim/planner/layer_costs.h"
#include "sim/program/mesh.h"

namespace orrery::sim {

/// Parameters of a rank, in elements.
struct RankElements {
    std::int64_t dense = 0, expert = 0;
    /// Dense, without the embedding and the head; zero3 gathers these before each pass.
    std::int64_t dense_of_blocks = 0;
    std::int64_t largest_block = 0, smallest_block = 0;  // dense and expert
    /// Numbers of blocks of chunks, without 0, ascending, and how many chunks have so many.
    std::vector<std::pair<std::int64_t, std::int64_t>> chunks;
    std::int64_t largest_chunk = 0;  // dense, ends included
    std::int64_t largest_ends = 0;   // of a chunk: of the embedding, the head or both
    bool is_first_stage = false;
    /// The chunks with the embedding or the head.
    struct EndChunk {
        std::int64_t blocks = 0, embedding = 0, head = 0;
    };
    std::vector<EndChunk> end_chunks;

    void add_chunk(std::int64_t blocks);
    [[nodiscard]] std::int64_t blocks() const;
    [[nodiscard]] bool blocks_are_alike() const { return largest_block == smallest_block; }
};

/// Lower bounds.
struct ShardedRank {
    double state_bytes = 0;  // parameters, gradients, optimizer states, windows of units and staging buffers
    double update_s = 0;
    double staging_s = 0;            // casts of one micro-batch's gradients
    double first_gathers_s = 0;      // gathers of one micro-batch that nothing can overlap
    CommunicationTimes reduction;    // of all gradients once, within one set of shards
    CommunicationTimes replication;  // among the sets of shards
    bool reduces_at_end = false;     // not before the last backward pass has ended
    CommunicationTimes gather;       // of all parameters once, before a pass
    /// Of updated parameters, under the next forward or after the update (zero1 and zero2).
    CommunicationTimes regather, regather_experts;
};

class ShardingCosts {
  public:
    /// Keeps references.
    ShardingCosts(const PlanRequest& request, const topologies::Cluster& cluster, const RooflineCost& cost);

    /// ShardedRank::state_bytes.
    [[nodiscard]] double held_bytes(const Choice& choice, const RankElements& own) const;
    /// Fills in everything else. `costs`: of any micro-batch size.
    void add_times(const Choice& choice, const RankElements& own, const LayerCosts& costs, ShardedRank& rank);
    /// Context, workspaces, and the communicators that every plan with this choice has.
    [[nodiscard]] std::int64_t context_bytes(const Choice& choice);
    /// The transfer of a micro-batch's hidden states from each stage's ranks to those of the next, by pipeline rank.
    /// Without the gather by the receivers, where each rank sends a part.
    [[nodiscard]] std::vector<CommunicationTimes> transfers(const Choice& choice);
    /// The shortest of them in seconds; 0 with one stage.
    [[nodiscard]] double least_transfer_s(const Choice& choice);
    /// How many units of a chunk with so many blocks are gathered one after the other.
    [[nodiscard]] double units_of(const Choice& choice, const RankElements& own, std::int64_t blocks) const;
    /// In how many pieces, units or buckets, the gradients of such a chunk are reduced one after the other, at most.
    [[nodiscard]] double pieces_of(const Choice& choice, const RankElements& own, std::int64_t blocks) const;
    /// RankTraffic::OfChunk::gradient_place of a chunk with the embedding or the head (`has_ends`) or without both.
    [[nodiscard]] int gradient_place(const Choice& choice, const RankElements& own, bool has_ends) const;
    /// Whether backward passes add to gradients of their full type, which is wider than that of parameters
    /// (LayerCost::wide_gradients_s).
    [[nodiscard]] bool has_wide_gradients(const Choice& choice) const;
    /// Whether gradients are cast or copied into a staging buffer before their reduction.
    [[nodiscard]] bool is_staged(const Choice& choice) const;
    /// How often a step reduces the gradients.
    [[nodiscard]] double reductions(const Choice& choice) const;
    /// How often a micro-batch gathers the parameters.
    [[nodiscard]] static double gathers(const Choice& choice) { return choice.sharding.reshards ? 2 : 1; }
    /// Bytes of one micro-batch's hidden states between two stages.
    [[nodiscard]] std::int64_t hidden_bytes(const Choice& choice) const;
    /// Of a copy between a device and the host, while all devices of the plan copy.
    [[nodiscard]] double copy_s(std::int64_t bytes) const;

  private:
    /// A group's placement, interned.
    using PlacementId = std::int32_t;
    static constexpr PlacementId kAlone = -1;
    struct Groups {
        PlacementId dense = kAlone, shard = kAlone, replicate = kAlone, expert = kAlone;
        std::vector<PlacementId> transfers;  // from each stage to the next
    };
    struct CollectiveKey {
        PlacementId group = kAlone;
        program::CommKind kind{};
        std::int64_t bytes = 0;
        auto operator<=>(const CollectiveKey&) const = default;
    };
    /// Units of equal size.
    struct Units {
        std::int64_t count = 0, elements = 0;
    };

    /// At least: the units of a chunk with the most, and of all chunks; the elements of the largest.
    struct UnitSizes {
        std::int64_t most = 0, all = 0, largest = 0;
    };

    const Groups& groups_of(const Choice& choice);
    [[nodiscard]] PlacementId intern(std::vector<std::int64_t> devices);
    const CommunicationTimes& collective(program::CommKind kind, PlacementId group, std::int64_t elements, DType type,
                                         program::GroupAxis axis = program::GroupAxis::dp);
    [[nodiscard]] CommunicationTimes of_units(program::CommKind kind, PlacementId group, std::int64_t elements,
                                              DType type, const Choice& choice, const RankElements& own);
    [[nodiscard]] std::vector<Units> units(std::int64_t elements, const Choice& choice, const RankElements& own) const;
    [[nodiscard]] bool overlaps(const Choice& choice, const RankElements& own) const;
    [[nodiscard]] std::int64_t bucket_cap(const Choice& choice, const RankElements& own) const;
    [[nodiscard]] std::int64_t unit_cap(const Choice& choice, const RankElements& own) const;
    [[nodiscard]] std::int64_t blocks_of_unit(const Choice& choice, const RankElements& own) const;
    [[nodiscard]] UnitSizes unit_sizes(const Choice& choice, const RankElements& own) const;
    [[nodiscard]] bool has_root() const;
    [[nodiscard]] bool scatters(const Sharding& sharding) const;
    [[nodiscard]] std::int64_t padded_experts(const Choice& choice, const RankElements& own) const;
    [[nodiscard]] double state_bytes(const Choice& choice, const RankElements& own) const;
    [[nodiscard]] std::int64_t window_bytes(const Choice& choice, const RankElements& own) const;
    [[nodiscard]] std::int64_t staging_bytes(const Choice& choice, const RankElements& own) const;
    [[nodiscard]] DType gradient_type(const Choice& choice) const;
    [[nodiscard]] double update_s(const Choice& choice, const LayerCosts& costs, const RankElements& own) const;
    [[nodiscard]] std::int64_t active_devices() const;  // of a node
    [[nodiscard]] double host_update_s(const models::Operator& update, bool sends_back) const;
    /// An element of the parameters between steps.
    struct StoredParameters {
        std::int64_t bytes = 0;
        bool have_master = false;  // beside them, in fp32
    };
    [[nodiscard]] StoredParameters stored_parameters(const Choice& choice) const;
    [[nodiscard]] double staging_s(const Choice& choice, std::int64_t elements, const RankElements& own) const;
    void add_reductions(const Choice& choice, const RankElements& own, ShardedRank& rank);
    void add_gathers(const Choice& choice, const RankElements& own, ShardedRank& rank);

    const PlanRequest& request_;
    const topologies::Cluster& cluster_;
    const RooflineCost& cost_;
    ByChoice<Groups> groups_;
    std::map<std::tuple<std::int64_t, std::int64_t, std::int64_t>, PlacementId> regular_;  // first, stride, count
    std::vector<GroupPlacement> placements_;
    std::map<CollectiveKey, CommunicationTimes> collectives_;
};

}  // namespace orrery::sim
