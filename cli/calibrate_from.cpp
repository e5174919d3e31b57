#include "cli/calibrate_from.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <vector>

#include "core/error.h"
#include "core/file.h"
#include "reports/table.h"
#include "sim/program/run_record.h"
#include "sim/refine/refine.h"

namespace orrery::cli {
namespace {

namespace fs = std::filesystem;
constexpr const char* kPlanEnding = ".plan.json";
constexpr const char* kRecordEnding = ".record.json";

std::vector<std::string> names_in(const std::string& folder) {
    std::vector<std::string> names;
    std::error_code failed;
    for (fs::directory_iterator entry(folder, failed), end; !failed && entry != end; entry.increment(failed)) {
        const std::string file = entry->path().filename().string();
        if (!file.ends_with(kRecordEnding)) continue;
        names.push_back(file.substr(0, file.size() - std::string(kRecordEnding).size()));
    }
    if (failed)
        throw InputError(folder, "", failed.message(), "a folder of results, as `orrery validate --records` writes");
    if (names.empty())
        throw InputError(folder, "", "no NAME.record.json", "results, as `orrery validate --records` writes");
    std::sort(names.begin(), names.end());
    return names;
}

sim::MeasuredRun read_run(const std::string& folder, const std::string& name, const topologies::ClusterSpec& cluster) {
    const std::string plan_path = (fs::path(folder) / (name + kPlanEnding)).string();
    const std::string record_path = (fs::path(folder) / (name + kRecordEnding)).string();
    program::Plan plan = program::read_plan(plan_path);
    if (plan.cluster.name != cluster.name || plan.cluster.device.name != cluster.device.name) {
        throw InputError(plan_path, "/cluster", plan.cluster.name + " of " + plan.cluster.device.name,
                         cluster.name + " of " + cluster.device.name + ", the profile to refine");
    }
    plan.cluster = topologies::sized_for(cluster, plan.cluster.device_count());
    program::Program program = program::lower(plan);
    program::RunRecord record = program::run_record_from_json_text(
        read_text_file(record_path, program::kLargestRunRecord), record_path, program);
    if (record.maker != program::Maker::executed) {
        throw InputError(record_path, "/maker", "simulated", "executed: only measured runs can refine a profile");
    }
    program::check_timed(record.environment, record_path);
    return {name, std::move(program), std::move(record)};
}

double median(std::vector<double> values) {
    return program::percentile(std::move(values), 0.5);
}

std::string percent(double error) {
    return fmt::format("{:+.1f}%", 100 * error);
}

std::string factor_table(const sim::Refinement& refinement) {
    reports::Table table({{"timing", reports::Align::left}, {"of", reports::Align::left}, {"factor"}, {"seen"}});
    for (const sim::TimingFactor& one : refinement.factors) {
        table.add_row({one.op, one.of, reports::format_fixed(one.factor, 3), std::to_string(one.instructions)});
    }
    return table.to_text();
}

std::string run_table(const sim::Refinement& refinement) {
    reports::Table table({{"run", reports::Align::left}, {"measured"}, {"before"}, {"error"}, {"after"}, {"error"}});
    std::vector<double> before, after;
    for (const sim::RefinedRun& run : refinement.runs) {
        const double before_error = run.before_s / run.measured_s - 1, after_error = run.after_s / run.measured_s - 1;
        table.add_row({run.name + (run.is_fitted ? "" : " (more ranks than cores)"),
                       reports::format_seconds(run.measured_s), reports::format_seconds(run.before_s),
                       percent(before_error), reports::format_seconds(run.after_s), percent(after_error)});
        if (!run.is_fitted) continue;
        before.push_back(std::abs(before_error));
        after.push_back(std::abs(after_error));
    }
    return table.to_text() +
           fmt::format(
               "step time, median |error| over {} runs: {:.1f}% before, {:.1f}% after, each by factors from "
               "the other half of the runs\n",
               before.size(), 100 * median(before), 100 * median(after));
}

}  // namespace

RefinedProfile refined_profile(const RefineOptions& options) {
    const topologies::ClusterSpec cluster = topologies::load_cluster(options.cluster, 1);
    std::vector<sim::MeasuredRun> runs;
    for (const std::string& name : names_in(options.results)) runs.push_back(read_run(options.results, name, cluster));
    const sim::Refinement refinement = sim::refine(cluster, runs);
    return {refinement.cluster, factor_table(refinement) + run_table(refinement)};
}

}  // namespace orrery::cli
