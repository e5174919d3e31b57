// Sections of run records and of explanations of a step.
#include <fmt/format.h>

#include <algorithm>

#include "core/units.h"
#include "reports/page/sections.h"
#include "reports/table.h"
#include "reports/time_part.h"

namespace orrery::reports {
namespace {

/// One series for each part that is not 0 in all columns, in the order of `order`; what that lacks comes last.
template <typename Parts>
std::vector<ChartSeries> part_series(const std::vector<Parts>& columns, const std::vector<std::string>& order,
                                     double unit, std::string (*label)(const std::string& part)) {
    std::vector<std::string> parts = order;
    for (const Parts& column : columns) {
        for (const auto& [part, value] : column) {
            if (std::find(parts.begin(), parts.end(), part) == parts.end()) parts.push_back(part);
        }
    }
    std::vector<ChartSeries> all;
    for (const std::string& part : parts) {
        ChartSeries series{.name = label(part), .points = {}};
        bool counts = false;
        for (std::size_t i = 0; i < columns.size(); ++i) {
            const auto found = columns[i].find(part);
            const double value = found == columns[i].end() ? 0 : static_cast<double>(found->second) / unit;
            series.points.push_back({.x = static_cast<double>(i), .y = value});
            counts = counts || value > 0;
        }
        if (counts) all.push_back(std::move(series));
    }
    return all;
}

std::string memory_label(const std::string& part) {
    std::string label = part;
    std::replace(label.begin(), label.end(), '_', ' ');
    return label;
}

/// As the parts are listed in records and explanations.
const std::vector<std::string>& memory_order() {
    static const std::vector<std::string> order{"parameters", "gathered",         "gradients",   "reductions",
                                                "optimizer",  "optimizer_states", "activations", "transients"};
    return order;
}

Chart memory_parts_chart(const std::vector<PartsByName>& columns, std::vector<std::string> names,
                         const std::string& caption) {
    return {.title = "Memory by what it holds",
            .kind = ChartKind::stacked_bars,
            .x = {.measure = {"ranks"}, .scale = AxisScale::categories, .categories = std::move(names)},
            .y = {.measure = {"memory", "GiB"}, .categories = {}, .from_zero = true},
            .series = part_series(columns, memory_order(), kGibibyte, memory_label),
            .caption = caption};
}

/// The rank of each class that has the highest peak.
std::vector<const RankFacts*> fullest_of_classes(const RunFacts& run) {
    std::vector<const RankFacts*> fullest;
    for (const RankFacts& rank : run.ranks) {
        const auto same = std::find_if(fullest.begin(), fullest.end(),
                                       [&](const RankFacts* one) { return one->rank_class == rank.rank_class; });
        if (same == fullest.end()) {
            fullest.push_back(&rank);
        } else if ((*same)->memory_peak_bytes < rank.memory_peak_bytes) {
            *same = &rank;
        }
    }
    return fullest;
}

std::optional<Chart> run_memory(const RunFacts& run) {
    std::vector<PartsByName> columns;
    std::vector<std::string> names;
    for (const RankFacts* rank : fullest_of_classes(run)) {
        if (rank->memory.empty()) continue;
        columns.push_back(rank->memory);
        names.push_back(rank->rank_class);
    }
    if (columns.empty()) return {};
    Chart chart = memory_parts_chart(columns, names,
                                     "Of the fullest rank of each pipeline stage; runtime is the context, the "
                                     "communicators and everything else that is not a tensor.");
    if (run.memory) {
        ChartSeries limit{.name = "limit", .role = SeriesRole::limit, .points = {}};
        for (std::size_t i = 0; i < columns.size(); ++i) {
            limit.points.push_back(
                {.x = static_cast<double>(i), .y = static_cast<double>(run.memory->allowed_bytes) / kGibibyte});
        }
        chart.series.push_back(std::move(limit));
    }
    return chart;
}

Chart streams_chart(const RunFacts& run) {
    const std::vector<const RankFacts*> ranks = fullest_of_classes(run);
    std::vector<std::map<std::string, double>> exposed(ranks.size());
    std::vector<std::string> names;
    for (std::size_t i = 0; i < ranks.size(); ++i) {
        names.push_back(ranks[i]->rank_class);
        double idle = run.step_time_s;
        for (const auto& [stream, time] : ranks[i]->streams) {
            const double seconds = stream == "compute" ? time.busy_s : time.exposed_s;
            const bool pipeline = stream.starts_with("pp_");
            exposed[i][pipeline ? "pp" : stream] += seconds;
            idle -= seconds;
        }
        exposed[i]["other idle time"] = std::max(idle, 0.0);
    }
    const auto label = [](const std::string& stream) -> std::string {
        if (stream == "compute" || stream == "other idle time") return stream;
        return "exposed " + memory_label(stream);
    };
    return {.title = "Time of a step",
            .kind = ChartKind::stacked_bars,
            .x = {.measure = {"ranks"}, .scale = AxisScale::categories, .categories = names},
            .y = {.measure = {"time", "s"}, .categories = {}, .from_zero = true},
            .series =
                part_series(exposed, {"compute", "tp", "cp", "ep", "dp", "dp_gather", "dp_replicate", "pp"}, 1, label),
            .caption =
                "Of one rank of each pipeline stage: computation, and what of each stream no computation hides; "
                "streams that are exposed at once count each."};
}

Chart steps_chart(const std::string& title, const Measure& measure, const std::vector<double>& values,
                  std::int64_t first, const std::string& caption) {
    ChartSeries series{.name = measure.name, .points = {}};
    for (std::size_t i = 0; i < values.size(); ++i) {
        series.points.push_back({.x = static_cast<double>(first) + static_cast<double>(i), .y = values[i]});
    }
    return {.title = title,
            .kind = ChartKind::line,
            .x = {.measure = {"step", "", NumberStyle::whole}, .categories = {}},
            .y = {.measure = measure, .categories = {}},
            .series = {std::move(series)},
            .caption = caption};
}

std::vector<PageFact> run_facts(const RunFacts& run) {
    std::vector<PageFact> facts{{"Step time", format_seconds(run.step_time_s),
                                 run.is_measured() ? fmt::format("median of {} steps", run.step_seconds.size()) : ""}};
    if (run.step_time_interval90_s.size() == 2) {
        facts.front().note = fmt::format("90%: {} to {}", format_seconds(run.step_time_interval90_s[0]),
                                         format_seconds(run.step_time_interval90_s[1]));
    }
    facts.push_back({"Idle", format_percent(run.idle_fraction), "time without computation, mean over the ranks"});
    if (run.memory) {
        facts.push_back({"Memory of the fullest rank", format_memory(run.memory->needed_bytes),
                         fmt::format("of {} that it may use", format_memory(run.memory->allowed_bytes))});
    }
    std::int64_t ranks = 0;
    for (const RankFacts& rank : run.ranks) ranks += rank.multiplicity;
    facts.push_back({"Ranks", format_integer(ranks), ""});
    return facts;
}

PageTable environment_table(const RunFacts& run) {
    PageTable table{
        .title = "Where it ran", .columns = {{"what", "", true}, {"value", "", true}}, .rows = {}, .row_kind = "facts"};
    for (const auto& [what, value] : run.environment) table.rows.push_back({text_cell(what), text_cell(value)});
    return table;
}

std::string time_label(const std::string& part) {
    return part_label(part);
}

std::vector<std::string> time_order() {
    std::vector<std::string> order;
    for (const TimePart part : kTimeParts) order.emplace_back(name_of(part));
    return order;
}

}  // namespace

PageSection run_section(const RunFacts& run) {
    PageSection section{.title = fmt::format("{} of {}", run.is_measured() ? "Run" : "Simulated step", run.plan),
                        .lead = run.is_measured() ? "Measured." : "Predicted.",
                        .facts = run_facts(run),
                        .notes = run.notes};
    if (!run.ranks.empty()) section.charts.push_back(streams_chart(run));
    if (std::optional<Chart> memory = run_memory(run)) section.charts.push_back(std::move(*memory));
    if (run.step_seconds.size() > 1) {
        section.charts.push_back(
            steps_chart("Step times", {"step time", "s"}, run.step_seconds, 1,
                        run.is_measured() ? "Of the measured steps, in order." : "Of the simulated steps, in order."));
    }
    if (run.losses.size() > 1) {
        section.charts.push_back(
            steps_chart("Loss", {"loss", ""}, run.losses, run.first_step, "Of each step, warm-up included."));
    }
    if (!run.environment.empty()) section.tables.push_back(environment_table(run));
    return section;
}

PageSection step_section(const StepFacts& step) {
    std::vector<PartsByName> times{step.mean.parts_ps}, memory;
    std::vector<std::string> time_names{"mean"}, memory_names;
    for (const ClassTime& one : step.classes) {
        times.push_back(one.parts_ps);
        time_names.push_back(one.rank_class);
    }
    for (const ClassBytes& one : step.memory) {
        memory.push_back(one.bytes);
        memory_names.push_back(one.rank_class);
    }
    const double seconds = static_cast<double>(step.step_ps) / kPicosecondsPerSecond;
    PageSection section{
        .title = fmt::format("Where the step of {} goes", step.plan_name),
        .lead = fmt::format("{}; {}.", step.strategy, step.maker == "executed" ? "measured" : "predicted"),
        .facts = {{"Step time", format_seconds(seconds), ""},
                  {"Micro-batches", format_integer(step.micro_batches), "of each replica in a step"}},
        .charts = {{.title = "Time of a step",
                    .kind = ChartKind::stacked_bars,
                    .x = {.measure = {"ranks"}, .scale = AxisScale::categories, .categories = time_names},
                    .y = {.measure = {"time", "s"}, .categories = {}, .from_zero = true},
                    .series = part_series(times, time_order(), kPicosecondsPerSecond, time_label),
                    .caption = "Of a mean rank and of each pipeline stage: computation by kind, communication that no "
                               "computation hides, and idle time. The parts sum to the step."},
                   memory_parts_chart(memory, memory_names,
                                      "Of a rank of each pipeline stage, without the device's context.")},
        .notes = step.notes};
    return section;
}

}  // namespace orrery::reports
