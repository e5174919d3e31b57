#include "sim/engine/symmetry.h"

#include <algorithm>
#include <bit>
#include <string>

#include "core/error.h"
#include "core/random.h"
#include "sim/engine/rank_groups.h"
#include "sim/sharing/max_min.h"

namespace orrery::sim {

namespace {

using program::GroupAxis;

using Colour = Index<struct ColourTag>;
using GlobalRank = Index<struct GlobalRankTag>;          // over all jobs: the first job's ranks, then the second's ...
using SharedResource = Index<struct SharedResourceTag>;  // in a SharedFamily
using FamilyIndex = Index<struct FamilyTag>;             // in SharedFamilies

/// The resources of one kind, each of which several ranks may share.
struct SharedFamily {
    IndexedVector<GlobalRank, SharedResource> of_rank;
    Buckets<SharedResource, GlobalRank> ranks;
};
using SharedFamilies = IndexedVector<FamilyIndex, SharedFamily>;

SharedFamily shared_family(const PlacedJobs& jobs, std::int32_t RankPlace::*where) {
    SharedFamily family;
    std::vector<GlobalRank> ranks;
    SharedResource end = 0;
    for (const PlacedJob& job : jobs) {
        for (const RankPlace& place : job.places()) {
            const auto resource = SharedResource::of(place.*where);
            ranks.push_back(family.of_rank.add(resource));
            end = std::max(end, resource + 1);
        }
    }
    family.ranks = {end.position(), ranks, [&](GlobalRank rank) { return family.of_rank[rank]; }};
    return family;
}

/// The kinds of resources that the cluster has, and which of them several ranks share.
struct ResourceLayout {
    struct Row {
        ResourceKind kind{};
        FamilyIndex family = -1;  // -1: each rank has its own
        std::int64_t capacity = kUnit;
    };
    std::vector<Row> rows;
    SharedFamilies families;

    ResourceLayout(const PlacedJobs& jobs, const topologies::ClusterSpec& cluster) {
        const topologies::DeviceProfile& device = cluster.device;
        const auto add_both = [this](ResourceKind one, ResourceKind other, FamilyIndex family = -1) {
            rows.insert(rows.end(), {{one, family, kUnit}, {other, family, kUnit}});
        };
        if (device.host_runs_compute && device.cores_per_node > 0) {
            const FamilyIndex nodes = families.add(shared_family(jobs, &RankPlace::node));
            rows.push_back({ResourceKind::cores, nodes, device.cores_per_node * kUnit});
        }
        if (!device.host_runs_compute) add_both(ResourceKind::copy_out, ResourceKind::copy_in);
        if (device.compute_units > 0 && device.collective_kernels) {
            add_both(ResourceKind::compute_units, ResourceKind::memory);
        }
        if (cluster.node_switches > 0) add_both(ResourceKind::port_out, ResourceKind::port_in);
        if (cluster.nics_per_node == 0 || cluster.nodes < 2) return;
        const bool shares_nics = cluster.nics_per_node < cluster.devices_per_node ||
                                 cluster.ranks_may_share_devices() || cluster.inside != topologies::NodeInside{};
        add_both(ResourceKind::nic_out, ResourceKind::nic_in,
                 shares_nics ? families.add(shared_family(jobs, &RankPlace::nic)) : FamilyIndex(-1));
    }
};

class Refinement {
  public:
    Refinement(const PlacedJobs& jobs, const FabricUse& fabric, const SharedFamilies& shared)
        : jobs_(jobs),
          fabric_(fabric),
          shared_(shared),
          group_hashes_(jobs.size()),
          resource_hashes_(shared.size()),
          link_hashes_(fabric.link_count()) {
        std::size_t ranks = 0;
        for (const PlacedJob& job : jobs) {
            first_rank_.push_back(GlobalRank::of(ranks));
            ranks += job.places().size();
        }
        colours_.resize(ranks);
        next_.resize(ranks);
    }

    /// Computes the coarsest equitable partition that separates jobs, the classes of their Programs, and devices of
    /// different speeds. Colours are numbered by their lowest rank, so the colours of a job are consecutive.
    void run() {
        DenseIds<Colour> classes;
        for_each_rank([&](JobIndex job, std::int64_t rank) {
            const auto own = static_cast<std::uint64_t>(jobs_[job].program().class_of(rank).value());
            const double speed = jobs_[job].places()[static_cast<std::size_t>(rank)].speed;
            const std::uint64_t slow = speed == 1 ? 0 : mix64(std::bit_cast<std::uint64_t>(speed));
            colours_[number(job, rank)] = classes.id_of(mix64(own ^ std::uint64_t{job.position()} << 32 ^ slow));
        });
        Colour end = classes.next();
        while (true) {
            hash_groups();
            DenseIds<Colour> ids;
            for_each_rank(
                [&](JobIndex job, std::int64_t rank) { next_[number(job, rank)] = ids.id_of(rank_hash(job, rank)); });
            colours_.swap(next_);
            if (ids.next() == end) break;
            end = ids.next();
        }
        hash_groups();
    }
    /// Gives every rank its own colour.
    void separate() {
        for (const GlobalRank rank : colours_.indices()) colours_[rank] = Colour::of(rank.value());
        hash_groups();
    }
    /// Hashes by the final colours. Groups of one job, or resources, with equal hashes behave alike.
    [[nodiscard]] std::uint64_t group_hash(JobIndex job, GroupAxis axis, GroupIndex group) const {
        return group_hashes_[job][axis][group];
    }
    [[nodiscard]] std::uint64_t resource_hash(FamilyIndex family, SharedResource resource) const {
        return resource_hashes_[family][resource];
    }
    [[nodiscard]] std::uint64_t link_hash(SharedLink link) const { return link_hashes_[link]; }
    [[nodiscard]] Colour colour(GlobalRank rank) const { return colours_[rank]; }
    [[nodiscard]] GlobalRank number(JobIndex job, std::int64_t rank) const {
        return first_rank_[job] + static_cast<std::int32_t>(rank);
    }

  private:
    template <typename Visit>
    void for_each_rank(const Visit& visit) const {
        for (const JobIndex job : jobs_.indices()) {
            for (std::int64_t rank = 0; rank < jobs_[job].groups().world_size(); ++rank) visit(job, rank);
        }
    }
    void hash_groups();
    void hash_groups_of(JobIndex job, GroupAxis axis);
    void hash_links();
    [[nodiscard]] std::uint64_t mixed(GlobalRank rank) const { return mixed_[colours_[rank]]; }
    [[nodiscard]] std::uint64_t rank_hash(JobIndex job, std::int64_t rank) const;

    const PlacedJobs& jobs_;
    const FabricUse& fabric_;
    const SharedFamilies& shared_;
    IndexedVector<JobIndex, GlobalRank> first_rank_;
    IndexedVector<GlobalRank, Colour> colours_;
    IndexedVector<GlobalRank, Colour> next_;
    IndexedVector<Colour, std::uint64_t> mixed_;
    IndexedVector<JobIndex, program::PerAxis<IndexedVector<GroupIndex, std::uint64_t>>> group_hashes_;
    IndexedVector<FamilyIndex, IndexedVector<SharedResource, std::uint64_t>> resource_hashes_;
    IndexedVector<SharedLink, std::uint64_t> link_hashes_;
};

/// Equal for equal loads on a link.
std::uint64_t load_hash(const FabricWay& way, double seconds_per_byte) {
    const auto number = static_cast<std::uint64_t>(way.state.value()) << 16 |
                        static_cast<std::uint64_t>(way.algorithm) << 8 | static_cast<std::uint64_t>(way.kind);
    return mix64(std::bit_cast<std::uint64_t>(seconds_per_byte) ^ mix64(number));
}

void Refinement::hash_groups_of(JobIndex job, GroupAxis axis) {
    const GroupFamily& family = jobs_[job].groups().family(axis);
    auto& hashes = group_hashes_[job][axis];
    hashes.resize(family.end.position());
    for (const GroupIndex group : family.groups()) {
        const std::span<const std::int32_t> members = family.members(group);
        const auto placement = static_cast<std::uint64_t>(jobs_[job].placement_of(axis, group).value());
        std::uint64_t& hash = hashes[group];
        hash = mix64(placement << 8 | static_cast<std::uint64_t>(axis));
        if (family.pairs) {
            hash = mix64(hash + mixed(number(job, members[0]))) + mixed(number(job, members[1]));
        } else {  // a sum, since the order of the members does not matter
            for (const std::int32_t member : members) hash += mixed(number(job, member));
        }
    }
}

void Refinement::hash_groups() {
    const Colour highest = *std::max_element(colours_.begin(), colours_.end());
    while (mixed_.next_index() <= highest) mixed_.push_back(mix64(mixed_.size() + 1));
    for (const JobIndex job : jobs_.indices()) {
        for (const GroupAxis axis : program::kAxes) hash_groups_of(job, axis);
    }
    hash_links();
    for (const FamilyIndex f : shared_.indices()) {
        resource_hashes_[f].assign(shared_[f].ranks.size(), mix64(f.position()));
        for (const GlobalRank rank : colours_.indices()) resource_hashes_[f][shared_[f].of_rank[rank]] += mixed(rank);
    }
}

/// Hashes each link by the groups that load it, then adds to the hash of each group the links that it loads.
void Refinement::hash_links() {
    for (const SharedLink link : fabric_.links()) {
        std::uint64_t& hash = link_hashes_[link];
        hash = 0;
        for (const FabricUse::Load& user : fabric_.loads(link)) {
            hash += mix64(group_hash(user.job, user.axis, user.group) ^ load_hash(user.way, user.seconds_per_byte));
        }
    }
    if (link_hashes_.empty()) return;
    for (const JobIndex job : jobs_.indices()) {
        for (const GroupAxis axis : program::kAxes) {
            auto& hashes = group_hashes_[job][axis];
            for (const GroupIndex group : hashes.indices()) {
                std::uint64_t links = 0;
                for (const FabricUse::Load& load : fabric_.loads(job, axis, group)) {
                    links += mix64(link_hashes_[load.link] ^ load_hash(load.way, load.seconds_per_byte));
                }
                hashes[group] = mix64(hashes[group] ^ links);
            }
        }
    }
}

std::uint64_t Refinement::rank_hash(JobIndex job, std::int64_t rank) const {
    const RankGroups& groups = jobs_[job].groups();
    std::uint64_t hash = mixed(number(job, rank));
    for (const Endpoint endpoint : groups.endpoints()) {
        const GroupIndex group = groups.group(endpoint, rank);
        hash = mix64(hash ^
                     (group < 0 ? static_cast<std::uint64_t>(endpoint) : group_hash(job, axis_of(endpoint), group)));
    }
    for (const FamilyIndex f : shared_.indices()) {
        hash = mix64(hash ^ resource_hashes_[f][shared_[f].of_rank[number(job, rank)]]);
    }
    return hash;
}

/// Reduces jobs one after the other, and collects the resources of all, one for each class of resources that behave
/// alike.
class QuotientBuilder {
  public:
    QuotientBuilder(const PlacedJobs& jobs, const FabricUse& fabric, const ResourceLayout& layout,
                    const Refinement& refinement)
        : jobs_(jobs), fabric_(fabric), layout_(layout), refinement_(refinement) {}

    Quotient build(JobIndex job) {
        job_ = job;
        result_ = {};
        collect_ranks();
        collect_groups();
        collect_resources();
        return std::move(result_);
    }
    [[nodiscard]] std::vector<std::int64_t> take_capacities() { return std::move(capacities_); }

  private:
    using LinkClassIndex = Index<struct LinkClassTag>;
    using SharedClassIndex = Index<struct SharedClassTag>;
    struct LinkClass {
        std::int32_t resource = -1;
        SharedLink link = -1;  // representative of the class
    };
    [[nodiscard]] const LinkClass& class_of(SharedLink link) {
        const LinkClassIndex id = link_ids_.id_of(refinement_.link_hash(link));
        if (id == link_classes_.next_index()) link_classes_.push_back({add_resource(kUnit), link});
        return link_classes_[id];
    }
    [[nodiscard]] Quotient::Attachment attachment(GlobalRank rank, const ResourceLayout::Row& row) {
        if (row.family < 0) return {add_resource(row.capacity), 1};
        const SharedFamily& family = layout_.families[row.family];
        const SharedResource resource = family.of_rank[rank];
        const std::uint64_t hash = refinement_.resource_hash(row.family, resource);
        const SharedClassIndex id = ids_.id_of(mix64(hash + static_cast<std::uint64_t>(row.kind)));
        if (id == resource_of_id_.next_index()) resource_of_id_.push_back(add_resource(row.capacity));
        const std::span<const GlobalRank> users = family.ranks[resource];
        const Colour own = refinement_.colour(rank);
        return {resource_of_id_[id], std::count_if(users.begin(), users.end(),
                                                   [&](GlobalRank user) { return refinement_.colour(user) == own; })};
    }
    [[nodiscard]] std::int32_t add_resource(std::int64_t capacity) {
        capacities_.push_back(capacity);
        return static_cast<std::int32_t>(capacities_.size()) - 1;
    }
    void collect_ranks();
    void collect_groups();
    void collect_resources();
    void add_group(GroupAxis axis, GroupIndex group);
    void add_links(GroupAxis axis, GroupIndex group);
    void add_link(GroupAxis axis, GroupIndex group, const LinkClass& link);

    const PlacedJobs& jobs_;
    const FabricUse& fabric_;
    const ResourceLayout& layout_;
    const Refinement& refinement_;
    DenseIds<SharedClassIndex> ids_;
    DenseIds<LinkClassIndex> link_ids_;
    IndexedVector<SharedClassIndex, std::int32_t> resource_of_id_;
    IndexedVector<LinkClassIndex, LinkClass> link_classes_;
    std::vector<std::int64_t> capacities_;
    // For the job being reduced.
    JobIndex job_ = 0;
    IndexedVector<SimulatedRank, std::int64_t> seen_;  // stamp_ of the last group that listed the rank
    std::int64_t stamp_ = 0;
    Quotient result_;
};

void QuotientBuilder::collect_ranks() {
    const Colour first = refinement_.colour(refinement_.number(job_, 0));  // lower colours belong to earlier jobs
    const std::int64_t world_size = jobs_[job_].groups().world_size();
    result_.colour_of.reserve(static_cast<std::size_t>(world_size));
    for (std::int64_t rank = 0; rank < world_size; ++rank) {
        const auto colour = SimulatedRank::of(refinement_.colour(refinement_.number(job_, rank)) - first);
        result_.colour_of.push_back(colour);
        if (colour == result_.ranks.next_index()) {
            result_.ranks.push_back(rank);
            result_.multiplicity.push_back(0);
            result_.slow_down.push_back(1 / jobs_[job_].places()[static_cast<std::size_t>(rank)].speed);
        }
        ++result_.multiplicity[colour];
    }
    seen_.assign(result_.ranks.size(), 0);
}

void QuotientBuilder::collect_groups() {
    DenseIds<SimulatedGroup> ids;
    result_.group_at.resize(result_.ranks.size());
    for (const SimulatedRank rank : result_.ranks.indices()) {
        result_.group_at[rank].fill(-1);
        for (const Endpoint endpoint : jobs_[job_].groups().endpoints()) {
            const GroupAxis axis = axis_of(endpoint);
            const GroupIndex group = jobs_[job_].groups().group(endpoint, result_.ranks[rank]);
            if (group < 0) continue;
            const std::uint64_t hash = refinement_.group_hash(job_, axis, group);
            const SimulatedGroup id = ids.id_of(mix64(hash + static_cast<std::uint64_t>(axis)));
            if (id == result_.groups.next_index()) add_group(axis, group);
            result_.group_at[rank][endpoint] = id;
        }
    }
}

void QuotientBuilder::add_group(GroupAxis axis, GroupIndex group) {
    const GroupFamily& family = jobs_[job_].groups().family(axis);
    Quotient::Group added;
    added.axis = axis;
    added.first_member = static_cast<std::int32_t>(result_.members.size());
    added.placement = jobs_[job_].placement_of(axis, group);
    ++stamp_;
    bool receiver = false;
    for (const std::int32_t rank : family.members(group)) {
        const SimulatedRank colour = result_.colour_of[static_cast<std::size_t>(rank)];
        const Endpoint endpoint = endpoint_on(axis, receiver);
        receiver = family.pairs;
        if (seen_[colour] == stamp_) continue;
        seen_[colour] = stamp_;
        result_.members.push_back({colour, endpoint});
    }
    added.member_count = static_cast<std::int32_t>(result_.members.size()) - added.first_member;
    ORRERY_CHECK(!family.pairs || added.member_count == 2,
                 "the sender and the receiver of a pair have the same colour");
    added.first_link = static_cast<std::int32_t>(result_.links.size());
    add_links(axis, group);
    added.link_count = static_cast<std::int32_t>(result_.links.size()) - added.first_link;
    result_.groups.push_back(added);
}

/// Adds one link of each class that the group loads.
void QuotientBuilder::add_links(GroupAxis axis, GroupIndex group) {
    std::vector<std::int32_t> listed;  // resources
    for (const FabricUse::Load& load : fabric_.loads(job_, axis, group)) {
        const LinkClass& link = class_of(load.link);
        if (std::find(listed.begin(), listed.end(), link.resource) != listed.end()) continue;
        listed.push_back(link.resource);
        add_link(axis, group, link);
    }
}

/// Adds the loads of all groups of this kind on the link that represents the class.
void QuotientBuilder::add_link(GroupAxis axis, GroupIndex group, const LinkClass& link) {
    const std::uint64_t wanted = refinement_.group_hash(job_, axis, group);
    const std::size_t first = result_.links.size();
    for (const FabricUse::Load& user : fabric_.loads(link.link)) {
        if (user.job != job_ || user.axis != axis) continue;
        if (refinement_.group_hash(job_, axis, user.group) != wanted) continue;
        const auto known =
            std::find_if(result_.links.begin() + static_cast<std::ptrdiff_t>(first), result_.links.end(),
                         [&](const Quotient::LinkDraw& draw) {
                             return draw.way == user.way && draw.seconds_per_byte == user.seconds_per_byte;
                         });
        if (known == result_.links.end()) {
            result_.links.push_back({link.resource, user.way, user.seconds_per_byte, 1});
        } else {
            ++known->weight;
        }
    }
}

void QuotientBuilder::collect_resources() {
    result_.attachments.resize(result_.ranks.size());
    for (const SimulatedRank rank : result_.ranks.indices()) {
        PerResourceKind<Quotient::Attachment>& attachments = result_.attachments[rank];
        const GlobalRank number = refinement_.number(job_, result_.ranks[rank]);
        for (const ResourceLayout::Row& row : layout_.rows) {
            attachments[row.kind] = attachment(number, row);
        }
    }
}

}  // namespace

Quotients make_quotients(const PlacedJobs& jobs, const FabricUse& fabric, const topologies::ClusterSpec& cluster,
                         bool full) {
    const ResourceLayout layout(jobs, cluster);
    Refinement refinement(jobs, fabric, layout.families);
    if (full) {
        refinement.separate();
    } else {
        refinement.run();
    }
    Quotients result;
    QuotientBuilder builder(jobs, fabric, layout, refinement);
    for (const JobIndex job : jobs.indices()) result.jobs.push_back(builder.build(job));
    result.capacity_units = builder.take_capacities();
    return result;
}

}  // namespace orrery::sim
