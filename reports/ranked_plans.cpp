#include "reports/ranked_plans.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "reports/table.h"
#include "sim/program/memory_spread.h"

namespace orrery::reports {
namespace {

using json = nlohmann::ordered_json;
using program::PlanResult;

/// A column of the table; those that are not always there appear when some feasible plan makes use of them.
struct PlanColumn {
    Column column;
    std::string (*cell)(const PlanResult&);
    bool (*used)(const PlanResult&);  // null: always
};

std::string interval_text(const PlanResult& result) {
    if (result.step_time_high_s <= 0) return "-";
    // Of the logarithm, so that one figure says both ends.
    const double spread = std::sqrt(result.step_time_high_s / result.step_time_low_s) - 1;
    return "±" + format_percent(spread);
}

program::MemoryOutlook outlook_of(const PlanResult& result) {
    return program::memory_outlook(result.peak_memory_gib, result.plan);
}

const std::vector<PlanColumn>& plan_columns() {
    static const std::vector<PlanColumn> columns = {
        {{"dp"}, [](const PlanResult& r) { return format_integer(r.plan.parallelism.dp); }, nullptr},
        {{"tp"}, [](const PlanResult& r) { return format_integer(r.plan.parallelism.tp); }, nullptr},
        {{"cp"},
         [](const PlanResult& r) { return format_integer(r.plan.parallelism.cp); },
         [](const PlanResult& r) { return r.plan.parallelism.cp > 1; }},
        {{"ep"},
         [](const PlanResult& r) { return format_integer(r.plan.parallelism.ep); },
         [](const PlanResult& r) { return r.plan.parallelism.ep > 1; }},
        {{"pp"}, [](const PlanResult& r) { return format_integer(r.plan.parallelism.pp); }, nullptr},
        {{"sp", Align::left},
         [](const PlanResult& r) { return std::string(r.plan.parallelism.sequence_parallel ? "yes" : "no"); },
         nullptr},
        {{"data", Align::left},
         [](const PlanResult& r) { return program::name_of(r.plan.parallelism.data_parallel); },
         [](const PlanResult& r) { return r.plan.parallelism.data_parallel != program::DataParallel::ddp; }},
        {{"schedule", Align::left},
         [](const PlanResult& r) {
             return r.plan.parallelism.pp > 1 ? program::name_of(r.plan.parallelism.schedule) : "-";
         },
         nullptr},
        {{"chunks"},
         [](const PlanResult& r) { return format_integer(r.plan.parallelism.chunks); },
         [](const PlanResult& r) { return r.plan.parallelism.chunks > 1; }},
        {{"recompute", Align::left},
         [](const PlanResult& r) { return program::name_of(r.plan.training.memory.recompute); },
         [](const PlanResult& r) { return r.plan.training.memory.recompute != program::Recompute::none; }},
        {{"micro-batch"},
         [](const PlanResult& r) { return format_integer(r.plan.training.micro_batch_size); },
         nullptr},
        {{"micro-batches"}, [](const PlanResult& r) { return format_integer(r.plan.micro_batches()); }, nullptr},
        {{"step time"}, [](const PlanResult& r) { return format_seconds(r.step_time_s); }, nullptr},
        {{"90%"}, interval_text, [](const PlanResult& r) { return r.step_time_high_s > 0; }},
        {{"tokens/s/device"},
         [](const PlanResult& r) { return format_integer(static_cast<std::int64_t>(r.tokens_per_s_per_device)); },
         nullptr},
        {{"MFU"}, [](const PlanResult& r) { return format_percent(r.mfu); }, nullptr},
        {{"peak GiB"}, [](const PlanResult& r) { return format_fixed(r.peak_memory_gib, 1); }, nullptr},
        {{"P(fits)"},
         [](const PlanResult& r) { return format_percent(outlook_of(r).fit_probability); },
         [](const PlanResult& r) { return !r.plan.cluster.device.host_runs_compute; }},
        {{"exposed comm."}, [](const PlanResult& r) { return format_seconds(r.exposed_communication_s); }, nullptr},
        {{"bubble"}, [](const PlanResult& r) { return format_percent(r.bubble_fraction); }, nullptr}};
    return columns;
}

/// Reasons with how often each stands, most frequent first, then by text.
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

}  // namespace

std::string ranked_plans_text(std::span<const PlanResult> results, std::size_t max_rows) {
    std::vector<Column> headers = {{"#"}};
    std::vector<const PlanColumn*> columns;
    for (const PlanColumn& column : plan_columns()) {
        const bool used = column.used == nullptr ||
                          std::any_of(results.begin(), results.end(),
                                      [&](const auto& result) { return result.feasible && column.used(result); });
        if (!used) continue;
        columns.push_back(&column);
        headers.push_back(column.column);
    }
    Table table(headers);
    std::size_t place = 0;
    std::string convention;
    for (const PlanResult& result : results) {
        if (!result.feasible) continue;
        ++place;
        if (place > max_rows) continue;
        std::vector<std::string> cells = {fmt::format("{}", place)};
        for (const PlanColumn* column : columns) cells.push_back(column->cell(result));
        table.add_row(std::move(cells));
        if (convention.empty()) convention = result.mfu_convention;
    }
    std::string text;
    if (place > 0) {
        text = table.to_text();
        if (place > max_rows) text += fmt::format("and {} more feasible plans\n", place - max_rows);
        text += "MFU by " + convention +
                "; peak GiB is of the worst rank, context included; bubble is all time without compute\n";
    } else {
        text = "no feasible plan\n";
    }
    return text + reasons_text(results);
}

std::string ranked_plans_json(std::span<const PlanResult> results) {
    json plans = json::array();
    int place = 0;
    for (const PlanResult& result : results) {
        json object;
        object["rank"] = result.feasible ? json(++place) : json(nullptr);
        object["feasible"] = result.feasible;
        if (!result.reason.empty()) object["reason"] = result.reason;
        object["step_time_s"] = figure(result.feasible, result.step_time_s);
        if (result.step_time_high_s > 0) {
            object["step_time_interval90_s"] = {result.step_time_low_s, result.step_time_high_s};
        }
        object["tokens_per_s_per_device"] = figure(result.feasible, result.tokens_per_s_per_device);
        object["mfu"] = figure(result.feasible, result.mfu);
        object["mfu_convention"] = result.mfu_convention;
        object["peak_memory_gib"] = figure(result.feasible || result.peak_memory_gib > 0, result.peak_memory_gib);
        if (result.peak_memory_gib > 0 && !result.plan.cluster.device.host_runs_compute) {
            const program::MemoryOutlook outlook = outlook_of(result);
            object["peak_memory_interval90_gib"] = {outlook.low_gib, outlook.high_gib};
            object["fit_probability"] = outlook.fit_probability;
        }
        object["exposed_communication_s"] = figure(result.feasible, result.exposed_communication_s);
        object["bubble_fraction"] = figure(result.feasible, result.bubble_fraction);
        object["plan"] = json::parse(program::to_json_text(result.plan));
        plans.push_back(std::move(object));
    }
    const json document = {{"schema", "orrery.plans/1"}, {"plans", std::move(plans)}};
    return document.dump(2) + "\n";
}

}  // namespace orrery::reports
