#include "sim/network/algorithms/link_loads.h"

#include <bit>
#include <map>
#include <utility>

#include "sim/network/algorithms/link_loads_builder.h"
#include "sim/network/algorithms/stages.h"

namespace orrery::sim::algorithms {

using program::CommKind;
using topologies::LinkId;

Group group_on(const topologies::Cluster& cluster, CommKind kind, std::span<const std::int64_t> devices) {
    return is_ordered(kind) ? Group::flat(static_cast<std::int64_t>(devices.size())) : Group::of(cluster, devices);
}

double CollectiveLoads::steps() const {
    double sum = 0;
    for (const LoadPhase& phase : phases) sum += phase.steps;
    return sum;
}
double CollectiveLoads::latency_seconds() const {
    double sum = 0;
    for (const LoadPhase& phase : phases) sum += phase.latency_seconds;
    return sum;
}
double CollectiveLoads::seconds_per_byte() const {
    double sum = 0;
    for (const LoadPhase& phase : phases) sum += phase.seconds_per_byte;
    return sum;
}

LinkLoads::LinkLoads(const topologies::Cluster& cluster)
    : cluster_(&cluster),
      phase_(static_cast<std::size_t>(cluster.link_count()), 0.0),
      total_(static_cast<std::size_t>(cluster.link_count()), 0.0) {}

CollectiveLoads LinkLoads::of(Algorithm algorithm, CommKind kind, std::span<const std::int64_t> devices,
                              std::int64_t chunks) {
    const Group group = group_on(*cluster_, kind, devices);
    const std::string reason = why_not(algorithm, kind, group);
    ORRERY_CHECK(reason.empty(), reason);
    ORRERY_CHECK(chunks == 1 || (chunks > 1 && row_of(algorithm).manner.chunks), std::to_string(chunks) + " chunks");
    if (group.ranks() == 1) return {};
    LoadBuilder builder(*cluster_, group, devices, kind, chunks, phase_, total_);
    try {
        builder.build(algorithm);
    } catch (...) {
        builder.clear();
        throw;
    }
    return builder.finish();
}

CollectiveLoads links_of(Algorithm algorithm, CommKind kind, std::span<const std::int64_t> devices,
                         const topologies::Cluster& cluster, std::int64_t chunks) {
    return LinkLoads(cluster).of(algorithm, kind, devices, chunks);
}

void LoadBuilder::add(LinkId link, double coefficient) {
    double& load = phase_[static_cast<std::size_t>(link)];
    if (load == 0) phase_links_.push_back(link);
    load += coefficient;
}

void LoadBuilder::note_latency(std::int64_t from, std::int64_t to, Picoseconds latency, double coefficient) {
    const double seconds = to_seconds(latency);
    double& longest = cluster_.node_of(device(from)) == cluster_.node_of(device(to)) ? intra_latency_ : inter_latency_;
    longest = std::max(longest, seconds);
    weighted_latency_ += coefficient * seconds;
    latency_weight_ += coefficient;
}

void LoadBuilder::send(std::int64_t from, std::int64_t to, double coefficient) {
    cluster_.find_route(device(from), device(to), forwarding_.choice(device(from), device(to)), route_);
    for (const topologies::Route::Part& part : route_.parts) add_part(part, coefficient);
    note_latency(from, to, route_.latency, coefficient);
}

void LoadBuilder::end_phase(double steps, double latency_seconds, double stretch) {
    double slowest = 0;
    for (const LinkId id : phase_links_) {
        const topologies::Link& link = cluster_.link(id);
        const double load = phase_[static_cast<std::size_t>(id)];
        slowest = std::max(slowest, load / (link.bandwidth.value() * link.efficiency));
    }
    if (total_links_.empty()) {  // the first phase becomes the total
        std::swap(phase_, total_);
        std::swap(phase_links_, total_links_);
    }
    for (const LinkId id : phase_links_) {
        double& sum = total_[static_cast<std::size_t>(id)];
        if (sum == 0) total_links_.push_back(id);
        sum += std::exchange(phase_[static_cast<std::size_t>(id)], 0);
    }
    phase_links_.clear();
    phases_.push_back({steps, latency_seconds, stretch * slowest});
    intra_latency_ = inter_latency_ = weighted_latency_ = latency_weight_ = 0;
}

CollectiveLoads LoadBuilder::finish() {
    CollectiveLoads result;
    result.phases = std::move(phases_);
    result.links.reserve(total_links_.size());
    // If many links are touched, a pass over all links is cheaper than sorting the touched ones.
    constexpr std::size_t kPassFrom = 16;
    if (total_links_.size() * kPassFrom > total_.size()) {
        for (std::size_t id = 0; id < total_.size(); ++id) {
            if (total_[id] != 0) result.links.push_back({static_cast<LinkId>(id), total_[id]});
            total_[id] = 0;
        }
        return result;
    }
    std::sort(total_links_.begin(), total_links_.end());
    for (const LinkId id : total_links_) {
        result.links.push_back({id, total_[static_cast<std::size_t>(id)]});
        total_[static_cast<std::size_t>(id)] = 0;
    }
    return result;
}

void LoadBuilder::clear() {
    for (const LinkId id : phase_links_) phase_[static_cast<std::size_t>(id)] = 0;
    for (const LinkId id : total_links_) total_[static_cast<std::size_t>(id)] = 0;
}

void LoadBuilder::build(Algorithm algorithm) {
    const Row& row = row_of(algorithm);
    row.add_loads != nullptr ? row.add_loads(*this) : add_by_rounds(algorithm);
}

/// Adds the transfers of few rounds. All slices between two ranks in a round are one message.
void LoadBuilder::add_by_rounds(Algorithm algorithm) {
    constexpr std::int64_t kBytes = std::int64_t{1} << 40;
    std::map<std::int64_t, double> to;
    // Among 2^i ranks, recursive doubling has the same exchanges as recursive halving, in reverse order.
    const bool mirrored = algorithm == Algorithm::halving_doubling && kind_ == CommKind::all_reduce &&
                          std::has_single_bit(static_cast<std::uint64_t>(group_.ranks()));
    Stages stages = row_of(algorithm).stages(Task{group_, kind_, kBytes});
    if (mirrored) stages.pop_back();
    for (const Stage& stage : stages) {
        for (std::int64_t round = 0; round < stage.rounds; ++round) {
            for (std::int64_t rank = 0; rank < group_.ranks(); ++rank) {
                to.clear();
                stage.sends(round, rank, [&](const Transfer& t) {
                    to[t.to] += static_cast<double>(t.slice.bytes) / static_cast<double>(kBytes);
                });
                for (const auto& [peer, coefficient] : to) send(rank, peer, coefficient);
            }
            end_steps(1);
        }
    }
    if (!mirrored) return;
    for (const LinkId link : total_links_) total_[static_cast<std::size_t>(link)] *= 2;
    for (std::size_t i = phases_.size(); i > 0; --i) phases_.push_back(LoadPhase(phases_[i - 1]));
}

}  // namespace orrery::sim::algorithms
