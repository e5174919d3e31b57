#include "sim/published/plan_of.h"

#include <algorithm>

#include "core/error.h"
#include "core/units.h"
#include "sim/program/program.h"
#include "sim/published/translation.h"

namespace orrery::published {
namespace {

/// Whether the fullest rank's tensors and context fit in device memory.
bool fits(const program::Plan& plan) {
    std::int64_t most = 0;
    for (const program::RankClass& rank : program::lower(plan).classes) most = std::max(most, rank.memory.live_peak);
    const topologies::DeviceProfile& device = plan.cluster.device;
    return static_cast<double>(most) / kGibibyte + device.context_gib.value <= device.memory_capacity_gib.value;
}

/// What the plan requires and its implementation does not support; empty: nothing.
std::string missing_support(const program::Plan& plan) {
    try {
        program::check_support(plan, "the run");
    } catch (const InputError& error) {
        return error.what();
    }
    return "";
}

/// A published run did use its techniques. If the nearest known implementation does not support them, for example
/// because the run's own is unknown, the plan is not checked for support.
void widen_support(program::Plan& plan, Assumptions& assumptions) {
    const std::string missing = missing_support(plan);
    if (missing.empty()) return;
    plan.implementation.supports = {};
    assumptions.add("/implementation/supports", "support", "not checked", missing);
}

/// A run whose source does not mention recomputation is assumed to use the least with which it fits: none, norms and
/// activations (which recompute no GEMM), or whole blocks. If not even that fits, none.
void recompute_where_needed(program::Plan& plan, Assumptions& assumptions) {
    const char* const pointer = "/training/memory/recompute";
    if (!assumptions.origins().contains(pointer) || fits(plan)) return;
    const auto takes = [&](program::Recompute kind, const std::vector<std::string>& parts, const char* what) {
        program::Plan other = plan;
        other.training.memory.recompute = kind;
        other.training.memory.recompute_parts = parts;
        if (!missing_support(other).empty() || !fits(other)) return false;
        plan = std::move(other);
        assumptions.add(pointer, "recomputation", what, "the run does not fit with less; not stated");
        return true;
    };
    if (takes(program::Recompute::selective, {"norm", "activation"}, "norm, activation")) return;
    takes(program::Recompute::full, {}, "full");
}

program::Plan translate(const PublishedRun& published, Assumptions& assumptions) {
    const PublishedRun run = with_missing_facts(published, assumptions);
    program::Plan plan;
    plan.name = run.id;
    plan.cluster = cluster_of(run, assumptions);
    plan.implementation = implementation_of(run, assumptions);
    plan.model = model_of(run, assumptions);
    plan.parallelism = parallelism_of(run, plan.model, plan.implementation, assumptions);
    plan.training = training_of(run, plan.model, plan.implementation, plan.parallelism, assumptions);
    widen_support(plan, assumptions);
    program::check_plan(plan, "its plan");
    recompute_where_needed(plan, assumptions);
    const std::string origin_of_all = "published: " + run.source;
    for (const char* pointer : {"/model", "/cluster", "/implementation", "/parallelism", "/training"}) {
        plan.origins[pointer] = origin_of_all;
    }
    for (const auto& [pointer, origin] : assumptions.origins()) plan.origins[pointer] = origin;
    plan.rates = program::resolve_rates(plan.implementation, plan.cluster);
    return plan;
}

}  // namespace

PlanOfRun plan_of(const PublishedRun& run) {
    PlanOfRun result;
    Assumptions assumptions;
    try {
        result.plan = translate(run, assumptions);
    } catch (const NotExpressible& reason) {
        result.reason = reason.what();
    } catch (const InputError& error) {  // the run breaks a rule of plans, models or clusters
        result.reason = error.what();
    }
    result.assumptions = run.inferred;
    result.assumptions.insert(result.assumptions.end(), assumptions.texts().begin(), assumptions.texts().end());
    return result;
}

}  // namespace orrery::published
