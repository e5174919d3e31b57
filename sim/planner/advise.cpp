#include "sim/planner/advise.h"

#include <algorithm>
#include <array>
#include <functional>
#include <utility>

#include "core/error.h"
#include "core/units.h"
#include "sim/planner/nearest_plan.h"
#include "sim/planner/plan_changes.h"
#include "sim/planner/timing.h"
#include "sim/program/rates.h"

namespace orrery::sim {
namespace {

using program::Plan;
using program::PlanResult;
using program::WhatIf;

/// Of a device's memory, in the what-if of more memory.
constexpr double kMoreMemory = 1.5;

std::optional<WhatIf> what_if(std::string change, const char* of, const Plan& plan, std::int64_t allowed_bytes) {
    try {
        program::check_plan(plan, "a what-if");
        const topologies::Cluster cluster(plan.cluster);
        const PlanResult result = timed(plan, cluster, RooflineCost(plan.cluster, plan.rates));
        return WhatIf{.change = std::move(change),
                      .of = of,
                      .step_time_s = result.step_time_s,
                      .tokens_per_s_per_device = result.tokens_per_s_per_device,
                      .devices = plan.parallelism.world_size(),
                      .memory = memory_need(plan, allowed_bytes)};
    } catch (const InputError&) {  // a rule refuses the plan, or the cluster cannot be built
        return {};
    }
}

/// The name of the plan's precision with its implementation; nothing if its types were chosen one by one.
std::optional<std::string> precision_name(const Plan& plan) {
    for (const std::string& name : program::precision_names()) {
        if (program::precision_named(name, plan.implementation) == plan.training.precision) return name;
    }
    return {};
}

class Inputs {
  public:
    explicit Inputs(const program::PlanAdvice& advice)
        : best_(advice.best), plan_(best_.plan), advice_(advice), allowed_bytes_(advice.memory.allowed_bytes) {}

    std::vector<WhatIf> all() {
        job();
        nodes();
        links();
        memory();
        precisions();
        implementations();
        std::stable_sort(found_.begin(), found_.end(), [](const WhatIf& a, const WhatIf& b) {
            return a.tokens_per_s_per_device > b.tokens_per_s_per_device;
        });
        return std::move(found_);
    }

  private:
    void add(const char* of, std::string change, const std::function<void(Plan&)>& apply) {
        Plan plan = plan_;
        apply(plan);
        if (std::optional<WhatIf> found = what_if(std::move(change), of, plan, allowed_bytes_)) {
            found_.push_back(std::move(*found));
        }
    }

    void job() {
        const std::int64_t batch = plan_.training.global_batch_size, length = plan_.training.sequence_length;
        add("batch", "global batch " + std::to_string(2 * batch) + " instead of " + std::to_string(batch),
            [](Plan& plan) { plan.training.global_batch_size *= 2; });
        const auto lengths = [&](std::int64_t sequence, std::int64_t sequences) {
            add("sequence",
                "sequences of " + std::to_string(sequence) + " instead of " + std::to_string(length) +
                    " tokens, global batch " + std::to_string(sequences),
                [&](Plan& plan) {
                    plan.training.sequence_length = sequence;
                    plan.training.global_batch_size = sequences;
                });
        };
        if (length % 2 == 0) lengths(length / 2, 2 * batch);
        if (batch % 2 == 0) lengths(2 * length, batch / 2);
    }

    void nodes() {
        const std::int64_t devices = plan_.parallelism.world_size();
        if (plan_.cluster.ranks_may_share_devices() || !plan_.parallelism.placement.empty()) return;
        const auto on = [&](std::int64_t dp, std::int64_t size) {
            add("devices", std::to_string(size) + " instead of " + std::to_string(devices) + " devices",
                [&](Plan& plan) {
                    program::Parallelism& p = plan.parallelism;
                    p.dp = dp;
                    if (p.gradient_ranks() == 1) set_sharding(plan, program::DataParallel::ddp);
                    if (p.dp_shard >= p.gradient_ranks() || (p.dp_shard > 0 && p.gradient_ranks() % p.dp_shard != 0)) {
                        p.dp_shard = 0;
                    }
                    plan.cluster = topologies::sized_for(plan.cluster, size);
                });
        };
        const std::int64_t dp = plan_.parallelism.dp;
        try {
            (void)topologies::sized_for(plan_.cluster, 2 * devices);
            on(2 * dp, 2 * devices);
        } catch (const InputError&) {  // the cluster cannot grow
        }
        const bool whole_nodes =
            devices / 2 <= plan_.cluster.devices_per_node || devices / 2 % plan_.cluster.devices_per_node == 0;
        if (dp % 2 == 0 && whole_nodes) on(dp / 2, devices / 2);
    }

    void links() {
        const auto twice = [](topologies::LinkProfile& link) { link.bandwidth_gb_per_s_per_direction.value *= 2; };
        if (plan_.parallelism.world_size() == 1) return;
        if (plan_.cluster.ranks_may_share_devices()) return;  // its transport is measured, not a bandwidth
        add("links", "twice the bandwidth between the devices of a node",
            [&](Plan& plan) { twice(plan.cluster.intra_node); });
        if (plan_.cluster.nodes == 1) return;
        add("links", "twice the bandwidth between nodes (NICs, their host links, switches)", [&](Plan& plan) {
            twice(plan.cluster.nic);
            twice(plan.cluster.host_link);
            twice(plan.cluster.fabric_shape.trunk);
            twice(plan.cluster.fabric_shape.core_trunk);
        });
    }

    /// The plan's time does not change with more memory, but other plans then fit.
    void memory() {
        const double allowed = kMoreMemory * static_cast<double>(allowed_bytes_);
        const WhatIf* fastest = nullptr;
        for (const WhatIf& change : advice_.plan_changes) {
            if (static_cast<double>(change.memory.needed_bytes) > allowed) continue;
            if (fastest == nullptr || change.step_time_s < fastest->step_time_s) fastest = &change;
        }
        if (fastest == nullptr || fastest->step_time_s >= best_.step_time_s) return;
        found_.push_back(*fastest);
        found_.back().change = "half as much memory again on each device, with " + fastest->change;
        found_.back().of = "memory";
        found_.back().memory.allowed_bytes = static_cast<std::int64_t>(allowed);
    }

    void precisions() {
        const models::Support& supports = plan_.implementation.supports;
        const std::optional<std::string> now = precision_name(plan_);
        if (!now) return;
        for (const std::string& name : program::precision_names()) {
            const program::Precision precision = program::precision_named(name, plan_.implementation);
            if (precision == plan_.training.precision) continue;
            if (!supports.precisions.empty() && !models::Support::lists(supports.precisions, name)) continue;
            add("precision", name + " instead of " + *now, [&](Plan& plan) { plan.training.precision = precision; });
        }
    }

    void implementations() {
        const std::optional<std::string> precision = precision_name(plan_);
        if (plan_.cluster.ranks_may_share_devices() || !precision) return;
        for (const std::string& name : models::implementation_names()) {
            if (name == plan_.implementation.name) continue;
            add("implementation", name + " instead of " + plan_.implementation.name, [&](Plan& plan) {
                plan.implementation = models::load_implementation(name);
                plan.rates = program::resolve_rates(plan.implementation, plan.cluster);
                plan.training.dropout = plan.implementation.default_dropout;
                plan.training.precision = program::precision_named(*precision, plan.implementation);
            });
        }
    }

    const PlanResult& best_;
    const Plan& plan_;
    const program::PlanAdvice& advice_;
    const std::int64_t allowed_bytes_;
    std::vector<WhatIf> found_;
};

/// The leanest plans of the meshes on which nothing fits, the least memory first.
std::vector<LeanPlan> lean_meshes(const std::vector<PlanResult>& results, const std::vector<PlanRequest>& requests,
                                  std::size_t most) {
    std::vector<const PlanResult*> misfits;
    for (const PlanResult& result : results) {
        if (!result.feasible) misfits.push_back(&result);
    }
    std::stable_sort(misfits.begin(), misfits.end(),
                     [](const PlanResult* a, const PlanResult* b) { return a->peak_memory_gib < b->peak_memory_gib; });
    // The results have lower bounds; the exact order may differ a little.
    misfits.resize(std::min(misfits.size(), 2 * most));
    std::vector<LeanPlan> found;
    for (const PlanResult* misfit : misfits) {
        const program::Parallelism& p = misfit->plan.parallelism;
        for (PlanRequest request : requests) {
            if (request.implementation.name != misfit->plan.implementation.name) continue;
            request.tp = p.tp;
            request.pp = p.pp;
            request.dp = p.dp;
            request.cp = p.cp;
            request.ep = p.ep;
            found.push_back(leanest_plan({request}));
        }
    }
    std::stable_sort(found.begin(), found.end(), [](const LeanPlan& a, const LeanPlan& b) {
        return a.memory.needed_bytes < b.memory.needed_bytes;
    });
    found.resize(std::min(found.size(), most));
    return found;
}

}  // namespace

std::vector<WhatIf> input_changes(const program::PlanAdvice& advice) {
    return Inputs(advice).all();
}

program::PlanAdvice advise(const std::vector<PlanResult>& results, const std::vector<PlanRequest>& requests,
                           std::size_t most_meshes) {
    ORRERY_CHECK(!results.empty() && results.front().feasible, "a search without a plan is not explained");
    program::PlanAdvice advice{.best = results.front()};
    const Plan& plan = advice.best.plan;
    const std::int64_t allowed = allowed_bytes(requests.front(), plan);
    advice.memory = memory_need(plan, allowed);
    for (const PlanChange& change : single_changes(plan)) {
        if (auto found = what_if(change.description, "plan", change.plan, allowed)) {
            advice.plan_changes.push_back(std::move(*found));
        }
    }
    std::stable_sort(advice.plan_changes.begin(), advice.plan_changes.end(),
                     [](const WhatIf& a, const WhatIf& b) { return a.step_time_s < b.step_time_s; });
    advice.input_changes = input_changes(advice);
    const topologies::Cluster cluster(plan.cluster);
    for (LeanPlan& lean : lean_meshes(results, requests, most_meshes)) {
        std::optional<program::Remedy> fix = smallest_fix(lean.plan, cluster, requests.front().memory_margin_gib);
        advice.meshes.push_back(
            {.plan = std::move(lean.plan), .memory = std::move(lean.memory), .fix = std::move(fix)});
    }
    const auto misfits =
        std::count_if(results.begin(), results.end(), [](const PlanResult& result) { return !result.feasible; });
    advice.meshes_left_out = static_cast<std::size_t>(misfits) - advice.meshes.size();
    return advice;
}

void add_fixes(std::vector<PlanResult>& results, const std::vector<PlanRequest>& requests, std::size_t most) {
    std::vector<PlanResult*> misfits;
    for (PlanResult& result : results) {
        if (!result.feasible) misfits.push_back(&result);
    }
    std::stable_sort(misfits.begin(), misfits.end(),
                     [](const PlanResult* a, const PlanResult* b) { return a->peak_memory_gib < b->peak_memory_gib; });
    misfits.resize(std::min(misfits.size(), most));
    for (PlanResult* misfit : misfits) {
        const Plan& plan = misfit->plan;
        const program::MemoryNeed need = memory_need(plan, allowed_bytes(requests.front(), plan));
        const auto fix = smallest_fix(plan, topologies::Cluster(plan.cluster), requests.front().memory_margin_gib);
        if (!fix) continue;
        std::string change;
        for (const std::string& one : fix->changes) change += (change.empty() ? "" : "; ") + one;
        misfit->fix = program::PlanFix{.change = std::move(change),
                                       .gib = fix->peak_memory_gib - to_gib(Bytes(need.needed_bytes)),
                                       .step_time_s = fix->step_time_s};
    }
}

}  // namespace orrery::sim
