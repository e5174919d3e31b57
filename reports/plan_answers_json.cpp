// orrery.plan_answers/1.
#include <nlohmann/json.hpp>

#include "core/units.h"
#include "reports/plan_answers.h"
#include "reports/summary.h"

namespace orrery::reports {
namespace {

using json = nlohmann::ordered_json;
using program::GuideOption;
using program::MemoryNeed;
using program::PlanResult;
using program::WhatIf;

json memory_json(const MemoryNeed& memory) {
    return {{"fits", memory.fits()},
            {"where", memory.where},
            {"needed_bytes", memory.needed_bytes},
            {"allowed_bytes", memory.allowed_bytes},
            {"states_bytes", memory.states_bytes},
            {"activation_bytes", memory.activation_bytes}};
}

json result_json(const PlanResult& result) {
    return {{"plan", result.plan.name},
            {"implementation", result.plan.implementation.name},
            {"strategy", strategy_of(result.plan)},
            {"devices", result.plan.parallelism.world_size()},
            {"step_time_s", result.step_time_s},
            {"tokens_per_s_per_device", result.tokens_per_s_per_device},
            {"exposed_communication_s", result.exposed_communication_s},
            {"bubble_fraction", result.bubble_fraction}};
}

json remedy_json(const std::optional<program::Remedy>& remedy) {
    if (!remedy) return nullptr;
    return {{"changes", remedy->changes},
            {"peak_memory_gib", remedy->peak_memory_gib},
            {"step_time_s", remedy->step_time_s}};
}

json changes_json(const std::vector<WhatIf>& changes) {
    json list = json::array();
    for (const WhatIf& change : changes) {
        list.push_back({{"change", change.change},
                        {"of", change.of},
                        {"devices", change.devices},
                        {"step_time_s", change.step_time_s},
                        {"tokens_per_s_per_device", change.tokens_per_s_per_device},
                        {"memory", memory_json(change.memory)}});
    }
    return list;
}

json unfit_json(const program::Plan& plan, const MemoryNeed& memory, const std::optional<program::Remedy>& fix) {
    return {{"plan", plan.name},
            {"implementation", plan.implementation.name},
            {"strategy", strategy_of(plan)},
            {"memory", memory_json(memory)},
            {"fix", remedy_json(fix)}};
}

json advice_json(const PlanAnswers& answers) {
    const program::PlanAdvice& advice = *answers.advice;
    json parts = json::object();
    const auto step = static_cast<double>(answers.time.mean.step_ps());
    for (const TimePart part : kTimeParts) {
        const std::int64_t time = answers.time.mean.parts[part];
        if (time != 0) parts[std::string(name_of(part))] = static_cast<double>(time) / step;
    }
    json meshes = json::array();
    for (const program::MeshMisfit& mesh : advice.meshes) {
        meshes.push_back(unfit_json(mesh.plan, mesh.memory, mesh.fix));
    }
    return {{"best", result_json(advice.best)},
            {"simulated_micro_batches", answers.simulated_micro_batches},
            {"shares", std::move(parts)},
            {"memory", memory_json(advice.memory)},
            {"plan_changes", changes_json(advice.plan_changes)},
            {"input_changes", changes_json(advice.input_changes)},
            {"meshes", std::move(meshes)},
            {"meshes_left_out", advice.meshes_left_out}};
}

json option_json(const GuideOption& option) {
    json object{{"name", option.name}, {"fits", option.fits()}};
    if (!option.result) {
        object["refused"] = option.refused;
        return object;
    }
    if (option.fits()) {
        object["best"] = result_json(*option.result);
    } else {
        object["nearest"] = {{"plan", option.result->plan.name},
                             {"implementation", option.result->plan.implementation.name},
                             {"strategy", strategy_of(option.result->plan)}};
    }
    object["memory"] = memory_json(option.memory);
    return object;
}

json guide_json(const program::PlanGuide& guide) {
    json forks = json::array();
    for (const program::GuideFork& fork : guide.forks) {
        json options = json::array();
        for (const GuideOption& option : fork.options) options.push_back(option_json(option));
        forks.push_back({{"question", fork.question},
                         {"rule", fork.rule},
                         {"options", std::move(options)},
                         {"answer", fork.answer}});
    }
    return {{"forks", std::move(forks)},
            {"by_rule", guide.by_rule ? result_json(*guide.by_rule) : json(nullptr)},
            {"best", guide.best ? result_json(*guide.best) : json(nullptr)}};
}

json nearest_json(const program::NearestPlan& nearest) {
    json object = unfit_json(nearest.plan, nearest.memory, nearest.fix);
    object["smallest_cluster"] = nullptr;
    if (nearest.cluster) {
        object["smallest_cluster"] = {{"devices", nearest.cluster->devices},
                                      {"largest_without_fit", nearest.cluster->largest_without_fit},
                                      {"best", result_json(nearest.cluster->best)}};
    }
    object["most_devices_tried"] = nearest.most_devices_tried;
    return object;
}

}  // namespace

std::string plan_answers_json(const PlanAnswers& answers) {
    json document{{"schema", "orrery.plan_answers/1"}};
    if (answers.advice) document["explanation"] = advice_json(answers);
    if (answers.guide) document["guide"] = guide_json(*answers.guide);
    if (answers.nearest) document["nothing_fits"] = nearest_json(*answers.nearest);
    return document.dump(2) + "\n";
}

}  // namespace orrery::reports
