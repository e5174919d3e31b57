// Explanations as text tables and as orrery.explanation/1.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <nlohmann/json.hpp>
#include <utility>

#include "core/units.h"
#include "reports/explanation.h"
#include "reports/summary.h"
#include "reports/table.h"

namespace orrery::reports {
namespace {

using json = nlohmann::ordered_json;
using program::MemoryFootprint;

constexpr std::size_t kMostClassColumns = 6;
constexpr std::size_t kMostStretches = 12;
constexpr std::size_t kMostSlots = 6;
constexpr std::size_t kMostStages = 4;

std::string share(std::int64_t part, std::int64_t whole) {
    return whole > 0 ? format_percent(static_cast<double>(part) / static_cast<double>(whole)) : "-";
}

std::string time_text(const Explanation& explanation) {
    const StepBreakdown& time = explanation.time;
    const bool each = time.classes.size() <= kMostClassColumns;
    std::vector<Column> columns = {{"part", Align::left}, {"mean"}, {"of step"}};
    if (time.classes.size() > 1) {
        if (each) {
            for (const ClassBreakdown& one : time.classes) columns.push_back({one.name});
        } else {
            columns.push_back({"least stage"});
            columns.push_back({"most stage"});
        }
    }
    Table table(columns);
    const std::int64_t step = time.mean.step_ps();
    const auto add_row = [&](const std::string& label, std::int64_t mean, const auto& of_class) {
        std::vector<std::string> row = {label, format_picoseconds(mean), share(mean, step)};
        if (time.classes.size() > 1) {
            std::vector<std::int64_t> values;
            for (const ClassBreakdown& one : time.classes) values.push_back(of_class(one.mean));
            if (!each)
                values = {*std::min_element(values.begin(), values.end()),
                          *std::max_element(values.begin(), values.end())};
            for (const std::int64_t value : values) row.push_back(format_picoseconds(value));
        }
        table.add_row(std::move(row));
    };
    for (const TimePart part : kTimeParts) {
        const auto in = [&](const Breakdown& one) { return one.parts[part]; };
        const bool used = in(time.mean) != 0 || std::any_of(time.classes.begin(), time.classes.end(),
                                                            [&](const auto& one) { return in(one.mean) != 0; });
        if (used) add_row((is_communication(part) ? "exposed " : "") + label_of(part), in(time.mean), in);
    }
    table.add_rule();
    add_row("step", step, [](const Breakdown& one) { return one.step_ps(); });
    return "\nTime of a rank's compute stream: computation by kind, idle time by cause\n" + table.to_text(2);
}

std::string communication_text(const Explanation& explanation) {
    const Breakdown& mean = explanation.time.mean;
    Table table({{"group", Align::left}, {"busy"}, {"hidden"}, {"exposed"}, {"waiting for members"}});
    for (const TimePart part : kTimeParts) {
        if (mean.busy[part] == 0 && (!is_communication(part) || mean.parts[part] == 0)) continue;
        table.add_row({std::string(name_of(part)), format_picoseconds(mean.busy[part]),
                       format_picoseconds(mean.hidden[part]), format_picoseconds(mean.parts[part]),
                       part == TimePart::pp || part == TimePart::copies ? "" : format_picoseconds(mean.waiting[part])});
    }
    if (table.row_count() == 0) return "";
    return "\nCommunication and copies, mean over the ranks; hidden: overlapped with computation\n" + table.to_text(2);
}

/// The largest parts: "matrix products 60.1%, tp 12.0%".
std::string largest_parts(const PartTimes& parts, std::int64_t whole, std::size_t most) {
    std::vector<std::pair<std::int64_t, TimePart>> sorted;
    for (const TimePart part : kTimeParts) {
        if (parts[part] > 0) sorted.emplace_back(parts[part], part);
    }
    std::stable_sort(sorted.begin(), sorted.end(), [](const auto& a, const auto& b) { return a.first > b.first; });
    std::string text;
    for (std::size_t i = 0; i < std::min(sorted.size(), most); ++i) {
        text += fmt::format("{}{} {}", i > 0 ? ", " : "", label_of(sorted[i].second), share(sorted[i].first, whole));
    }
    return text;
}

std::string path_text(const CriticalPath& path) {
    if (path.stretches.empty()) return "";
    Table parts({{"part", Align::left}, {"on the path"}, {"share"}});
    for (const TimePart part : kTimeParts) {
        const std::int64_t value = path.parts[part];
        if (value > 0) parts.add_row({label_of(part), format_picoseconds(value), share(value, path.length_ps)});
    }
    std::string text = fmt::format("\nCritical path: {} from the step's first instruction to its last\n{}",
                                   format_picoseconds(path.length_ps), parts.to_text(2));
    // A path that alternates between stages has thousands of stretches; the longest are shown, in order of time.
    std::vector<const PathStretch*> shown;
    for (const PathStretch& stretch : path.stretches) shown.push_back(&stretch);
    std::stable_sort(shown.begin(), shown.end(), [](const PathStretch* a, const PathStretch* b) {
        return a->to_ps - a->from_ps > b->to_ps - b->from_ps;
    });
    if (shown.size() > kMostStretches) shown.resize(kMostStretches);
    std::stable_sort(shown.begin(), shown.end(),
                     [](const PathStretch* a, const PathStretch* b) { return a->from_ps < b->from_ps; });
    Table stretches(
        {{"from"}, {"time"}, {"rank"}, {"stage", Align::left}, {"action", Align::left}, {"mainly", Align::left}});
    for (const PathStretch* stretch : shown) {
        const std::int64_t time = stretch->to_ps - stretch->from_ps;
        stretches.add_row({format_picoseconds(stretch->from_ps), format_picoseconds(time),
                           fmt::format("{}", stretch->rank), stretch->stage, stretch->action,
                           largest_parts(stretch->parts, time, 2)});
    }
    text += shown.size() < path.stretches.size()
                ? fmt::format("\n  The longest {} of its {} stretches\n", shown.size(), path.stretches.size())
                : "\n  Its stretches\n";
    return text + stretches.to_text(2);
}

struct Category {
    const char* name;
    std::int64_t MemoryFootprint::*bytes;
};
constexpr std::array<Category, 8> kFixed = {{{"parameters", &MemoryFootprint::parameters},
                                             {"gathered", &MemoryFootprint::gathered},
                                             {"gradients", &MemoryFootprint::gradients},
                                             {"reductions", &MemoryFootprint::reductions},
                                             {"optimizer_states", &MemoryFootprint::optimizer_states},
                                             {"offload_window", &MemoryFootprint::offload_window},
                                             {"framework", &MemoryFootprint::framework},
                                             {"boundaries", &MemoryFootprint::boundaries_arena}}};

std::string slots_text(const program::PeakContents& peak, bool transient) {
    std::string text;
    std::size_t shown = 0, all = 0;
    for (const program::LiveSlots& slots : peak.slots) {
        if (slots.transient != transient) continue;
        if (++all > kMostSlots) continue;
        text += fmt::format("{}{} {}", shown++ > 0 ? ", " : "", slots.name, format_memory(slots.bytes));
        if (slots.count > 1) text += fmt::format(" ({})", format_integer(slots.count));
    }
    if (all > kMostSlots) text += fmt::format(", {} more", all - kMostSlots);
    return text;
}

std::string peak_text(const Explanation& explanation, const ClassMemory& memory) {
    if (memory.peak_action.empty()) return fmt::format("  {}: nothing beyond what is always live\n", memory.name);
    const program::PeakContents& peak = memory.peak;
    std::string text = fmt::format("  {}, in {}: {} of {} micro-batches\n", memory.name, memory.peak_action,
                                   format_integer(peak.micro_batches), format_integer(explanation.micro_batches));
    text += fmt::format("    activations {}: {}\n", format_memory(peak.activation_bytes), slots_text(peak, false));
    text += fmt::format("    transients {}: {}\n", format_memory(peak.transient_bytes), slots_text(peak, true));
    return text;
}

std::string memory_text(const Explanation& explanation) {
    std::vector<Column> columns = {{"stage", Align::left}};
    std::vector<Category> used;
    for (const Category& category : kFixed) {
        if (std::all_of(explanation.memory.begin(), explanation.memory.end(),
                        [&](const ClassMemory& memory) { return memory.footprint.*category.bytes == 0; })) {
            continue;
        }
        used.push_back(category);
        std::string name = category.name;
        std::replace(name.begin(), name.end(), '_', ' ');
        columns.push_back({name});
    }
    for (const char* name : {"activations", "transients", "live peak"}) columns.push_back({name});
    Table table(columns);
    for (const ClassMemory& memory : explanation.memory) {
        std::vector<std::string> row = {memory.name};
        for (const Category& category : used) row.push_back(format_memory(memory.footprint.*category.bytes));
        row.insert(row.end(), {format_memory(memory.peak.activation_bytes), format_memory(memory.peak.transient_bytes),
                               format_memory(memory.footprint.live_peak)});
        table.add_row(std::move(row));
    }
    std::string text = "\nMemory of a rank at its live peak, without the device's context\n" + table.to_text(2) +
                       "\nLive at the peak beyond what is always live: the largest slots (in brackets: their number)\n";
    for (std::size_t i = 0; i < std::min(explanation.memory.size(), kMostStages); ++i) {
        text += peak_text(explanation, explanation.memory[i]);
    }
    if (explanation.memory.size() > kMostStages) {
        text += fmt::format("  and {} more stages\n", explanation.memory.size() - kMostStages);
    }
    return text;
}

json parts_json(const PartTimes& times, bool all) {
    json object = json::object();
    for (const TimePart part : kTimeParts) {
        if (all || times[part] != 0) object[std::string(name_of(part))] = times[part];
    }
    return object;
}

json breakdown_json(const Breakdown& one) {
    json groups = json::array();
    for (const TimePart part : kTimeParts) {
        if (one.busy[part] == 0 && (!is_communication(part) || one.parts[part] == 0)) continue;
        groups.push_back({{"group", name_of(part)},
                          {"busy_ps", one.busy[part]},
                          {"hidden_ps", one.hidden[part]},
                          {"exposed_ps", one.parts[part]},
                          {"waiting_ps", one.waiting[part]}});
    }
    return {{"parts_ps", parts_json(one.parts, true)}, {"communication", std::move(groups)}};
}

json path_json(const CriticalPath& path) {
    json stretches = json::array();
    for (const PathStretch& stretch : path.stretches) {
        stretches.push_back({{"rank", stretch.rank},
                             {"class", stretch.stage},
                             {"action", stretch.action},
                             {"instructions", stretch.instructions},
                             {"from_ps", stretch.from_ps},
                             {"to_ps", stretch.to_ps},
                             {"parts_ps", parts_json(stretch.parts, false)}});
    }
    return {
        {"length_ps", path.length_ps}, {"parts_ps", parts_json(path.parts, true)}, {"stretches", std::move(stretches)}};
}

json memory_json(const ClassMemory& memory) {
    json object = {{"class", memory.name}};
    json bytes = json::object();
    for (const Category& category : kFixed) bytes[category.name] = memory.footprint.*category.bytes;
    bytes["activations"] = memory.peak.activation_bytes;
    bytes["transients"] = memory.peak.transient_bytes;
    object["live_peak_bytes"] = memory.footprint.live_peak;
    object["bytes"] = std::move(bytes);
    object["arena_bytes"] = memory.footprint.arena;
    object["host_bytes"] = memory.footprint.host;
    object["peak_action"] = memory.peak_action.empty() ? json(nullptr) : json(memory.peak_action);
    object["micro_batches_at_peak"] = memory.peak.micro_batches;
    json slots = json::array();
    for (const program::LiveSlots& one : memory.peak.slots) {
        slots.push_back({{"name", one.name}, {"transient", one.transient}, {"count", one.count}, {"bytes", one.bytes}});
    }
    object["slots_at_peak"] = std::move(slots);
    return object;
}

/// The rates that affect the step time; all of them if elasticities are not known.
std::string rates_text(const std::vector<RateShown>& rates) {
    Table table({{"rate", Align::left},
                 {"value"},
                 {"10% more: step"},
                 {"kind", Align::left},
                 {"prior"},
                 {"sd"},
                 {"information"},
                 {"source", Align::left}});
    constexpr double kMatters = 0.001, kTenth = 0.1;
    constexpr std::size_t kMost = 60;
    for (const RateShown& shown : rates) {
        if (shown.elasticity && std::abs(*shown.elasticity) < kMatters) continue;
        const program::Rate& rate = shown.rate.rate;
        table.add_row({shown.rate.name, format_fixed(rate.value, 3),
                       shown.elasticity ? format_signed_percent(kTenth * *shown.elasticity) : "-",
                       topologies::name_of(rate.kind), format_fixed(rate.prior, 3), format_fixed(rate.sd, 2),
                       format_fixed(rate.information, 2),
                       rate.source.size() <= kMost ? rate.source : rate.source.substr(0, kMost - 3) + "..."});
    }
    return table.row_count() == 0 ? "" : "\nRates that determine the step time\n" + table.to_text();
}

json rates_json(const std::vector<RateShown>& rates) {
    json list = json::array();
    for (const RateShown& shown : rates) {
        const program::Rate& rate = shown.rate.rate;
        list.push_back({{"name", shown.rate.name},
                        {"value", rate.value},
                        {"kind", topologies::name_of(rate.kind)},
                        {"source", rate.source},
                        {"prior", rate.prior},
                        {"sd", rate.sd},
                        {"information", rate.information},
                        {"elasticity", shown.elasticity ? json(*shown.elasticity) : json(nullptr)}});
    }
    return list;
}

}  // namespace

std::string explanation_text(const Explanation& explanation) {
    std::string text = fmt::format("{} ({}): {}, a step of {}\n", explanation.plan_name, name_of(explanation.maker),
                                   explanation.strategy, format_picoseconds(explanation.time.mean.step_ps()));
    text += time_text(explanation) + communication_text(explanation) + path_text(explanation.path) +
            memory_text(explanation) + rates_text(explanation.rates);
    if (!explanation.notes.empty()) text += "\nNotes\n";
    for (const std::string& note : explanation.notes) text += "  - " + note + "\n";
    return text;
}

std::string explanation_json(const Explanation& explanation) {
    json classes = json::array();
    for (const ClassBreakdown& one : explanation.time.classes) {
        json object = {{"class", one.name}, {"ranks", one.ranks}};
        object.update(breakdown_json(one.mean));
        classes.push_back(std::move(object));
    }
    json memory = json::array();
    for (const ClassMemory& one : explanation.memory) memory.push_back(memory_json(one));
    const json document = {{"schema", "orrery.explanation/1"},
                           {"plan_name", explanation.plan_name},
                           {"strategy", explanation.strategy},
                           {"maker", explanation.maker == program::Maker::simulated ? "simulated" : "executed"},
                           {"step_ps", explanation.time.mean.step_ps()},
                           {"mean", breakdown_json(explanation.time.mean)},
                           {"classes", std::move(classes)},
                           {"critical_path", path_json(explanation.path)},
                           {"memory", std::move(memory)},
                           {"micro_batches", explanation.micro_batches},
                           {"notes", explanation.notes},
                           {"rates", rates_json(explanation.rates)}};
    return document.dump(2) + "\n";
}

}  // namespace orrery::reports
