#include "reports/jobs.h"

#include <nlohmann/json.hpp>
#include <set>

#include "reports/summary.h"
#include "reports/table.h"

namespace orrery::reports {
namespace {

/// Step time together divided by step time alone.
double slowdown(const JobReport& job) {
    return job.alone.step_time_s > 0 ? job.together.step_time_s / job.alone.step_time_s : 1;
}

/// "node 0 nic 2 - leaf 2: failed", "trunk of rail 3: 25% of its bandwidth".
std::string words_of(const topologies::LinkOverride& change) {
    std::string text = change.link;
    if (change.node >= 0) text += " of node " + std::to_string(change.node);
    if (change.rail >= 0) text += " of rail " + std::to_string(change.rail);
    if (change.bandwidth_fraction == 0) return text + ": failed";
    return text + ": " + format_fixed(100 * change.bandwidth_fraction, 0) + "% of its bandwidth";
}

std::string changes_text(const JobsReport& report) {
    std::string text;
    for (const topologies::LinkChange& change : report.cluster->changes) {
        text += "from " + format_seconds(change.at_seconds) + " on, " + words_of(change.what) + "\n";
    }
    if (text.empty()) return text;
    for (const JobReport& job : report.jobs) {
        text += "steps of " + job.program->plan->name + " from the second on:";
        for (const double seconds : job.together.step_seconds) text += " " + format_seconds(seconds);
        text += "\n";
    }
    return text;
}

}  // namespace

std::string ranges_of(const std::vector<std::int64_t>& ascending) {
    std::string text;
    for (std::size_t i = 0; i < ascending.size();) {
        std::size_t last = i;
        while (last + 1 < ascending.size() && ascending[last + 1] == ascending[last] + 1) ++last;
        text += (text.empty() ? "" : ", ") + std::to_string(ascending[i]);
        if (last > i) text += "-" + std::to_string(ascending[last]);
        i = last + 1;
    }
    return text;
}

std::string jobs_text(const JobsReport& report) {
    Table table({{"job", Align::left},
                 {"strategy", Align::left},
                 {"devices", Align::left},
                 {"alone"},
                 {"together"},
                 {"p5"},
                 {"p95"},
                 {"slowdown"}});
    std::set<std::string> notes;
    for (const JobReport& job : report.jobs) {
        table.add_row({job.program->plan->name, strategy_of(*job.program->plan), ranges_of(job.devices),
                       format_seconds(job.alone.step_time_s), format_seconds(job.together.step_time_s),
                       format_seconds(job.together.step_time_p5_s), format_seconds(job.together.step_time_p95_s),
                       format_fixed(slowdown(job), 3)});
        notes.insert(job.together.notes.begin(), job.together.notes.end());
    }
    std::string text = "Jobs together on " + report.cluster->name +
                       ", step times: medians over the steps, and percentiles\n" + table.to_text() +
                       changes_text(report);
    for (const std::string& note : notes) text += "note: " + note + "\n";
    return text;
}

std::string jobs_json(const JobsReport& report) {
    nlohmann::ordered_json document{{"schema", "orrery.simulated_jobs/1"}, {"cluster", report.cluster->name}};
    for (const topologies::LinkChange& change : report.cluster->changes) {
        document["changes"].push_back({{"at_seconds", change.at_seconds}, {"what", words_of(change.what)}});
    }
    document["jobs"] = nlohmann::ordered_json::array();
    for (const JobReport& job : report.jobs) {
        document["jobs"].push_back({{"plan_name", job.program->plan->name},
                                    {"strategy", strategy_of(*job.program->plan)},
                                    {"devices", job.devices},
                                    {"alone", {{"step_time_s", job.alone.step_time_s}}},
                                    {"together",
                                     {{"step_time_s", job.together.step_time_s},
                                      {"step_time_p5_s", job.together.step_time_p5_s},
                                      {"step_time_p95_s", job.together.step_time_p95_s},
                                      {"step_seconds", job.together.step_seconds}}},
                                    {"slowdown", slowdown(job)},
                                    {"notes", job.together.notes}});
    }
    return document.dump(2) + "\n";
}

}  // namespace orrery::reports
