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

std::size_t at(std::int64_t index) {
    return static_cast<std::size_t>(index);
}

/// Resources of one kind that several ranks share. Ranks are numbered over all jobs, one behind the other.
struct SharedFamily {
    std::vector<std::int32_t> of_rank;
    std::vector<std::int32_t> first;  // ranks[first[i], first[i + 1]) use resource i
    std::vector<std::int32_t> ranks;
};

SharedFamily shared_family(std::span<const PlacedJob> jobs, std::int32_t RankPlace::*where) {
    SharedFamily family;
    for (const PlacedJob& job : jobs) {
        for (const RankPlace& place : job.places()) {
            family.of_rank.push_back(place.*where);
            if (at(place.*where) + 2 > family.first.size()) family.first.resize(at(place.*where) + 2);
            ++family.first[at(place.*where) + 1];
        }
    }
    for (std::size_t i = 1; i < family.first.size(); ++i) family.first[i] += family.first[i - 1];
    std::vector<std::int32_t> next = family.first;
    family.ranks.resize(family.of_rank.size());
    for (std::size_t rank = 0; rank < family.ranks.size(); ++rank) {
        family.ranks[at(next[at(family.of_rank[rank])]++)] = static_cast<std::int32_t>(rank);
    }
    return family;
}

/// What the cluster's nodes offer to running work, and what of it several ranks draw on.
struct ResourceLayout {
    bool cores = false, ports = false, nics = false, shared_nics = false, copies = false, devices = false;
    std::int64_t cores_per_node = 0;
    explicit ResourceLayout(const topologies::ClusterSpec& cluster)
        : cores(cluster.device.host_runs_compute && cluster.device.cores_per_node > 0),
          ports(cluster.node_switches > 0),
          nics(cluster.nics_per_node > 0 && cluster.nodes > 1),
          shared_nics(nics && (cluster.nics_per_node < cluster.devices_per_node || cluster.ranks_may_share_devices() ||
                               cluster.inside != topologies::NodeInside{})),
          copies(!cluster.device.host_runs_compute),
          devices(cluster.device.compute_units > 0 && cluster.device.collective_kernels.has_value()),
          cores_per_node(cluster.device.cores_per_node) {}
};

class Refinement {
  public:
    Refinement(std::span<const PlacedJob> jobs, const FabricUse& fabric, const std::vector<SharedFamily>& shared)
        : jobs_(jobs),
          fabric_(fabric),
          shared_(shared),
          group_hashes_(jobs.size()),
          link_hashes_(at(fabric.link_count())) {
        std::size_t ranks = 0;
        for (const PlacedJob& job : jobs) {
            first_rank_.push_back(ranks);
            ranks += job.places().size();
        }
        colours_.resize(ranks);
        next_.resize(ranks);
    }

    /// To colours of the coarsest equitable partition finer than jobs and their Programs' classes; numbered by their
    /// lowest rank, so that those of a job are neighbours.
    void run() {
        DenseIds classes;
        for_each_rank([&](std::size_t j, std::int64_t rank) {
            const std::uint64_t own = static_cast<std::uint64_t>(jobs_[j].program().class_of(rank));
            colours_[number(j, rank)] = classes.id_of(mix64(own ^ static_cast<std::uint64_t>(j) << 32));
        });
        std::int32_t count = classes.size();
        while (true) {
            hash_groups();
            DenseIds ids;
            for_each_rank(
                [&](std::size_t j, std::int64_t rank) { next_[number(j, rank)] = ids.id_of(rank_hash(j, rank)); });
            colours_.swap(next_);
            if (ids.size() == count) break;
            count = ids.size();
        }
        hash_groups();
    }
    /// Every rank its own colour.
    void separate() {
        for (std::size_t rank = 0; rank < colours_.size(); ++rank) colours_[rank] = static_cast<std::int32_t>(rank);
        hash_groups();
    }
    /// Of the last colours; two groups of a job or resources with equal hashes behave alike.
    [[nodiscard]] std::uint64_t group_hash(std::size_t job, std::size_t axis, std::int64_t group) const {
        return group_hashes_[job][axis][at(group)];
    }
    [[nodiscard]] std::uint64_t resource_hash(std::size_t family, std::int32_t resource) const {
        return resource_hashes_[family][at(resource)];
    }
    [[nodiscard]] std::uint64_t link_hash(std::int32_t link) const { return link_hashes_[at(link)]; }
    /// By rank over all jobs.
    [[nodiscard]] const std::vector<std::int32_t>& colours() const { return colours_; }
    [[nodiscard]] std::size_t first_rank(std::size_t job) const { return first_rank_[job]; }

  private:
    template <typename Visit>
    void for_each_rank(const Visit& visit) const {
        for (std::size_t j = 0; j < jobs_.size(); ++j) {
            for (std::int64_t rank = 0; rank < jobs_[j].groups().world_size(); ++rank) visit(j, rank);
        }
    }
    [[nodiscard]] std::size_t number(std::size_t job, std::int64_t rank) const { return first_rank_[job] + at(rank); }
    void hash_groups();
    void hash_groups_of(std::size_t job, std::size_t axis);
    void hash_links();
    [[nodiscard]] std::uint64_t mixed(std::size_t number) const { return mixed_[at(colours_[number])]; }
    [[nodiscard]] std::uint64_t rank_hash(std::size_t job, std::int64_t rank) const;

    std::span<const PlacedJob> jobs_;
    const FabricUse& fabric_;
    const std::vector<SharedFamily>& shared_;
    std::vector<std::size_t> first_rank_;  // of each job, over all jobs
    std::vector<std::int32_t> colours_;
    std::vector<std::int32_t> next_;
    std::vector<std::uint64_t> mixed_;  // per colour
    std::vector<program::PerAxis<std::vector<std::uint64_t>>> group_hashes_;
    std::vector<std::vector<std::uint64_t>> resource_hashes_;
    std::vector<std::uint64_t> link_hashes_;
};

/// What tells one load of a link from another.
std::uint64_t load_hash(const FabricWay& way, double seconds_per_byte) {
    const auto number = static_cast<std::uint64_t>(way.state) << 16 | static_cast<std::uint64_t>(way.algorithm) << 8 |
                        static_cast<std::uint64_t>(way.kind);
    return mix64(std::bit_cast<std::uint64_t>(seconds_per_byte) ^ mix64(number));
}

void Refinement::hash_groups_of(std::size_t job, std::size_t axis) {
    const GroupFamily& family = jobs_[job].groups().family(axis);
    std::vector<std::uint64_t>& hashes = group_hashes_[job][axis];
    hashes.resize(at(family.count));
    for (std::int64_t group = 0; group < family.count; ++group) {
        const std::span<const std::int32_t> members = family.members(group);
        std::uint64_t& hash = hashes[at(group)];
        hash = mix64(static_cast<std::uint64_t>(jobs_[job].placement_of(axis, group)) << 8 | axis);
        if (family.pairs) {
            hash = mix64(hash + mixed(number(job, members[0]))) + mixed(number(job, members[1]));
        } else {  // a sum, since the order of the members does not matter
            for (const std::int32_t member : members) hash += mixed(number(job, member));
        }
    }
}

void Refinement::hash_groups() {
    const std::int32_t highest = *std::max_element(colours_.begin(), colours_.end());
    for (std::size_t c = mixed_.size(); c <= at(highest); ++c) mixed_.push_back(mix64(c + 1));
    for (std::size_t job = 0; job < jobs_.size(); ++job) {
        for (std::size_t axis = 0; axis < program::kAxisCount; ++axis) hash_groups_of(job, axis);
    }
    hash_links();
    resource_hashes_.resize(shared_.size());
    for (std::size_t f = 0; f < shared_.size(); ++f) {
        resource_hashes_[f].assign(shared_[f].first.size() - 1, mix64(f));
        for (std::size_t rank = 0; rank < colours_.size(); ++rank) {
            resource_hashes_[f][at(shared_[f].of_rank[rank])] += mixed(rank);
        }
    }
}

/// Of the groups on them; and then those of the groups hold the links that they load, too.
void Refinement::hash_links() {
    for (std::int32_t link = 0; link < fabric_.link_count(); ++link) {
        std::uint64_t& hash = link_hashes_[at(link)];
        hash = 0;
        for (const FabricUse::User& user : fabric_.users(link)) {
            const std::uint64_t group = group_hashes_[at(user.job)][at(user.axis)][at(user.group)];
            hash += mix64(group ^ load_hash(user.way, user.seconds_per_byte));
        }
    }
    for (std::size_t job = 0; job < jobs_.size() && fabric_.link_count() > 0; ++job) {
        for (std::size_t axis = 0; axis < program::kAxisCount; ++axis) {
            std::vector<std::uint64_t>& hashes = group_hashes_[job][axis];
            for (std::int64_t group = 0; group < std::ssize(hashes); ++group) {
                std::uint64_t links = 0;
                for (const FabricUse::Load& load : fabric_.loads(job, axis, group)) {
                    links += mix64(link_hashes_[at(load.link)] ^ load_hash(load.way, load.seconds_per_byte));
                }
                hashes[at(group)] = mix64(hashes[at(group)] ^ links);
            }
        }
    }
}

std::uint64_t Refinement::rank_hash(std::size_t job, std::int64_t rank) const {
    const RankGroups& groups = jobs_[job].groups();
    std::uint64_t hash = mixed(number(job, rank));
    for (const Seat seat : groups.seats()) {
        const std::int64_t group = groups.group(seat, rank);
        hash = mix64(hash ^ (group < 0 ? static_cast<std::uint64_t>(seat)
                                       : group_hash(job, static_cast<std::size_t>(axis_of(seat)), group)));
    }
    for (std::size_t f = 0; f < shared_.size(); ++f) {
        hash = mix64(hash ^ resource_hashes_[f][at(shared_[f].of_rank[number(job, rank)])]);
    }
    return hash;
}

/// The resources of all jobs, one of each that differs.
class ResourceBuilder {
  public:
    ResourceBuilder(const std::vector<SharedFamily>& shared, const Refinement& refinement)
        : shared_(shared), refinement_(refinement) {}

    struct LinkClass {
        std::int32_t resource = -1;
        std::int32_t link = -1;  // that stands for all
    };
    [[nodiscard]] const LinkClass& class_of(std::int32_t link) {
        const std::int32_t id = link_ids_.id_of(refinement_.link_hash(link));
        if (at(id) == link_classes_.size()) {
            link_classes_.push_back({static_cast<std::int32_t>(capacities_.size()), link});
            capacities_.push_back(kUnit);
        }
        return link_classes_[at(id)];
    }

    /// One that the rank has to itself.
    [[nodiscard]] Quotient::Attachment own() {
        capacities_.push_back(kUnit);
        return {static_cast<std::int32_t>(capacities_.size()) - 1, 1};
    }
    /// The rank is numbered over all jobs.
    [[nodiscard]] Quotient::Attachment shared(std::size_t rank, ResourceKind kind, std::size_t family,
                                              std::int64_t capacity) {
        const SharedFamily& users = shared_[family];
        const std::int32_t resource = users.of_rank[rank];
        const std::uint64_t hash = refinement_.resource_hash(family, resource);
        const std::int32_t id = ids_.id_of(mix64(hash + static_cast<std::uint64_t>(kind)));
        if (at(id) == resource_of_id_.size()) {
            resource_of_id_.push_back(static_cast<std::int32_t>(capacities_.size()));
            capacities_.push_back(capacity);
        }
        const auto first = users.ranks.begin() + users.first[at(resource)];
        const auto last = users.ranks.begin() + users.first[at(resource) + 1];
        const std::vector<std::int32_t>& colours = refinement_.colours();
        const auto weight =
            std::count_if(first, last, [&](std::int32_t user) { return colours[at(user)] == colours[rank]; });
        return {resource_of_id_[at(id)], weight};
    }
    [[nodiscard]] std::vector<std::int64_t> take_capacities() { return std::move(capacities_); }

  private:
    const std::vector<SharedFamily>& shared_;
    const Refinement& refinement_;
    DenseIds ids_, link_ids_;
    std::vector<std::int32_t> resource_of_id_;
    std::vector<LinkClass> link_classes_;
    std::vector<std::int64_t> capacities_;
};

class QuotientBuilder {
  public:
    QuotientBuilder(const PlacedJob& placed, std::size_t job, const FabricUse& fabric, const ResourceLayout& layout,
                    const Refinement& refinement, ResourceBuilder& resources)
        : job_(job),
          placed_(placed),
          fabric_(fabric),
          layout_(layout),
          refinement_(refinement),
          resources_(resources) {}

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
    void add_group(std::size_t axis, std::int64_t group);
    void add_links(std::size_t axis, std::int64_t group);
    void add_link(std::size_t axis, std::int64_t group, const ResourceBuilder::LinkClass& link);

    std::size_t job_;
    const PlacedJob& placed_;
    const FabricUse& fabric_;
    const ResourceLayout& layout_;
    const Refinement& refinement_;
    ResourceBuilder& resources_;
    std::vector<std::int64_t> seen_;  // per colour: the last group that listed it
    std::int64_t stamp_ = 0;
    Quotient result_;
};

void QuotientBuilder::collect_ranks() {
    const auto first = refinement_.colours().begin() + static_cast<std::ptrdiff_t>(refinement_.first_rank(job_));
    result_.colour_of.assign(first, first + placed_.groups().world_size());
    const std::int32_t before = result_.colour_of.front();  // colours of the jobs before
    for (std::size_t rank = 0; rank < result_.colour_of.size(); ++rank) {
        const std::size_t colour = at(result_.colour_of[rank] -= before);
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
        for (const Seat seat : placed_.groups().seats()) {
            const auto axis = static_cast<std::size_t>(axis_of(seat));
            const std::int64_t group = placed_.groups().group(seat, result_.ranks[rank]);
            if (group < 0) continue;
            const std::int32_t id = ids.id_of(mix64(refinement_.group_hash(job_, axis, group) + axis));
            if (id == static_cast<std::int32_t>(result_.groups.size())) add_group(axis, group);
            result_.group_at[rank][static_cast<std::size_t>(seat)] = id;
        }
    }
}

void QuotientBuilder::add_group(std::size_t axis, std::int64_t group) {
    const GroupFamily& family = placed_.groups().family(axis);
    Quotient::Group added;
    added.axis = family.axis;
    added.first_member = static_cast<std::int32_t>(result_.members.size());
    added.placement = placed_.placement_of(axis, group);
    ++stamp_;
    bool receiver = false;
    for (const std::int32_t rank : family.members(group)) {
        const std::int32_t colour = result_.colour_of[at(rank)];
        const Seat seat = seat_on(family.axis, receiver);
        receiver = family.pairs;
        if (seen_[at(colour)] == stamp_) continue;
        seen_[at(colour)] = stamp_;
        result_.members.push_back({colour, seat});
    }
    added.member_count = static_cast<std::int32_t>(result_.members.size()) - added.first_member;
    ORRERY_CHECK(!family.pairs || added.member_count == 2, "both ends of a pair are in the same class");
    added.first_link = static_cast<std::int32_t>(result_.links.size());
    add_links(axis, group);
    added.link_count = static_cast<std::int32_t>(result_.links.size()) - added.first_link;
    result_.groups.push_back(added);
}

/// One of each class of links that the group loads.
void QuotientBuilder::add_links(std::size_t axis, std::int64_t group) {
    std::vector<std::int32_t> listed;  // resources
    for (const FabricUse::Load& load : fabric_.loads(job_, axis, group)) {
        const ResourceBuilder::LinkClass& link = resources_.class_of(load.link);
        if (std::find(listed.begin(), listed.end(), link.resource) != listed.end()) continue;
        listed.push_back(link.resource);
        add_link(axis, group, link);
    }
}

void QuotientBuilder::add_link(std::size_t axis, std::int64_t group, const ResourceBuilder::LinkClass& link) {
    const std::uint64_t wanted = refinement_.group_hash(job_, axis, group);
    const std::size_t first = result_.links.size();
    for (const FabricUse::User& user : fabric_.users(link.link)) {
        if (at(user.job) != job_ || at(user.axis) != axis) continue;
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
    for (std::size_t rank = 0; rank < result_.ranks.size(); ++rank) {
        const auto attach = [&](ResourceKind kind, const Quotient::Attachment& attachment) {
            result_.attachments[rank][static_cast<std::size_t>(kind)] = attachment;
        };
        const std::size_t number = refinement_.first_rank(job_) + at(result_.ranks[rank]);
        std::size_t family = 0;
        if (layout_.cores) {
            attach(ResourceKind::cores,
                   resources_.shared(number, ResourceKind::cores, family++, layout_.cores_per_node * kUnit));
        }
        if (layout_.copies) {
            attach(ResourceKind::copy_out, resources_.own());
            attach(ResourceKind::copy_in, resources_.own());
        }
        if (layout_.devices) {
            attach(ResourceKind::compute_units, resources_.own());
            attach(ResourceKind::memory, resources_.own());
        }
        if (layout_.ports) {
            attach(ResourceKind::port_out, resources_.own());
            attach(ResourceKind::port_in, resources_.own());
        }
        for (const ResourceKind kind : {ResourceKind::nic_out, ResourceKind::nic_in}) {
            if (layout_.shared_nics) {
                attach(kind, resources_.shared(number, kind, family, kUnit));
            } else if (layout_.nics) {
                attach(kind, resources_.own());
            }
        }
    }
}

}  // namespace

Quotients make_quotients(std::span<const PlacedJob> jobs, const FabricUse& fabric,
                         const topologies::ClusterSpec& cluster, bool full) {
    const ResourceLayout layout(cluster);
    std::vector<SharedFamily> shared;
    if (layout.cores) shared.push_back(shared_family(jobs, &RankPlace::node));
    if (layout.shared_nics) shared.push_back(shared_family(jobs, &RankPlace::nic));

    Refinement refinement(jobs, fabric, shared);
    if (full) {
        refinement.separate();
    } else {
        refinement.run();
    }
    Quotients result;
    ResourceBuilder resources(shared, refinement);
    for (std::size_t job = 0; job < jobs.size(); ++job) {
        result.jobs.push_back(QuotientBuilder(jobs[job], job, fabric, layout, refinement, resources).build());
    }
    result.capacity_units = resources.take_capacities();
    return result;
}

Quotients make_quotients(const program::Program& program, const topologies::ClusterSpec& cluster, bool full) {
    const topologies::Cluster built(cluster);
    const topologies::Cluster* const state = &built;
    const PlacedJob job(program, place_ranks(program.plan->parallelism, built), std::span(&state, 1));
    return make_quotients(std::span(&job, 1), FabricUse(), cluster, full);
}

}  // namespace orrery::sim
