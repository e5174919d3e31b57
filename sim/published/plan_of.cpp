#include "sim/published/plan_of.h"

#include "core/error.h"
#include "sim/published/translation.h"

namespace orrery::published {
namespace {

program::Plan translate(const PublishedRun& run, Assumptions& assumptions) {
    program::Plan plan;
    plan.name = run.id;
    plan.cluster = cluster_of(run, assumptions);
    plan.implementation = implementation_of(run, assumptions);
    plan.model = model_of(run, assumptions);
    plan.parallelism = parallelism_of(run, plan.model, plan.implementation, assumptions);
    plan.training = training_of(run, plan.model, plan.implementation, plan.parallelism, assumptions);
    program::check_plan(plan, "its plan");
    const std::string published = "published: " + run.source;
    for (const char* pointer : {"/model", "/cluster", "/implementation", "/parallelism", "/training"}) {
        plan.origins[pointer] = published;
    }
    for (const auto& [pointer, origin] : assumptions.origins()) plan.origins[pointer] = origin;
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
    } catch (const InputError& error) {  // a rule of plans, models or clusters that the run breaks
        result.reason = error.what();
    }
    result.assumptions = assumptions.texts();
    return result;
}

}  // namespace orrery::published
