#include "sim/engine/placed_job.h"

#include <algorithm>
#include <array>
#include <map>
#include <string>
#include <utility>

#include "core/error.h"
#include "core/index.h"
#include "core/random.h"
#include "sim/network/collectives.h"
#include "topologies/fabric.h"

namespace orrery::sim {

namespace {

/// Whether the coordinates of members, up to renaming, determine the links between them.
bool coordinates_suffice(const topologies::ClusterSpec& cluster) {
    return cluster.overrides.empty() && cluster.inside == topologies::NodeInside{} &&
           topologies::Fabric(cluster).coordinates_tell_distance();
}

/// Hashes of the placements of groups: of the members' devices, nodes, rails, scalable units and pods, renamed in order
/// of appearance, or, if these do not suffice, of everything on which costs depend (GroupPlacement). The members of a
/// collective are taken in the order of their devices. A ring visits nodes in ascending order, so equal hashes mean
/// equal rings for any assignment of ranks to devices.
class PlacementHashes {
  public:
    PlacementHashes(const std::vector<RankPlace>& places, const topologies::Cluster& cluster)
        : cluster_(cluster), places_(places), by_coordinates_(coordinates_suffice(cluster.spec())) {
        std::int32_t highest = 0;
        for (const RankPlace& place : places) {
            highest = std::max({highest, place.device, place.node, place.rail, place.scalable_unit, place.pod});
        }
        for (std::vector<Name>& names : names_) names.assign(at(highest) + 1, Name{});
    }
    [[nodiscard]] std::uint64_t of(const GroupFamily& family, GroupIndex group) {
        ++stamp_;
        next_ = {};
        const std::span<const std::int32_t> members = family.members(group);
        ordered_.assign(members.begin(), members.end());
        const auto by_device = [this](std::int32_t a, std::int32_t b) {
            return places_[at(a)].device < places_[at(b)].device;
        };
        if (!family.pairs && !std::is_sorted(ordered_.begin(), ordered_.end(), by_device)) {
            std::stable_sort(ordered_.begin(), ordered_.end(), by_device);
        }
        std::uint64_t hash = mix64(static_cast<std::uint64_t>(family.axis));
        if (!by_coordinates_) {
            devices_.clear();
            for (const std::int32_t rank : ordered_) devices_.push_back(places_[at(rank)].device);
            return mix64(hash ^ GroupPlacementHash()(place_group(cluster_, devices_)));
        }
        for (const std::int32_t rank : ordered_) {
            const RankPlace& place = places_[at(rank)];
            const std::uint64_t word = renamed(0, place.device) | renamed(1, place.node) << 20 |
                                       renamed(2, place.rail) << 40 | renamed(3, place.scalable_unit) << 52;
            hash = mix64(hash ^ word ^ mix64(renamed(4, place.pod)));
        }
        return hash;
    }

  private:
    struct Name {
        std::int64_t owner = -1;
        std::uint32_t name = 0;
    };
    std::uint64_t renamed(std::size_t kind, std::int32_t number) {
        Name& name = names_[kind][at(number)];
        if (name.owner != stamp_) name = {stamp_, next_[kind]++};
        return name.name;
    }

    const topologies::Cluster& cluster_;
    const std::vector<RankPlace>& places_;
    bool by_coordinates_;
    std::array<std::vector<Name>, 5> names_;
    std::array<std::uint32_t, 5> next_{};
    std::int64_t stamp_ = -1;
    std::vector<std::int32_t> ordered_;
    std::vector<std::int64_t> devices_;
};

/// The index of the rank's device among the job's devices.
std::int64_t device_of(const program::Parallelism& parallelism, std::int64_t rank, std::int64_t devices) {
    const std::vector<std::int64_t>& placement = parallelism.placement;
    const std::int64_t device = placement.empty() ? rank % devices : placement[at(rank)];
    ORRERY_CHECK(device >= 0 && device < devices, "rank " + std::to_string(rank) + " is placed on device " +
                                                      std::to_string(device) + " of " + std::to_string(devices));
    return device;
}

RankPlace place_of(std::int64_t device, const topologies::Cluster& cluster) {
    const std::int64_t node = cluster.node_of(device);
    const std::int64_t rail = std::max<std::int64_t>(cluster.rail_of(device), 0);
    return {static_cast<std::int32_t>(device),
            static_cast<std::int32_t>(node),
            static_cast<std::int32_t>(cluster.scalable_unit_of(device)),
            static_cast<std::int32_t>(rail),
            static_cast<std::int32_t>(node * cluster.spec().nics_per_node + rail),
            static_cast<std::int32_t>(cluster.pod_of(device))};
}

}  // namespace

std::vector<RankPlace> place_ranks(const program::Parallelism& parallelism, const topologies::Cluster& cluster,
                                   std::span<const std::int64_t> devices) {
    const bool may_share = cluster.spec().ranks_may_share_devices();
    const std::int64_t count = devices.empty() ? cluster.device_count() : static_cast<std::int64_t>(devices.size());
    const std::int64_t world_size = parallelism.world_size();
    ORRERY_CHECK(count > 0 && (world_size <= count || may_share),
                 std::to_string(world_size) + " ranks do not fit on the " + std::to_string(count) + " devices of " +
                     cluster.spec().name);
    ORRERY_CHECK(parallelism.placement.empty() || static_cast<std::int64_t>(parallelism.placement.size()) == world_size,
                 "Parallelism::placement must have one device for each rank");
    std::vector<std::uint8_t> taken(at(count));
    std::vector<RankPlace> places(at(world_size));
    for (std::int64_t rank = 0; rank < world_size; ++rank) {
        const std::int64_t device = device_of(parallelism, rank, count);
        ORRERY_CHECK(taken[at(device)] == 0 || may_share, "two ranks are placed on device " + std::to_string(device));
        taken[at(device)] = 1;
        places[at(rank)] = place_of(devices.empty() ? device : devices[at(device)], cluster);
    }
    std::map<std::int64_t, double> speeds;
    for (const topologies::SlowDevice& slow : cluster.spec().slow_devices) speeds[slow.device] = slow.speed;
    if (speeds.empty()) return places;
    for (RankPlace& place : places) {
        if (const auto slow = speeds.find(place.device); slow != speeds.end()) place.speed = slow->second;
    }
    return places;
}

PlacedJob::PlacedJob(const program::Program& program, std::vector<RankPlace> places,
                     std::span<const topologies::Cluster* const> states)
    : program_(&program), places_(std::move(places)), groups_(program) {
    ORRERY_CHECK(!states.empty(), "a job needs at least one state of the cluster");
    std::vector<PlacementHashes> hashes;
    hashes.reserve(states.size());
    for (const topologies::Cluster* state : states) hashes.emplace_back(places_, *state);
    DenseIds<PlacementIndex> ids;
    for (const program::GroupAxis axis : program::kAxes) {
        const GroupFamily& family = groups_.family(axis);
        for (const GroupIndex group : family.groups()) {
            std::uint64_t hash = 0;
            for (PlacementHashes& state : hashes) hash = mix64(hash ^ state.of(family, group));
            const PlacementIndex id = ids.id_of(hash);
            placement_of_[axis].push_back(id);
            if (id == placements_.next_index()) placements_.push_back({axis, devices_of(axis, group)});
        }
    }
}

std::vector<std::int64_t> PlacedJob::devices_of(program::GroupAxis axis, GroupIndex group) const {
    const GroupFamily& family = groups_.family(axis);
    std::vector<std::int64_t> devices;
    for (const std::int32_t rank : family.members(group)) devices.push_back(places_[at(rank)].device);
    if (!family.pairs) std::sort(devices.begin(), devices.end());
    return devices;
}

}  // namespace orrery::sim
