#include "sim/planner/misfits.h"

#include "core/units.h"

namespace orrery::sim {

void Misfits::add(const Choice& choice, std::int64_t bytes, bool by_states) {
    Closest& closest = meshes_[mesh_of(choice)].closest;
    if (closest.bytes < 0 || closest.bytes > bytes) closest = {bytes, choice, by_states};
}

std::vector<program::PlanResult> Misfits::results(const PlanRequest& request) const {
    constexpr const char* kStatesDoNotFit = "parameters, gradients and optimizer states alone exceed device memory";
    std::vector<program::PlanResult> found;
    for (const auto& [key, mesh] : meshes_) {
        const Closest& closest = mesh.closest;
        if (closest.bytes < 0 || mesh.some_fit || mesh.open > 0) continue;
        found.push_back(
            {.plan = plan_of(request, closest.choice),
             .peak_memory_gib = to_gib(Bytes(closest.bytes)),
             .reason = closest.by_states ? kStatesDoNotFit : "does not fit in device memory",
             .limit = closest.by_states ? program::Limit::memory_states : program::Limit::memory_activations});
    }
    return found;
}

}  // namespace orrery::sim
