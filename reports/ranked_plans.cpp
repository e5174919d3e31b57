#include "reports/ranked_plans.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "reports/model_text.h"
#include "reports/scaling_report.h"
#include "reports/summary.h"
#include "reports/table.h"
#include "sim/program/rate_spread.h"
#include "sim/program/scaling_fields.h"
#include "sim/program/stage_layout.h"

namespace orrery::reports {
namespace {

using json = nlohmann::ordered_json;
using program::PlanResult;

/// A column of the table. Every table has all columns, so that two tables can be compared, except columns that do not
/// apply to the request.
struct PlanColumn {
    Column column;
    std::string (*cell)(const PlanResult&);
    bool (*applies)(const PlanResult&);  // null: always
};

std::string interval_text(const PlanResult& result) {
    if (result.step_time_high_s <= 0) return "-";
    // Half-width on the logarithmic scale, so that one figure gives both ends.
    const double spread = std::sqrt(result.step_time_high_s / result.step_time_low_s) - 1;
    return "±" + format_percent(spread);
}

program::MemoryOutlook outlook_of(const PlanResult& result) {
    return program::memory_outlook(result.peak_memory_gib, result.plan);
}

/// "even" if every stage has as many blocks or the first ones have one more, which frameworks do unasked.
std::string stages_text(const PlanResult& result) {
    const std::vector<std::int64_t>& stages = result.plan.parallelism.stage_layers;
    const std::int64_t layers = result.plan.model.layers;
    const bool is_even = std::ssize(stages) <= layers && stages == program::even_stages(layers, std::ssize(stages));
    return is_even ? "even" : program::stage_layout_text(stages);
}

/// "none", the recomputed parts, "full", or "full 12" if only the first 12 blocks of each chunk are recomputed.
std::string recompute_text(const PlanResult& result) {
    const program::MemorySavings& memory = result.plan.training.memory;
    if (memory.recompute == program::Recompute::selective && !memory.recompute_parts.empty()) {
        return fmt::format("{}", fmt::join(memory.recompute_parts, "+"));
    }
    const std::string name = program::name_of(memory.recompute);
    return memory.recompute_layers < 0 ? name : fmt::format("{} {}", name, memory.recompute_layers);
}

/// What is kept in host memory: "none", "optimizer" or "parameters" (and the optimizer states), and "activations 12" if
/// those of the first 12 blocks of each chunk are.
std::string offload_text(const PlanResult& result) {
    const program::MemorySavings& memory = result.plan.training.memory;
    std::vector<std::string> kinds;
    if (memory.offload_layers > 0) kinds.push_back(fmt::format("activations {}", memory.offload_layers));
    if (memory.offload_optimizer) kinds.emplace_back(memory.offload_parameters ? "parameters" : "optimizer");
    return kinds.empty() ? "none" : fmt::format("{}", fmt::join(kinds, "+"));
}

std::string gathered_text(const PlanResult& result) {
    const program::Parallelism& p = result.plan.parallelism;
    return !p.shards_parameters() ? "-" : p.reshard_after_forward ? "freed" : "kept";
}

std::string schedule_text(const PlanResult& result) {
    const program::Parallelism& p = result.plan.parallelism;
    return p.pp > 1 ? program::name_of(p.schedule) : "-";
}

std::string fastest_within_text(const PlanResult& result) {
    if (!result.fastest_within.has_value()) return "-";
    return format_fixed(result.fastest_within->low_gib, 1) + " to " + format_fixed(result.fastest_within->high_gib, 1);
}

std::string usd_text(const PlanResult& result) {
    return amount_text(result.usd_per_billion_tokens);
}

std::string kwh_text(const PlanResult& result) {
    return amount_text(result.kwh_per_billion_tokens);
}

bool has_costs(const PlanResult& result) {
    return result.usd_per_billion_tokens.has_value() || result.kwh_per_billion_tokens.has_value();
}

const std::vector<PlanColumn>& plan_columns() {
    static const std::vector<PlanColumn> columns = {
        {{"stack", Align::left}, [](const PlanResult& r) { return r.plan.implementation.name; }, nullptr},
        {{"devices"},
         [](const PlanResult& r) { return format_integer(r.plan.parallelism.world_size()); },
         [](const PlanResult& r) { return r.spare_devices > 0 || has_costs(r); }},
        {{"spares"},
         [](const PlanResult& r) { return format_integer(r.spare_devices); },
         [](const PlanResult& r) { return r.spare_devices > 0; }},
        {{"dp"}, [](const PlanResult& r) { return format_integer(r.plan.parallelism.dp); }, nullptr},
        {{"tp"}, [](const PlanResult& r) { return format_integer(r.plan.parallelism.tp); }, nullptr},
        {{"cp"}, [](const PlanResult& r) { return format_integer(r.plan.parallelism.cp); }, nullptr},
        {{"ep"},
         [](const PlanResult& r) { return format_integer(r.plan.parallelism.ep); },
         [](const PlanResult& r) { return r.plan.model.has_experts(); }},
        {{"etp"},
         [](const PlanResult& r) { return format_integer(r.plan.parallelism.etp); },
         [](const PlanResult& r) { return r.plan.parallelism.etp > 1; }},
        {{"overlap", Align::left},
         [](const PlanResult& r) { return std::string(r.plan.parallelism.overlaps_experts ? "yes" : "no"); },
         [](const PlanResult& r) { return r.plan.parallelism.overlaps_experts; }},
        {{"pp"}, [](const PlanResult& r) { return format_integer(r.plan.parallelism.pp); }, nullptr},
        {{"sp", Align::left},
         [](const PlanResult& r) { return std::string(r.plan.parallelism.sequence_parallel ? "yes" : "no"); },
         nullptr},
        {{"data", Align::left},
         [](const PlanResult& r) { return program::name_of(r.plan.parallelism.data_parallel); },
         nullptr},
        {{"shards"},
         [](const PlanResult& r) { return format_integer(r.plan.parallelism.shard_ranks()); },
         [](const PlanResult& r) { return r.plan.parallelism.has_shard_sets(); }},
        {{"gathered", Align::left},
         gathered_text,
         [](const PlanResult& r) { return !r.plan.parallelism.reshard_after_forward; }},
        {{"order", Align::left},
         [](const PlanResult& r) { return program::mesh_order_text(r.plan.parallelism); },
         [](const PlanResult& r) { return r.plan.parallelism.order != program::Parallelism().order; }},
        {{"schedule", Align::left}, schedule_text, nullptr},
        {{"VPP"}, [](const PlanResult& r) { return format_integer(r.plan.parallelism.chunks); }, nullptr},
        {{"vocabulary", Align::left},
         [](const PlanResult& r) { return program::name_of(r.plan.parallelism.vocabulary_parallel); },
         [](const PlanResult& r) { return r.plan.parallelism.spreads_vocabulary(); }},
        {{"stages", Align::left}, stages_text, [](const PlanResult& r) { return stages_text(r) != "even"; }},
        {{"recompute", Align::left}, recompute_text, nullptr},
        {{"offload", Align::left}, offload_text, [](const PlanResult& r) { return offload_text(r) != "none"; }},
        {{"micro-batch"},
         [](const PlanResult& r) { return format_integer(r.plan.training.micro_batch_size); },
         nullptr},
        {{"micro-batches"}, [](const PlanResult& r) { return format_integer(r.plan.micro_batches()); }, nullptr},
        {{"step time"}, [](const PlanResult& r) { return format_seconds(r.step_time_s); }, nullptr},
        {{"90%"}, interval_text, [](const PlanResult& r) { return r.step_time_high_s > 0; }},
        {{"tokens/s/device"},
         [](const PlanResult& r) { return format_integer(static_cast<std::int64_t>(r.tokens_per_s_per_device)); },
         nullptr},
        {{"$/G tokens"}, usd_text, [](const PlanResult& r) { return r.usd_per_billion_tokens.has_value(); }},
        {{"kWh/G tokens"}, kwh_text, [](const PlanResult& r) { return r.kwh_per_billion_tokens.has_value(); }},
        {{"MFU"}, [](const PlanResult& r) { return format_percent(r.utilization.mfu); }, nullptr},
        {{"HFU"}, [](const PlanResult& r) { return format_percent(r.utilization.hfu); }, nullptr},
        {{"peak GiB"}, [](const PlanResult& r) { return format_fixed(r.peak_memory_gib, 1); }, nullptr},
        {{"P(fits)"},
         [](const PlanResult& r) { return format_percent(outlook_of(r).fit_probability); },
         [](const PlanResult& r) { return !r.plan.cluster.device.host_runs_compute; }},
        {{"fastest within GiB"}, fastest_within_text, [](const PlanResult& r) { return r.fastest_within.has_value(); }},
        {{"exposed comm."}, [](const PlanResult& r) { return format_seconds(r.exposed_communication_s); }, nullptr},
        {{"bubble"}, [](const PlanResult& r) { return format_percent(r.bubble_fraction); }, nullptr},
        {{"idle"}, [](const PlanResult& r) { return format_percent(r.idle_fraction); }, nullptr}};
    return columns;
}

/// Reasons with their counts, most frequent first, then by text.
std::vector<std::pair<std::string, int>> reasons_of(std::span<const PlanResult> results) {
    std::map<std::string, int> counts;
    for (const PlanResult& result : results) {
        if (!result.feasible) ++counts[result.reason];
    }
    std::vector<std::pair<std::string, int>> sorted(counts.begin(), counts.end());
    std::stable_sort(sorted.begin(), sorted.end(), [](const auto& a, const auto& b) { return a.second > b.second; });
    return sorted;
}

std::string reasons_text(std::span<const PlanResult> results) {
    constexpr std::size_t kMostReasons = 8;
    const auto reasons = reasons_of(results);
    if (reasons.empty()) return "";
    const auto count =
        std::count_if(results.begin(), results.end(), [](const PlanResult& result) { return !result.feasible; });
    std::string text = fmt::format("\n{} {} not feasible:\n", count, count == 1 ? "plan is" : "plans are");
    for (std::size_t i = 0; i < std::min(reasons.size(), kMostReasons); ++i) {
        text += fmt::format("  {:>4}  {}\n", reasons[i].second, reasons[i].first);
    }
    if (reasons.size() > kMostReasons)
        text += fmt::format("        and {} other reasons\n", reasons.size() - kMostReasons);
    return text;
}

json figure(bool feasible, double value) {
    return feasible ? json(value) : json(nullptr);
}

/// A plan other than the first that cannot be told apart from it.
bool is_tied(const PlanResult& result, std::size_t place) {
    return place > 1 && result.to_first.has_value() && result.to_first->is_tie();
}

std::string ties_text(std::span<const PlanResult> results, std::size_t max_rows) {
    std::size_t place = 0, ties = 0;
    for (const PlanResult& result : results) {
        if (result.feasible && ++place <= max_rows && is_tied(result, place)) ++ties;
    }
    if (ties == 0) return "";
    return "=: indistinguishable from 1, since the 90% interval of the ratio of the two steps contains 1\n";
}

json fix_json(const PlanResult& result) {
    if (!result.fix.has_value()) return nullptr;
    return {{"change", result.fix->change}, {"gib", result.fix->gib}, {"step_time_s", result.fix->step_time_s}};
}

/// What the model's known errors and the step's derivatives say about a result.
void add_standing(const PlanResult& result, json& object) {
    const bool compared = result.to_first.has_value();
    object["tie"] = compared ? json(result.to_first->is_tie()) : json(nullptr);
    object["step_ratio_to_first"] = figure(compared, compared ? result.to_first->ratio : 0);
    if (compared) object["step_ratio_to_first_interval90"] = {result.to_first->low, result.to_first->high};
    object["faster_than_first_probability"] = figure(compared, compared ? result.to_first->faster_probability : 0);
    object["binding_constraint"] =
        result.limit.has_value() ? json(std::string(program::name_of(*result.limit))) : json(nullptr);
    json shares = json::object();
    for (const program::LimitShare& one : result.shares) shares[std::string(program::name_of(one.limit))] = one.share;
    object["step_shares"] = std::move(shares);
    if (result.fastest_within.has_value()) {
        object["fastest_within_gib"] = {result.fastest_within->low_gib, result.fastest_within->high_gib};
    }
    object["fix"] = fix_json(result);
}

json counts_json(const program::SearchCounts& counts) {
    return {{"considered", counts.considered}, {"bounded", counts.bounded},     {"sketched", counts.sketched},
            {"simulated", counts.simulated},   {"too_large", counts.too_large}, {"left_out", counts.left_out},
            {"searches", counts.searches}};
}

json spaces_json(const std::vector<program::SearchSpace>& spaces) {
    json list = json::array();
    for (const program::SearchSpace& space : spaces) {
        json searched = json::object();
        for (const auto& [name, values] : space.searched) searched[name] = values;
        list.push_back(
            {{"implementation", space.implementation}, {"searched", std::move(searched)}, {"outside", space.outside}});
    }
    return list;
}

/// What the plans' model lacks of the model file, and how much of the training that is.
void add_left_out(json& document, const program::Plan& plan) {
    if (plan.model.left_out.empty()) return;
    document["left_out_of_model"]["keys"] = plan.model.left_out;
    if (plan.model.left_out_prediction_layers == 0) return;
    const LeftOutShares shares = left_out_shares(plan.model, plan.training.sequence_length);
    document["left_out_of_model"]["parameter_share"] = shares.parameters;
    document["left_out_of_model"]["flops_share"] = shares.flops;
}

}  // namespace

std::string ranked_plans_text(std::span<const PlanResult> results, std::size_t max_rows) {
    std::vector<Column> headers = {{"#"}};
    std::vector<const PlanColumn*> columns;
    for (const PlanColumn& column : plan_columns()) {
        const bool shown = column.applies == nullptr ||
                           std::any_of(results.begin(), results.end(),
                                       [&](const auto& result) { return result.feasible && column.applies(result); });
        if (!shown) continue;
        columns.push_back(&column);
        headers.push_back(column.column);
    }
    Table table(headers);
    std::size_t place = 0;
    std::vector<std::string> words;  // definitions of MFU and HFU, one per data type in the table
    for (const PlanResult& result : results) {
        if (!result.feasible) continue;
        ++place;
        if (place > max_rows) continue;
        std::vector<std::string> cells = {fmt::format("{}{}", place, is_tied(result, place) ? "=" : "")};
        for (const PlanColumn* column : columns) cells.push_back(column->cell(result));
        table.add_row(std::move(cells));
        std::string of_type = utilization_words(result.plan, result.utilization);
        if (std::find(words.begin(), words.end(), of_type) == words.end()) words.push_back(std::move(of_type));
    }
    std::string text;
    if (place > 0) {
        text = table.to_text();
        if (place > max_rows) text += fmt::format("and {} more feasible plans\n", place - max_rows);
        text += ties_text(results, max_rows);
        for (const std::string& line : words) text += line + "\n";
        text +=
            "VPP: model chunks of a pipeline rank; peak GiB: in use on the fullest device; bubble: waits for other "
            "stages; idle: all time without compute\n";
        const auto shows = [&](const char* header) {
            return std::any_of(headers.begin(), headers.end(), [&](const Column& c) { return c.header == header; });
        };
        if (shows("$/G tokens") || shows("kWh/G tokens")) {
            text += "$/G tokens, kWh/G tokens: for a billion tokens, of all devices of the nodes\n";
        }
        if (shows("stages")) {
            text += "stages: the layout in Megatron's notation: E embedding, t block, L head, | between stages\n";
        }
        if (shows("shards"))
            text += "shards: data-parallel ranks that share one set of shards; the sets are replicas\n";
        if (shows("gathered")) text += "gathered: whether parameters that zero3 gathers are freed after the forward\n";
        if (shows("etp")) text += "etp: tensor-parallel ranks over which each expert is sharded\n";
        if (shows("overlap")) text += "overlap: whether passes compute while the tokens of another pass travel\n";
        if (shows("vocabulary")) text += "vocabulary: how the pipeline's stages share embedding and head\n";
        if (shows("offload")) {
            text += "offload: what is kept in host memory; activations N: those of each chunk's first N blocks\n";
        }
        if (shows("order")) text += "order: of the mesh's axes, the fastest-varying first\n";
    } else {
        text = "no feasible plan\n";
    }
    return text + reasons_text(results);
}

std::string ranked_plans_json(std::span<const PlanResult> results, const program::SearchSummary& search) {
    json plans = json::array();
    int place = 0;
    for (const PlanResult& result : results) {
        json object;
        object["rank"] = result.feasible ? json(++place) : json(nullptr);
        object["feasible"] = result.feasible;
        if (!result.reason.empty()) object["reason"] = result.reason;
        object["devices"] = result.plan.parallelism.world_size();
        object["spare_devices"] = result.spare_devices;
        object["step_time_s"] = figure(result.feasible, result.step_time_s);
        if (result.step_time_high_s > 0) {
            object["step_time_interval90_s"] = {result.step_time_low_s, result.step_time_high_s};
        }
        object["tokens_per_s_per_device"] = figure(result.feasible, result.tokens_per_s_per_device);
        if (const auto usd = result.usd_per_billion_tokens) object["usd_per_billion_tokens"] = *usd;
        if (const auto kwh = result.kwh_per_billion_tokens) object["kwh_per_billion_tokens"] = *kwh;
        object["mfu"] = figure(result.feasible, result.utilization.mfu);
        object["hfu"] = figure(result.feasible, result.utilization.hfu);
        object["mfu_convention"] = models::name_of(result.utilization.convention);
        object["mfu_peak_type"] = orrery::name_of(result.utilization.type);
        object["peak_memory_gib"] = figure(result.feasible || result.peak_memory_gib > 0, result.peak_memory_gib);
        if (result.peak_memory_gib > 0 && !result.plan.cluster.device.host_runs_compute) {
            const program::MemoryOutlook outlook = outlook_of(result);
            object["peak_memory_interval90_gib"] = {outlook.low_gib, outlook.high_gib};
            object["fit_probability"] = outlook.fit_probability;
        }
        object["exposed_communication_s"] = figure(result.feasible, result.exposed_communication_s);
        object["idle_fraction"] = figure(result.feasible, result.idle_fraction);
        object["bubble_fraction"] = figure(result.feasible, result.bubble_fraction);
        add_standing(result, object);
        object["plan"] = json::parse(program::to_json_text(result.plan));
        plans.push_back(std::move(object));
    }
    json document = {
        {"schema", "orrery.plans/2"},
        {"objective", std::string(program::name_of(search.objective))},
        {"memory_limit_gib", search.memory_limit_gib},
        {"step_limit_s", figure(!std::isinf(search.step_limit_s), search.step_limit_s)},
        {"considered", counts_json(search.counts)},
        {"proven_gap", {{"gap", search.proven_gap}, {"tolerance", search.tolerance}, {"ranks", search.proven_ranks}}},
        {"space", spaces_json(search.spaces)}};
    if (search.objective == program::Objective::cost || search.objective == program::Objective::energy) {
        JsonValue figures = JsonValue::object();
        write_fields(figures, search.figures);
        document["figures"] = json::parse(figures.text(2));
    }
    if (!results.empty()) add_left_out(document, results.front().plan);
    document["plans"] = std::move(plans);
    return document.dump(2) + "\n";
}

}  // namespace orrery::reports
