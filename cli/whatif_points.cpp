#include "cli/whatif_points.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <utility>

#include "cli/point_store.h"
#include "core/error.h"
#include "core/json_value.h"
#include "sim/planner/one_plan.h"

namespace orrery::cli {
namespace {

program::PlanResult best_like(const program::Plan& plan, const WhatIfJob& job) {
    sim::PlanRequest request = sim::request_like(plan);
    const bool uses_all = job.plan.parallelism.world_size() == job.plan.cluster.device_count();
    if (uses_all) request.devices = plan.cluster.device_count();
    request.memory_margin_gib = job.memory_margin_gib;
    sim::PlanSearch search = sim::search_plans(request, topologies::Cluster(plan.cluster), 1, 1);
    return std::move(search.results.front());
}

program::SweepPoint point_of(const WhatIfJob& job, const Edit& edit) {
    program::SweepPoint point;
    const auto leave_out = [&](const std::string& reason) {
        point.fits = false;
        point.point = {.devices = job.plan.parallelism.world_size(),
                       .global_batch_size = job.plan.training.global_batch_size,
                       .reason = reason};
    };
    try {
        const program::Plan plan = job.editable.with(edit.paths, edit.values);
        const program::PlanResult result =
            job.replans ? best_like(plan, job)
                        : sim::predict(plan, topologies::Cluster(plan.cluster), job.memory_margin_gib);
        point.fits = result.feasible;
        point.point = program::scaling_point(result, result.plan.parallelism.world_size());
    } catch (const InfeasibleError& error) {
        leave_out(error.what());
    } catch (const InputError& error) {
        leave_out(error.what());
    }
    return point;
}

/// All that the results of points follow from but their edits.
std::string inputs_of(const WhatIfJob& job) {
    JsonValue json = JsonValue::object();
    json.set("command", JsonValue(job.replans ? "whatif --replan" : "whatif"));
    json.set("build", JsonValue(build_name()));
    if (job.memory_margin_gib) json.set("memory_margin_gib", JsonValue(*job.memory_margin_gib));
    return json.text() + "\n" + job.editable.text();
}

/// Equal for edits with the same effect on the file.
std::string point_name(const WhatIfJob& job, const Edit& edit) {
    const std::vector<std::string> in_file = job.editable.values_in_file(edit.paths, edit.values);
    std::vector<std::string> changes;
    for (std::size_t i = 0; i < edit.paths.size(); ++i) {
        if (in_file[i] != job.editable.value_in_file(edit.paths[i]))
            changes.push_back(edit.paths[i] + "=" + in_file[i]);
    }
    std::sort(changes.begin(), changes.end());
    return fmt::format("{}", fmt::join(changes, " "));
}

}  // namespace

std::optional<std::vector<program::SweepPoint>> predict_edits(const WhatIfJob& job, const std::vector<Edit>& edits) {
    std::vector<program::SweepPoint> points(edits.size());
    SweepToStore sweep{.verb = job.replans ? "planning" : "predicting",
                       .inputs = inputs_of(job),
                       .points = {},
                       .compute = {},
                       .take = {}};
    for (const Edit& edit : edits) sweep.points.push_back(point_name(job, edit));
    sweep.compute = [&](std::size_t i) { return program::to_json_text(point_of(job, edits[i])); };
    sweep.take = [&](std::size_t i, const std::string& text) {
        points[i] = program::sweep_point_from_json_text(text, job.store.db);
        points[i].values = edits[i].values;
        const program::ScalingPoint &point = points[i].point, &first = points.front().point;
        if (point.is_found() && first.is_found()) points[i].speed = point.tokens_per_s / first.tokens_per_s;
    };
    if (!run_sweep(job.store, sweep)) return {};
    return points;
}

}  // namespace orrery::cli
