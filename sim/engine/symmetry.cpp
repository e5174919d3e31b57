#include "sim/engine/symmetry.h"

#include <algorithm>
#include <string>

#include "core/error.h"
#include "core/random.h"
#include "sim/engine/rank_groups.h"
#include "topologies/fabric.h"
#include "sim/sharing/max_min.h"

namespace orrery::sim {

namespace {

std::size_t at(std::int64_t index) {
    return static_cast<std::size_t>(index);
}

/// Resources of one kind that several ranks share.
struct SharedFamily {
    std::vector<std::int32_t> of_rank;
    std::vector<std::int32_t> first;  // ranks[first[i], first[i + 1]) use resource i
    std::vector<std::int32_t> ranks;
};

SharedFamily shared_family(const std::vector<RankPlace>& places, std::int32_t RankPlace::*where) {
    SharedFamily family;
    for (const RankPlace& place : places) {
        family.of_rank.push_back(place.*where);
        if (at(place.*where) + 2 > family.first.size()) family.first.resize(at(place.*where) + 2);
        ++family.first[at(place.*where) + 1];
    }
    for (std::size_t i = 1; i < family.first.size(); ++i) family.first[i] += family.first[i - 1];
    std::vector<std::int32_t> next = family.first;
    family.ranks.resize(places.size());
    for (std::size_t rank = 0; rank < places.size(); ++rank) {
        family.ranks[at(next[at(family.of_rank[rank])]++)] = static_cast<std::int32_t>(rank);
    }
    return family;
}

/// What the cluster's nodes offer to running work, and what of it several ranks draw on.
struct ResourceLayout {
    bool cores = false, ports = false, nics = false, shared_nics = false, copies = false;
    std::int64_t cores_per_node = 0;
    explicit ResourceLayout(const topologies::ClusterSpec& cluster)
        : cores(cluster.device.host_runs_compute && cluster.device.cores_per_node > 0),
          ports(cluster.node_switches > 0),
          nics(cluster.nics_per_node > 0 && cluster.nodes > 1),
          shared_nics(nics && (cluster.nics_per_node < cluster.devices_per_node || cluster.ranks_may_share_devices())),
          copies(!cluster.device.host_runs_compute),
          cores_per_node(cluster.device.cores_per_node) {}
};

/// Whether members' coordinates, but for names, decide what lies between them.
bool coordinates_suffice(const topologies::ClusterSpec& cluster) {
    return cluster.overrides.empty() && cluster.inside == topologies::NodeInside{} &&
           topologies::Fabric(cluster).coordinates_tell_distance();
}

/// Hashes of how each group lies: its members' nodes, rails, scalable units and pods, renamed in order of appearance;
/// or the very devices where these do not suffice. Members of a collective appear in the order of their devices, since
/// a ring visits nodes in ascending order, so that equal hashes mean equal rings however ranks are placed.
class PlacementHashes {
  public:
    PlacementHashes(const RankGroups& groups, const std::vector<RankPlace>& places, bool by_device)
        : places_(places), by_device_(by_device) {
        std::int32_t highest = 0;
        for (const RankPlace& place : places) {
            highest = std::max({highest, place.device, place.node, place.rail, place.scalable_unit, place.pod});
        }
        for (std::vector<Name>& names : names_) names.assign(at(highest) + 1, Name{});
        for (std::size_t axis = 0; axis < program::kAxisCount; ++axis) {
            const GroupFamily& family = groups.family(axis);
            hashes_[axis].reserve(at(family.count));
            for (std::int64_t group = 0; group < family.count; ++group) {
                hashes_[axis].push_back(hash_of(family, group));
            }
        }
    }
    [[nodiscard]] const std::vector<std::uint64_t>& of(std::size_t axis) const { return hashes_[axis]; }

  private:
    struct Name {
        std::int64_t owner = -1;
        std::uint32_t name = 0;
    };
    std::uint64_t hash_of(const GroupFamily& family, std::int64_t group) {
        ++stamp_;
        next_ = {};
        const std::span<const std::int32_t> members = family.members(group);
        ordered_.assign(members.begin(), members.end());
        const auto nearer = [this](std::int32_t a, std::int32_t b) {
            return places_[at(a)].device < places_[at(b)].device;
        };
        if (!family.pairs && !std::is_sorted(ordered_.begin(), ordered_.end(), nearer)) {
            std::stable_sort(ordered_.begin(), ordered_.end(), nearer);
        }
        std::uint64_t hash = mix64(static_cast<std::uint64_t>(family.axis));
        for (const std::int32_t rank : ordered_) {
            const RankPlace& place = places_[at(rank)];
            if (by_device_) {
                hash = mix64(hash ^ static_cast<std::uint64_t>(place.device));
                continue;
            }
            const std::uint64_t word = renamed(0, place.device) | renamed(1, place.node) << 20 |
                                       renamed(2, place.rail) << 40 | renamed(3, place.scalable_unit) << 52;
            hash = mix64(hash ^ word ^ mix64(renamed(4, place.pod)));
        }
        return hash;
    }
    std::uint64_t renamed(std::size_t kind, std::int32_t number) {
        Name& name = names_[kind][at(number)];
        if (name.owner != stamp_) name = {stamp_, next_[kind]++};
        return name.name;
    }

    const std::vector<RankPlace>& places_;
    bool by_device_ = false;
    std::array<std::vector<Name>, 5> names_;
    std::array<std::uint32_t, 5> next_{};
    std::int64_t stamp_ = -1;
    std::vector<std::int32_t> ordered_;
    std::array<std::vector<std::uint64_t>, program::kAxisCount> hashes_;
};

class Refinement {
  public:
    Refinement(const RankGroups& groups, const PlacementHashes& placements, const std::vector<SharedFamily>& shared)
        : groups_(groups), placements_(placements), shared_(shared) {}

    /// To colours of the coarsest equitable partition finer than the Program's classes; numbered by their lowest rank.
    void run(const program::Program& program) {
        const std::int64_t world = groups_.world_size();
        DenseIds classes;
        for (std::int64_t rank = 0; rank < world; ++rank) {
            colours_.push_back(classes.id_of(mix64(static_cast<std::uint64_t>(program.class_of(rank)))));
        }
        std::int32_t count = classes.size();
        while (true) {
            hash_groups();
            DenseIds ids;
            for (std::int64_t rank = 0; rank < world; ++rank) next_[at(rank)] = ids.id_of(rank_hash(rank));
            colours_.swap(next_);
            if (ids.size() == count) break;
            count = ids.size();
        }
        hash_groups();
    }
    /// Every rank its own colour.
    void separate() {
        colours_.resize(at(groups_.world_size()));
        for (std::size_t rank = 0; rank < colours_.size(); ++rank) colours_[rank] = static_cast<std::int32_t>(rank);
        hash_groups();
    }
    /// Of the last colours; two groups or resources with equal hashes behave alike.
    [[nodiscard]] std::uint64_t group_hash(std::size_t axis, std::int64_t group) const {
        return group_hashes_[axis][at(group)];
    }
    [[nodiscard]] std::uint64_t resource_hash(std::size_t family, std::int32_t resource) const {
        return resource_hashes_[family][at(resource)];
    }
    [[nodiscard]] const std::vector<std::int32_t>& colours() const { return colours_; }

  private:
    void hash_groups();
    [[nodiscard]] std::uint64_t mixed(std::int64_t rank) const { return mixed_[at(colours_[at(rank)])]; }
    [[nodiscard]] std::uint64_t rank_hash(std::int64_t rank) const;

    const RankGroups& groups_;
    const PlacementHashes& placements_;
    const std::vector<SharedFamily>& shared_;
    std::vector<std::int32_t> colours_;
    std::vector<std::int32_t> next_ = std::vector<std::int32_t>(at(groups_.world_size()));
    std::vector<std::uint64_t> mixed_;  // per colour
    std::array<std::vector<std::uint64_t>, program::kAxisCount> group_hashes_;
    std::vector<std::vector<std::uint64_t>> resource_hashes_;
};

void Refinement::hash_groups() {
    const std::int32_t highest = *std::max_element(colours_.begin(), colours_.end());
    for (std::size_t c = mixed_.size(); c <= at(highest); ++c) mixed_.push_back(mix64(c + 1));
    for (std::size_t axis = 0; axis < program::kAxisCount; ++axis) {
        const GroupFamily& family = groups_.family(axis);
        std::vector<std::uint64_t>& hashes = group_hashes_[axis];
        hashes = placements_.of(axis);
        for (std::int64_t group = 0; group < family.count; ++group) {
            const std::span<const std::int32_t> members = family.members(group);
            std::uint64_t& hash = hashes[at(group)];
            if (family.pairs) {
                hash = mix64(hash + mixed(members[0])) + mixed(members[1]);
            } else {  // a sum, since the order of the members does not matter
                for (const std::int32_t member : members) hash += mixed(member);
            }
        }
    }
    resource_hashes_.resize(shared_.size());
    for (std::size_t f = 0; f < shared_.size(); ++f) {
        resource_hashes_[f].assign(shared_[f].first.size() - 1, mix64(f));
        for (std::size_t rank = 0; rank < colours_.size(); ++rank) {
            resource_hashes_[f][at(shared_[f].of_rank[rank])] += mixed(static_cast<std::int64_t>(rank));
        }
    }
}

std::uint64_t Refinement::rank_hash(std::int64_t rank) const {
    std::uint64_t hash = mixed(rank);
    for (const Seat seat : groups_.seats()) {
        const std::int64_t group = groups_.group(seat, rank);
        hash = mix64(hash ^ (group < 0 ? static_cast<std::uint64_t>(seat)
                                       : group_hashes_[static_cast<std::size_t>(axis_of(seat))][at(group)]));
    }
    for (std::size_t f = 0; f < shared_.size(); ++f) {
        hash = mix64(hash ^ resource_hashes_[f][at(shared_[f].of_rank[at(rank)])]);
    }
    return hash;
}

class QuotientBuilder {
  public:
    QuotientBuilder(const RankGroups& groups, const std::vector<RankPlace>& places, const PlacementHashes& placements,
                    const ResourceLayout& layout, const std::vector<SharedFamily>& shared, const Refinement& refinement)
        : groups_(groups),
          places_(places),
          placements_(placements),
          layout_(layout),
          shared_(shared),
          refinement_(refinement) {}

    Quotient build() {
        collect_ranks();
        collect_groups();
        collect_resources();
        return std::move(result_);
    }

  private:
    void collect_ranks();
    void collect_groups();
    void collect_resources();
    std::int32_t add_group(std::size_t axis, std::int64_t group);
    void attach_own(std::size_t rank, ResourceKind kind);
    void attach_shared(std::size_t rank, ResourceKind kind, std::size_t family, std::int64_t capacity);

    const RankGroups& groups_;
    const std::vector<RankPlace>& places_;
    const PlacementHashes& placements_;
    const ResourceLayout& layout_;
    const std::vector<SharedFamily>& shared_;
    const Refinement& refinement_;
    DenseIds placement_ids_;
    DenseIds resource_ids_;
    std::vector<std::int32_t> resource_of_id_;
    std::vector<std::int64_t> seen_;  // per colour: the last group or resource that listed it
    std::int64_t stamp_ = 0;
    Quotient result_;
};

void QuotientBuilder::collect_ranks() {
    result_.colour_of = refinement_.colours();
    for (std::size_t rank = 0; rank < result_.colour_of.size(); ++rank) {
        const std::size_t colour = at(result_.colour_of[rank]);
        if (colour == result_.ranks.size()) {
            result_.ranks.push_back(static_cast<std::int64_t>(rank));
            result_.multiplicity.push_back(0);
        }
        ++result_.multiplicity[colour];
    }
    seen_.assign(result_.ranks.size(), 0);
}

void QuotientBuilder::collect_groups() {
    DenseIds ids;
    result_.group_at.resize(result_.ranks.size());
    for (std::size_t rank = 0; rank < result_.ranks.size(); ++rank) {
        result_.group_at[rank].fill(-1);
        for (const Seat seat : groups_.seats()) {
            const auto axis = static_cast<std::size_t>(axis_of(seat));
            const std::int64_t group = groups_.group(seat, result_.ranks[rank]);
            if (group < 0) continue;
            const std::int32_t id = ids.id_of(mix64(refinement_.group_hash(axis, group) + axis));
            if (id == static_cast<std::int32_t>(result_.groups.size())) add_group(axis, group);
            result_.group_at[rank][static_cast<std::size_t>(seat)] = id;
        }
    }
}

std::int32_t QuotientBuilder::add_group(std::size_t axis, std::int64_t group) {
    const GroupFamily& family = groups_.family(axis);
    Quotient::Group added;
    added.axis = family.axis;
    added.first_member = static_cast<std::int32_t>(result_.members.size());
    added.placement = placement_ids_.id_of(placements_.of(axis)[at(group)]);
    ++stamp_;
    std::vector<std::int64_t> devices;
    bool receiver = false;
    for (const std::int32_t rank : family.members(group)) {
        devices.push_back(places_[at(rank)].device);
        const std::int32_t colour = result_.colour_of[at(rank)];
        const Seat seat = seat_on(family.axis, receiver);
        receiver = family.pairs;
        if (seen_[at(colour)] == stamp_) continue;
        seen_[at(colour)] = stamp_;
        result_.members.push_back({colour, seat});
    }
    if (!family.pairs) std::sort(devices.begin(), devices.end());
    added.member_count = static_cast<std::int32_t>(result_.members.size()) - added.first_member;
    ORRERY_CHECK(!family.pairs || added.member_count == 2, "both ends of a pair are in the same class");
    if (at(added.placement) == result_.placements.size()) {
        result_.placements.push_back({family.axis, std::move(devices)});
    }
    result_.groups.push_back(added);
    return static_cast<std::int32_t>(result_.groups.size()) - 1;
}

void QuotientBuilder::attach_own(std::size_t rank, ResourceKind kind) {
    result_.attachments[rank][static_cast<std::size_t>(kind)] = {static_cast<std::int32_t>(result_.resources.size()),
                                                                 1};
    result_.resources.push_back({kUnit, static_cast<std::int32_t>(result_.users.size()), 1});
    result_.users.push_back(static_cast<std::int32_t>(rank));
}

void QuotientBuilder::attach_shared(std::size_t rank, ResourceKind kind, std::size_t family, std::int64_t capacity) {
    const SharedFamily& shared = shared_[family];
    const std::int32_t resource = shared.of_rank[at(result_.ranks[rank])];
    const std::uint64_t hash = refinement_.resource_hash(family, resource);
    const std::int32_t id = resource_ids_.id_of(mix64(hash + static_cast<std::uint64_t>(kind)));
    const std::span<const std::int32_t> ranks(shared.ranks.data() + shared.first[at(resource)],
                                              shared.ranks.data() + shared.first[at(resource) + 1]);
    if (at(id) == resource_of_id_.size()) {
        resource_of_id_.push_back(static_cast<std::int32_t>(result_.resources.size()));
        Quotient::Resource added{capacity, static_cast<std::int32_t>(result_.users.size()), 0};
        ++stamp_;
        for (const std::int32_t user : ranks) {
            const std::int32_t colour = result_.colour_of[at(user)];
            if (seen_[at(colour)] == stamp_) continue;
            seen_[at(colour)] = stamp_;
            result_.users.push_back(colour);
            ++added.user_count;
        }
        result_.resources.push_back(added);
    }
    const auto weight = std::count_if(ranks.begin(), ranks.end(), [&](std::int32_t user) {
        return result_.colour_of[at(user)] == static_cast<std::int32_t>(rank);
    });
    result_.attachments[rank][static_cast<std::size_t>(kind)] = {resource_of_id_[at(id)], weight};
}

void QuotientBuilder::collect_resources() {
    result_.attachments.resize(result_.ranks.size());
    for (std::size_t rank = 0; rank < result_.ranks.size(); ++rank) {
        std::size_t family = 0;
        if (layout_.cores) attach_shared(rank, ResourceKind::cores, family++, layout_.cores_per_node * kUnit);
        if (layout_.copies) {
            attach_own(rank, ResourceKind::copy_out);
            attach_own(rank, ResourceKind::copy_in);
        }
        if (layout_.ports) {
            attach_own(rank, ResourceKind::port_out);
            attach_own(rank, ResourceKind::port_in);
        }
        for (const ResourceKind kind : {ResourceKind::nic_out, ResourceKind::nic_in}) {
            if (layout_.shared_nics) {
                attach_shared(rank, kind, family, kUnit);
            } else if (layout_.nics) {
                attach_own(rank, kind);
            }
        }
    }
}

}  // namespace

std::vector<RankPlace> place_ranks(const program::Parallelism& parallelism, const topologies::ClusterSpec& cluster) {
    const std::int64_t devices = cluster.device_count();
    const std::int64_t world_size = parallelism.world_size();
    const std::vector<std::int64_t>& placement = parallelism.placement;
    ORRERY_CHECK(devices > 0 && (world_size <= devices || cluster.ranks_may_share_devices()),
                 std::to_string(world_size) + " ranks do not fit on the " + std::to_string(devices) + " devices of " +
                     cluster.name);
    ORRERY_CHECK(placement.empty() || static_cast<std::int64_t>(placement.size()) == world_size,
                 "a placement names the device of each rank");
    const topologies::Fabric fabric(cluster);
    std::vector<std::uint8_t> taken(at(devices));
    std::vector<RankPlace> places(at(world_size));
    for (std::int64_t rank = 0; rank < world_size; ++rank) {
        const std::int64_t device = placement.empty() ? rank % devices : placement[at(rank)];
        ORRERY_CHECK(device >= 0 && device < devices, "rank " + std::to_string(rank) + " is placed on device " +
                                                          std::to_string(device) + " of " + std::to_string(devices));
        ORRERY_CHECK(taken[at(device)] == 0 || cluster.ranks_may_share_devices(),
                     "two ranks are placed on device " + std::to_string(device));
        taken[at(device)] = 1;
        const std::int64_t node = device / cluster.devices_per_node;
        const std::int64_t local = device % cluster.devices_per_node;
        const std::int64_t rail = local * cluster.nics_per_node / cluster.devices_per_node;
        const bool alone = cluster.nodes == 1;
        const std::int64_t unit = alone ? 0 : fabric.unit_of(node), pod = alone ? 0 : fabric.pod_of(node);
        places[at(rank)] = {static_cast<std::int32_t>(device),
                            static_cast<std::int32_t>(node),
                            static_cast<std::int32_t>(unit),
                            static_cast<std::int32_t>(rail),
                            static_cast<std::int32_t>(node * cluster.nics_per_node + rail),
                            static_cast<std::int32_t>(pod)};
    }
    return places;
}

Quotient make_quotient(const program::Program& program, const topologies::ClusterSpec& cluster, bool full) {
    const RankGroups groups(program);
    const std::vector<RankPlace> places = place_ranks(program.plan->parallelism, cluster);
    const PlacementHashes placements(groups, places, !coordinates_suffice(cluster));
    const ResourceLayout layout(cluster);
    std::vector<SharedFamily> shared;
    if (layout.cores) shared.push_back(shared_family(places, &RankPlace::node));
    if (layout.shared_nics) shared.push_back(shared_family(places, &RankPlace::nic));

    Refinement refinement(groups, placements, shared);
    if (full) {
        refinement.separate();
    } else {
        refinement.run(program);
    }
    return QuotientBuilder(groups, places, placements, layout, shared, refinement).build();
}

}  // namespace orrery::sim
