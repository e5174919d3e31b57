#include "cli/strict.h"

#include <fmt/format.h>

#include <cmath>
#include <nlohmann/json.hpp>
#include <vector>

#include "core/error.h"
#include "sim/planner/planner.h"
#include "sim/program/rate_spread.h"

namespace orrery::cli {
namespace {

using nlohmann::json;
using topologies::Provenance;

constexpr double kChange = 0.9, kMatters = 1e-3;

/// Rates: the effect of a change follows from the step's derivatives.
void add_rates(const program::Plan& plan, const sim::Evaluation& evaluation, std::vector<std::string>& assumptions) {
    const auto slopes = program::rate_slopes(plan, evaluation.sensitivity, evaluation.record.step_time_s);
    for (const program::RateRow& row : program::rate_rows()) {
        const program::Rates::Resolved& resolved = plan.rates.of(row.key);
        const auto slope = slopes.find(resolved.name);
        if (resolved.rate.kind != Provenance::fallback || slope == slopes.end()) continue;
        if (std::abs(slope->second) * (1 - kChange) < kMatters) continue;
        assumptions.push_back(
            fmt::format("rate {} {:.3g} ({})", resolved.name, resolved.rate.value, resolved.rate.source));
    }
}

/// Finds the JSON pointers of figures that are assumptions.
void find_assumed(const json& value, const json::json_pointer& at, std::vector<json::json_pointer>& found) {
    if (value.is_object() && value.contains("kind") && value.contains("value")) {
        if (value.at("kind") == topologies::name_of(Provenance::fallback)) found.push_back(at);
    } else if (value.is_object()) {
        for (const auto& [key, inner] : value.items()) find_assumed(inner, at / key, found);
    } else if (value.is_array()) {
        for (std::size_t i = 0; i < value.size(); ++i) find_assumed(value[i], at / i, found);
    }
}

/// Figures of devices and links: the effect of a change is simulated.
void add_figures(const program::Plan& plan, const sim::Evaluation& evaluation, std::vector<std::string>& assumptions) {
    const json cluster = json::parse(topologies::to_json_text(plan.cluster));
    std::vector<json::json_pointer> assumed;
    find_assumed(cluster, json::json_pointer(), assumed);
    for (const json::json_pointer& at : assumed) {
        json changed = cluster;
        json& value = changed[at]["value"];
        if (value == 0) continue;
        value = value.get<double>() * kChange;
        // The usable memory must not exceed the capacity.
        if (at.back() == "memory_capacity_gib") changed[at.parent_pointer()].erase("usable_memory_gib");
        program::Plan other = plan;
        other.cluster =
            topologies::cluster_from_json_text(changed.dump(), "the cluster with a changed " + at.to_string());
        const sim::Evaluation one = sim::evaluate(program::lower(other), topologies::Cluster(other.cluster));
        const double change = one.record.step_time_s / evaluation.record.step_time_s - 1;
        if (std::abs(change) < kMatters && one.result.feasible == evaluation.result.feasible) continue;
        const json& figure = cluster.at(at);
        assumptions.push_back(fmt::format("{} {} ({})", at.to_string(), figure.at("value").dump(),
                                          figure.at("source").get<std::string>()));
    }
}

}  // namespace

void refuse_left_out(const models::ModelSpec& model, const std::string& source) {
    if (model.left_out.empty()) return;
    throw InputError(source, "--strict", fmt::format("a model without {}", fmt::join(model.left_out, "; ")),
                     "a model of which nothing is left out");
}

void refuse_assumptions(const program::Program& program, const std::string& source) {
    const program::Plan& plan = *program.plan;
    refuse_left_out(plan.model, source);
    const sim::Evaluation evaluation = sim::evaluate(program, topologies::Cluster(plan.cluster), {.derivatives = true});
    std::vector<std::string> assumptions;
    add_rates(plan, evaluation, assumptions);
    add_figures(plan, evaluation, assumptions);
    if (assumptions.empty()) return;
    std::string text = fmt::format("a prediction that rests on {} assumptions: ", assumptions.size());
    for (std::size_t i = 0; i < assumptions.size(); ++i) text += (i == 0 ? "" : "; ") + assumptions[i];
    throw InputError(source, "--strict", text, "one from rates and figures that were measured, fitted or stated");
}

}  // namespace orrery::cli
