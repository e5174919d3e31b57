#include "cli/simulate_jobs.h"

#include <algorithm>
#include <cstdint>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "cli/commands.h"
#include "core/error.h"
#include "reports/jobs.h"
#include "reports/misfit.h"
#include "sim/cost/roofline_cost.h"
#include "sim/engine/network_communication.h"
#include "sim/engine/simulate.h"
#include "sim/planner/planner.h"

namespace orrery::cli {
namespace {

using topologies::Cluster;
using topologies::ClusterSpec;

std::int64_t ceil_div(std::int64_t a, std::int64_t b) {
    return (a + b - 1) / b;
}

/// The devices of each job, in whole nodes: consecutive ones (packed) or round-robin (by_turns).
std::vector<std::vector<std::int64_t>> allocate(const std::vector<std::int64_t>& ranks, std::int64_t devices_per_node,
                                                Allocation allocation) {
    std::vector<std::int64_t> missing;  // nodes
    for (const std::int64_t count : ranks) missing.push_back(ceil_div(count, devices_per_node));
    std::vector<std::vector<std::int64_t>> devices(ranks.size());
    std::int64_t node = 0;
    const auto give = [&](std::size_t job) {
        for (std::int64_t d = 0; d < devices_per_node; ++d) devices[job].push_back(node * devices_per_node + d);
        --missing[job];
        ++node;
    };
    while (std::any_of(missing.begin(), missing.end(), [](std::int64_t count) { return count > 0; })) {
        for (std::size_t job = 0; job < ranks.size(); ++job) {
            while (missing[job] > 0) {
                give(job);
                if (allocation == Allocation::by_turns) break;
            }
        }
    }
    return devices;
}

/// The plans with that cluster in place of their own.
std::vector<program::Plan> plans_for(const std::vector<std::string>& paths, const ClusterSpec& cluster) {
    std::vector<program::Plan> plans;
    for (const std::string& path : paths) {
        program::Plan plan = program::read_plan(path);
        const std::int64_t world = plan.parallelism.world_size();
        plan.cluster = cluster;
        if (!cluster.ranks_may_share_devices()) {
            plan.cluster.nodes = ceil_div(world, cluster.devices_per_node);
        }
        program::check_plan(plan, path);
        plans.push_back(std::move(plan));
    }
    return plans;
}

ClusterSpec cluster_for(const JobsOptions& options, const std::vector<std::int64_t>& ranks) {
    const ClusterSpec one_node = topologies::load_cluster(options.cluster, 1);
    if (one_node.ranks_may_share_devices()) return one_node;
    // The devices per node of a preset may depend on the size for which it is loaded.
    const std::int64_t most = *std::max_element(ranks.begin(), ranks.end());
    const std::int64_t per_node = topologies::load_cluster(options.cluster, most).devices_per_node;
    std::int64_t needed = 0;
    for (const std::int64_t count : ranks) needed += ceil_div(count, per_node) * per_node;
    if (options.gpus > 0 && options.gpus < needed) {
        throw InputError("the command line", "--gpus", std::to_string(options.gpus),
                         "at least " + std::to_string(needed) + ", whole nodes for each job");
    }
    return topologies::load_cluster(options.cluster, options.gpus > 0 ? options.gpus : needed);
}

/// The states of the cluster: at the start, and after each change of its links.
class States {
  public:
    explicit States(const Cluster& start) {
        add(0, start);
        for (const double seconds : topologies::change_times(start.spec())) {
            clusters_.push_back(std::make_unique<Cluster>(topologies::cluster_at(start.spec(), seconds)));
            add(seconds, *clusters_.back());
        }
    }
    [[nodiscard]] std::span<const sim::ClusterState> all() const { return states_; }

  private:
    void add(double seconds, const Cluster& cluster) {
        communications_.push_back(std::make_unique<sim::NetworkCommunication>(cluster));
        states_.push_back({picoseconds_from_seconds(seconds), &cluster, communications_.back().get()});
    }
    std::vector<std::unique_ptr<Cluster>> clusters_;
    std::vector<std::unique_ptr<sim::NetworkCommunication>> communications_;
    std::vector<sim::ClusterState> states_;
};

/// The plans whose memory does not fit, one line each.
std::string misfits_of(const std::vector<program::Program>& programs, std::optional<double> margin_gib) {
    std::string text;
    for (const program::Program& program : programs) {
        const program::MemoryFit fit = sim::memory_fit(program, margin_gib);
        if (!fit.fits()) text += reports::misfit_text(*program.plan, fit, {});
    }
    return text;
}

}  // namespace

SimulatedJobs simulate_jobs(const JobsOptions& options) {
    std::vector<std::int64_t> ranks;
    for (const std::string& path : options.plans) {
        ranks.push_back(program::read_plan(path).parallelism.world_size());
    }
    const ClusterSpec spec = cluster_for(options, ranks);
    const bool shared = spec.ranks_may_share_devices();
    std::vector<program::Program> programs;
    for (const program::Plan& plan : plans_for(options.plans, spec)) {
        refuse_long_step(plan, plan.name, "--cluster");
        programs.push_back(program::lower(plan));
        program::validate(programs.back());
    }
    std::vector<std::vector<std::int64_t>> devices(ranks.size());
    if (!shared) devices = allocate(ranks, spec.devices_per_node, options.allocation);

    const Cluster cluster(spec);
    const States states(cluster);
    std::vector<sim::RooflineCost> costs;
    for (const program::Program& program : programs) costs.emplace_back(spec, program.plan->rates);
    std::vector<sim::Job> jobs;
    for (std::size_t j = 0; j < programs.size(); ++j) jobs.push_back({&programs[j], &costs[j], devices[j]});
    const sim::SimulateOptions how{.full = options.full, .steps = options.steps};
    std::vector<program::RunRecord> together = sim::simulate_together(jobs, states.all(), how);
    reports::JobsReport report{&spec, {}};
    for (std::size_t j = 0; j < jobs.size(); ++j) {
        const auto one = std::span(jobs).subspan(j, 1);
        program::RunRecord alone = std::move(sim::simulate_together(one, states.all().first(1), how).front());
        std::vector<std::int64_t> used = devices[j];
        if (!shared) used.resize(static_cast<std::size_t>(std::min<std::int64_t>(ranks[j], std::ssize(used))));
        report.jobs.push_back({&programs[j], std::move(used), std::move(alone), std::move(together[j])});
    }
    return {.misfits = misfits_of(programs, options.memory_margin_gib),
            .report = options.json ? reports::jobs_json(report) : reports::jobs_text(report)};
}

}  // namespace orrery::cli
