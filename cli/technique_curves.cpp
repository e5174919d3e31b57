#include "cli/technique_curves.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <span>
#include <string_view>
#include <utility>

#include "cli/parallel.h"
#include "cli/plan_search.h"
#include "core/error.h"
#include "core/index.h"
#include "core/units.h"
#include "sim/planner/objectives.h"
#include "sim/planner/obstacles.h"

namespace orrery::cli {
namespace {

using program::Obstacle;
using program::Technique;
using program::TechniquePoint;

PlanJob job_of(PlanJob job, Technique technique, std::int64_t devices, const TechniqueOptions& options) {
    job.devices = devices;
    job.global_batch = options.mode == program::ScalingMode::weak ? options.batch * devices : options.batch;
    job.tp = job.pp = job.dp = job.cp = job.ep = 1;
    switch (technique) {
        case Technique::tp:
            job.tp = devices;
            break;
        case Technique::pp:
            job.pp = devices;
            break;
        case Technique::dp:
        case Technique::ddp:
        case Technique::zero1:
        case Technique::zero2:
        case Technique::zero3:
            job.dp = devices;
            if (devices > 1) job.data_parallel = name_of(technique);  // the same name
            break;
    }
    return job;
}

/// "; the leanest needs 144.0 GiB"; empty if that is not known.
std::string least_memory_text(const std::vector<sim::PlanRequest>& requests, const topologies::Cluster& cluster) {
    sim::LeastMemory least;
    for (const sim::PlanRequest& request : requests) {
        try {
            least.merge(sim::least_memory_of(request, cluster));
        } catch (const InputError&) {
            continue;  // this implementation has no plan with these degrees
        }
    }
    if (least.lowerings == 0) return "";
    return fmt::format("; the leanest needs {:.1f} GiB", to_gib(Bytes(least.bytes)));
}

TechniquePoint without_plan(const PlanJob& job, Obstacle obstacle, std::string reason) {
    return {.point = {.devices = job.devices, .global_batch_size = job.global_batch, .reason = std::move(reason)},
            .obstacle = obstacle,
            .losses = {}};
}

/// What an implementation that has the technique says, if any has it.
Obstacle obstacle_to_all(const std::vector<sim::PlanRequest>& requests) {
    for (const sim::PlanRequest& request : requests) {
        const Obstacle obstacle = sim::obstacle_to(request);
        if (obstacle != Obstacle::implementation) return obstacle;
    }
    return Obstacle::implementation;
}

TechniquePoint find_point(const PlanJob& job, const models::ModelSpec& model) {
    std::optional<topologies::ClusterSpec> spec;
    try {
        spec = topologies::load_cluster(job.cluster, job.devices);
    } catch (const InputError& error) {
        return without_plan(job, Obstacle::nodes, error.what());
    }
    const topologies::Cluster cluster(*spec);
    std::vector<sim::PlanRequest> requests = requests_of(job, model, *spec);
    for (sim::PlanRequest& request : requests) request.tries_shard_groups = false;
    std::vector<std::string> notes;
    const auto search = [&](const sim::PlanRequest& request, std::span<const double> rivals) {
        return sim::search_plans(request, cluster, 1, 1, rivals);
    };
    try {
        const sim::PlanSearch found = search_each(requests, 1, search, notes);
        TechniquePoint one{.point = program::scaling_point(found.results.front(), job.devices)};
        one.point.considered = found.considered;
        one.point.simulated = found.simulated;
        return one;
    } catch (const InfeasibleError& error) {
        return without_plan(job, Obstacle::memory, error.what() + least_memory_text(requests, cluster));
    } catch (const InputError& error) {
        return without_plan(job, obstacle_to_all(requests), error.what());
    }
}

}  // namespace

void check_techniques(const PlanJob& job) {
    const auto refuse = [](const char* option, bool is_given, const std::string& value) {
        if (is_given) {
            throw InputError("command line", option, value, "only without --by-technique, whose plans differ in it");
        }
    };
    const auto degree = [&](const char* option, std::int64_t value) {
        refuse(option, value != 0, std::to_string(value));
    };
    degree("--tp", job.tp);
    degree("--pp", job.pp);
    degree("--dp", job.dp);
    degree("--cp", job.cp);
    degree("--ep", job.ep);
    degree("--etp", job.space.etp);
    degree("--chunks", job.chunks);
    degree("--dp-shard", job.dp_shard);
    refuse("--data-parallel", !job.data_parallel.empty(), job.data_parallel);
    refuse("--reshard-after-forward", !job.reshard.empty(), job.reshard);
    refuse("--stage-layout", !job.stage_layout.empty(), job.stage_layout);
    refuse("--offload", job.space.offload == "parameters", job.space.offload);
}

program::TechniqueCurves technique_curves(const PlanJob& job, const models::ModelSpec& model,
                                          const topologies::ClusterSpec& of_one, const TechniqueOptions& options) {
    PlanJob named = job;
    if (named.implementations.empty()) named.implementations = {kEveryTechnique};
    program::TechniqueCurves curves{.model = model.name,
                                    .cluster = of_one.name,
                                    .devices_per_node = of_one.devices_per_node,
                                    .implementations = {},
                                    .mode = options.mode,
                                    .sequence_length = job.sequence,
                                    .batch = options.batch,
                                    .figures = options.figures};
    // Requests that cannot be made are refused before any search.
    for (const sim::PlanRequest& request : requests_of(job_of(named, Technique::tp, 1, options), model, of_one)) {
        curves.implementations.push_back(request.implementation.name);
    }
    const std::size_t sizes = options.counts.size();
    std::vector<TechniquePoint> points(program::kTechniqueCount * sizes);
    in_parallel("planning", points.size(), [&](std::size_t i) {
        const auto technique = static_cast<Technique>(i / sizes);
        const std::int64_t devices = options.counts[i % sizes];
        if (devices == 1 && i / sizes > 0) return;  // all techniques have the same plan
        points[i] = find_point(job_of(named, technique, devices, options), model);
    });
    for (const auto technique : enum_values<Technique, program::kTechniqueCount>()) {
        program::TechniqueCurve curve{.technique = technique};
        const std::size_t begin = static_cast<std::size_t>(technique) * sizes;
        for (std::size_t i = 0; i < sizes; ++i) {
            curve.points.push_back(options.counts[i] == 1 ? points[i] : points[begin + i]);
        }
        curves.techniques.push_back(std::move(curve));
    }
    program::measure_techniques(curves);
    return curves;
}

}  // namespace orrery::cli
