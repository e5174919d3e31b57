#include "reports/jobs.h"

#include <nlohmann/json.hpp>
#include <set>

#include "reports/summary.h"
#include "reports/table.h"

namespace orrery::reports {
namespace {

/// How many times as long a step takes.
double slowdown(const JobReport& job) {
    return job.alone.step_time_s > 0 ? job.together.step_time_s / job.alone.step_time_s : 1;
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

std::string jobs_text(const std::string& cluster, const std::vector<JobReport>& jobs) {
    Table table({{"job", Align::left},
                 {"strategy", Align::left},
                 {"devices", Align::left},
                 {"alone"},
                 {"together"},
                 {"p5"},
                 {"p95"},
                 {"slowdown"}});
    std::set<std::string> notes;
    for (const JobReport& job : jobs) {
        table.add_row({job.program->plan->name, strategy_of(*job.program->plan), ranges_of(job.devices),
                       format_seconds(job.alone.step_time_s), format_seconds(job.together.step_time_s),
                       format_seconds(job.together.step_time_p5_s), format_seconds(job.together.step_time_p95_s),
                       format_fixed(slowdown(job), 3)});
        notes.insert(job.together.notes.begin(), job.together.notes.end());
    }
    std::string text =
        "Jobs together on " + cluster + ", step times: medians over the steps, and percentiles\n" + table.to_text();
    for (const std::string& note : notes) text += "note: " + note + "\n";
    return text;
}

std::string jobs_json(const std::string& cluster, const std::vector<JobReport>& jobs) {
    nlohmann::ordered_json document{{"schema", "orrery.simulated_jobs/1"}, {"cluster", cluster}};
    document["jobs"] = nlohmann::ordered_json::array();
    for (const JobReport& job : jobs) {
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
