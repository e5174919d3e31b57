#include "reports/plan_diff.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <map>
#include <nlohmann/json.hpp>
#include <string_view>
#include <utility>
#include <vector>

#include "core/units.h"
#include "reports/table.h"
#include "reports/time_part.h"

namespace orrery::reports {
namespace {

using program::DiffRow;

PartTimes mean_parts(const DiffSide& side) {
    const PartTable table(*side.program, side.weight);
    return breakdown_of(*side.program, *side.record, table).mean.parts;
}

/// The memory of the rank that needs most, by what it holds; the last part is what its tensors do not explain.
std::map<std::string, std::int64_t> memory_of(const DiffSide& side) {
    const auto& ranks = side.record->ranks;
    const auto fullest = std::max_element(ranks.begin(), ranks.end(), [](const auto& a, const auto& b) {
        return a.memory_peak_bytes < b.memory_peak_bytes;
    });
    std::map<std::string, std::int64_t> parts;
    std::int64_t left = fullest->memory_peak_bytes;
    for (const program::MemoryPart& part : fullest->memory) {
        // Executed ranks measure what their parts need; a sum beyond the peak is cut at it.
        const std::int64_t bytes = std::min(part.bytes, left);
        parts[part.part] += bytes;
        left -= bytes;
    }
    parts["other"] += left;
    return parts;
}

std::vector<DiffRow> rows_of(const std::map<std::string, std::int64_t>& before,
                             const std::map<std::string, std::int64_t>& after) {
    std::map<std::string, DiffRow> rows;
    for (const auto& [what, value] : before) rows[what].before = value;
    for (const auto& [what, value] : after) rows[what].after = value;
    std::vector<DiffRow> list;
    for (auto& [what, row] : rows) {
        if (row.before == 0 && row.after == 0) continue;
        row.what = what;
        list.push_back(row);
    }
    std::stable_sort(list.begin(), list.end(),
                     [](const DiffRow& a, const DiffRow& b) { return std::abs(a.change()) > std::abs(b.change()); });
    return list;
}

/// The values of a plan by their paths, without what only explains them.
std::map<std::string, std::string> inputs_of(const program::Plan& plan) {
    nlohmann::json document = nlohmann::json::parse(program::to_json_text(plan));
    for (const char* key : {"schema", "name", "origins"}) document.erase(key);
    std::map<std::string, std::string> inputs;
    const nlohmann::json flat = document.flatten();
    for (const auto& [pointer, value] : flat.items()) {
        if (pointer.ends_with("/source") || pointer.ends_with("/kind")) continue;
        if (pointer.starts_with("/implementation/supports/")) continue;  // what it could do
        std::string path = pointer.substr(1);
        std::replace(path.begin(), path.end(), '/', '.');
        if (path.ends_with(".value")) path.resize(path.size() - std::string(".value").size());
        inputs[path] = value.dump();
    }
    return inputs;
}

std::vector<program::ChangedInput> changed_inputs(const program::Plan& before, const program::Plan& after) {
    std::map<std::string, program::ChangedInput> all;
    for (const auto& [path, value] : inputs_of(before)) all[path].before = value;
    for (const auto& [path, value] : inputs_of(after)) all[path].after = value;
    std::vector<program::ChangedInput> changed;
    for (auto& [path, input] : all) {
        if (input.before == input.after) continue;
        input.path = path;
        changed.push_back(input);
    }
    // What a planner chooses first, then what it chooses for, then how it is computed.
    const auto place = [](const program::ChangedInput& input) {
        static constexpr std::array<std::string_view, 6> kOrder{"parallelism", "training",       "model",
                                                                "cluster",     "implementation", "rates"};
        const std::string first = input.path.substr(0, input.path.find('.'));
        return std::find(kOrder.begin(), kOrder.end(), first) - kOrder.begin();
    };
    std::stable_sort(changed.begin(), changed.end(),
                     [&place](const auto& a, const auto& b) { return place(a) < place(b); });
    return changed;
}

double tokens_per_s(const DiffSide& side) {
    const program::Training& training = side.program->plan->training;
    return static_cast<double>(training.global_batch_size * training.sequence_length) / side.record->step_time_s;
}

std::string milliseconds(std::int64_t picoseconds) {
    return format_fixed(static_cast<double>(picoseconds) / 1e9, 3);
}
std::string gibibytes(std::int64_t bytes) {
    return format_fixed(static_cast<double>(bytes) / kGibibyte, 3);
}
template <typename Format>
std::string with_sign(std::int64_t value, const Format& format) {
    return (value > 0 ? "+" : "") + format(value);
}

/// With a sum below the rows.
template <typename Format>
std::string rows_text(const std::vector<DiffRow>& rows, const char* what, const char* unit, const Format& format) {
    Table table({{what, Align::left}, {std::string("before ") + unit}, {"after"}, {"change"}});
    DiffRow sum;
    for (const DiffRow& row : rows) {
        table.add_row({part_label(row.what), format(row.before), format(row.after), with_sign(row.change(), format)});
        sum.before += row.before;
        sum.after += row.after;
    }
    table.add_rule();
    table.add_row({"sum", format(sum.before), format(sum.after), with_sign(sum.change(), format)});
    return table.to_text();
}

}  // namespace

program::PlanDiff diff_of(const DiffSide& before, const DiffSide& after) {
    program::PlanDiff diff{
        .before = before.file,
        .after = after.file,
        .measured = before.record->maker == program::Maker::executed && after.record->maker == program::Maker::executed,
        .step_before_s = before.record->step_time_s,
        .step_after_s = after.record->step_time_s,
        .tokens_per_s_before = tokens_per_s(before),
        .tokens_per_s_after = tokens_per_s(after)};
    std::map<std::string, std::int64_t> parts_before, parts_after;
    const PartTimes of_before = mean_parts(before), of_after = mean_parts(after);
    for (const TimePart part : kTimeParts) {
        parts_before[std::string(name_of(part))] = of_before[part];
        parts_after[std::string(name_of(part))] = of_after[part];
    }
    diff.time_ps = rows_of(parts_before, parts_after);
    diff.memory_bytes = rows_of(memory_of(before), memory_of(after));
    diff.inputs = changed_inputs(*before.program->plan, *after.program->plan);
    return diff;
}

std::string diff_text(const program::PlanDiff& diff, std::size_t most_inputs) {
    std::string text = fmt::format("step {} -> {} ({}), {} -> {} tokens/s ({}), {}\n",
                                   format_seconds(diff.step_before_s), format_seconds(diff.step_after_s),
                                   format_signed_percent(diff.step_after_s / diff.step_before_s - 1),
                                   format_integer(static_cast<std::int64_t>(diff.tokens_per_s_before)),
                                   format_integer(static_cast<std::int64_t>(diff.tokens_per_s_after)),
                                   format_signed_percent(diff.tokens_per_s_after / diff.tokens_per_s_before - 1),
                                   diff.measured ? "measured" : "predicted");
    text += "\n" + rows_text(diff.time_ps, "time of a mean rank", "ms", milliseconds);
    text += "\n" + rows_text(diff.memory_bytes, "memory of the fullest rank", "GiB", gibibytes);
    if (diff.inputs.empty()) return text + "\nno input differs\n";
    Table table({{"input", Align::left}, {"before", Align::left}, {"after", Align::left}});
    for (std::size_t i = 0; i < std::min(most_inputs, diff.inputs.size()); ++i) {
        const program::ChangedInput& input = diff.inputs[i];
        table.add_row({input.path, input.before.empty() ? "-" : input.before, input.after.empty() ? "-" : input.after});
    }
    text += "\n" + table.to_text();
    if (diff.inputs.size() > most_inputs) {
        text += fmt::format("and {} other inputs (--json lists them)\n", diff.inputs.size() - most_inputs);
    }
    return text;
}

}  // namespace orrery::reports
