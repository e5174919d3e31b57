#include "sim/planner/candidates.h"

#include <string>
#include <utility>

#include "core/error.h"

namespace orrery::sim {

namespace {

using program::Plan;

std::string name_of_plan(const Plan& plan) {
    const program::Parallelism& p = plan.parallelism;
    std::string name =
        plan.model.name + "-dp" + std::to_string(p.dp) + "-tp" + std::to_string(p.tp) + "-pp" + std::to_string(p.pp);
    if (p.sequence_parallel) name += "-sp";
    if (p.pp > 1) name += "-" + name_of(p.schedule);
    return name + "-mb" + std::to_string(plan.training.micro_batch_size);
}

/// Shapes that check_plan would refuse; said here without making a plan.
bool divides(const models::ModelSpec& model, std::int64_t tp) {
    return model.heads % tp == 0 && model.kv_heads % tp == 0 && model.ffn_hidden % tp == 0;
}

/// Sizes to try among the divisors of `samples`, and how many others are left out.
std::pair<std::vector<std::int64_t>, std::int64_t> micro_batch_sizes(std::int64_t samples, std::int64_t wanted) {
    if (wanted != 0) {
        if (samples % wanted != 0) return {};
        return {{wanted}, 0};
    }
    std::vector<std::int64_t> sizes;
    std::int64_t left_out = 0;
    for (const std::int64_t size : divisors(samples)) {
        if (size <= kEveryMicroBatch || 8 * size >= 9 * sizes.back()) {
            sizes.push_back(size);
        } else {
            ++left_out;
        }
    }
    return {std::move(sizes), left_out};
}

/// Adds the plans of one mesh, a family for each schedule with and without sequence parallelism.
void add_families(const PlanRequest& request, std::int64_t tp, std::int64_t pp, std::int64_t dp, CandidateList& list) {
    const auto [sizes, left_out] = micro_batch_sizes(request.training.global_batch_size / dp, request.micro_batch_size);
    if (sizes.empty()) return;
    for (const program::Schedule schedule : request.schedules) {
        if (pp == 1 && schedule != request.schedules.front()) continue;  // one stage: all schedules agree
        for (const bool sequence_parallel : {false, true}) {
            if (sequence_parallel && (tp == 1 || request.training.sequence_length % tp != 0)) continue;
            std::vector<Plan>& family = list.families.emplace_back();
            for (const std::int64_t micro_batch : sizes) {
                Plan plan{.model = request.model,
                          .cluster = request.cluster,
                          .implementation = request.implementation,
                          .parallelism = {.dp = dp,
                                          .tp = tp,
                                          .pp = pp,
                                          .sequence_parallel = sequence_parallel,
                                          .schedule = schedule,
                                          .stage_layers = program::even_stages(request.model.layers, pp)},
                          .training = request.training,
                          .origins = request.origins};
                plan.training.micro_batch_size = micro_batch;
                plan.name = name_of_plan(plan);
                program::check_plan(plan, "the request");
                family.push_back(std::move(plan));
            }
            list.considered += static_cast<std::int64_t>(family.size());
            list.left_out += left_out;
        }
    }
}

/// The degrees that the request fixes, for the message.
std::string fixed_degrees(const PlanRequest& request) {
    std::string text;
    const auto add = [&](const char* name, std::int64_t value) {
        if (value != 0) text += (text.empty() ? " with " : ", ") + std::string(name) + " " + std::to_string(value);
    };
    add("tp", request.tp);
    add("pp", request.pp);
    add("dp", request.dp);
    add("micro-batch", request.micro_batch_size);
    return text;
}

}  // namespace

std::vector<std::int64_t> divisors(std::int64_t n) {
    std::vector<std::int64_t> low, high;
    for (std::int64_t d = 1; d * d <= n; ++d) {
        if (n % d != 0) continue;
        low.push_back(d);
        if (d != n / d) high.push_back(n / d);
    }
    low.insert(low.end(), high.rbegin(), high.rend());
    return low;
}

CandidateList list_candidates(const PlanRequest& request) {
    CandidateList list;
    const std::int64_t batch = request.training.global_batch_size;
    for (const std::int64_t tp : divisors(request.devices)) {
        if ((request.tp != 0 && tp != request.tp) || !divides(request.model, tp)) continue;
        for (const std::int64_t pp : divisors(request.devices / tp)) {
            if ((request.pp != 0 && pp != request.pp) || pp > request.model.layers) continue;
            const std::int64_t dp = request.devices / tp / pp;
            if ((request.dp != 0 && dp != request.dp) || batch % dp != 0) continue;
            add_families(request, tp, pp, dp, list);
        }
    }
    if (list.considered == 0) {
        throw InputError(request.model.name + ": no plan divides" + fixed_degrees(request) + ": " +
                         std::to_string(request.devices) + " devices into dp * tp * pp with heads " +
                         std::to_string(request.model.heads) + ", kv_heads " + std::to_string(request.model.kv_heads) +
                         " and ffn_hidden " + std::to_string(request.model.ffn_hidden) +
                         " multiples of tp, pp at most " + std::to_string(request.model.layers) +
                         " layers, and the global batch " + std::to_string(batch) + " a multiple of dp * micro-batch");
    }
    return list;
}

}  // namespace orrery::sim
