#include <fmt/core.h>

#include <CLI/CLI.hpp>
#include <algorithm>

#include "cli/commands.h"
#include "cli/parallel.h"
#include "cli/validate_rows.h"
#include "core/error.h"
#include "core/file.h"
#include "core/units.h"
#include "reports/rate_differences.h"
#include "reports/row_predictions.h"
#include "reports/summary.h"
#include "reports/table.h"
#include "sim/planner/planner.h"
#include "sim/planner/rate_differences.h"
#include "sim/program/device_memory.h"
#include "sim/published/measured_memory.h"
#include "sim/published/plan_of.h"
#include "sim/published/run_groups.h"

namespace orrery::cli {
namespace {

using published::PublishedRow;
using reports::RowPrediction;

/// "stage 0: activations 41.2, optimizer 10.1 GiB; 16,384 tokens a micro-batch; more than the driver leaves".
std::string memory_words(const program::Program& program, const program::MemoryFit& fit) {
    const program::Plan& plan = *program.plan;
    const auto fullest = std::find_if(program.classes.begin(), program.classes.end(),
                                      [&](const program::RankClass& ranks) { return ranks.name == fit.where; });
    std::string text = fit.where;
    if (fullest != program.classes.end()) {
        std::vector<program::MemoryPart> parts = program::memory_parts(fullest->memory);
        std::stable_sort(parts.begin(), parts.end(), [](const auto& a, const auto& b) { return a.bytes > b.bytes; });
        for (std::size_t i = 0; i < std::min<std::size_t>(2, parts.size()); ++i) {
            text += fmt::format("{} {} {:.1f}", i == 0 ? ":" : ",", parts[i].part, to_gib(Bytes(parts[i].bytes)));
        }
    }
    text += fmt::format(" GiB; {} tokens a micro-batch",
                        reports::format_integer(plan.training.micro_batch_size * plan.training.sequence_length));
    if (fit.fits()) return text;
    const double needed_gib = to_gib(Bytes(fit.needed_bytes));
    const topologies::DeviceProfile& device = plan.cluster.device;
    return text + (needed_gib > device.memory_capacity_gib.value ? "; more than the board has"
                   : needed_gib > device.usable_gib()            ? "; more than the driver leaves of the board's"
                                                                 : "; within the margin");
}

void predict_memory(const program::Program& program, const published::PublishedMeasurement& measured,
                    RowPrediction& result) {
    const program::MemoryFit fit = sim::memory_fit(program);
    if (measured.peak_memory_gib) {
        result.predicted_peak_memory_gib = to_gib(Bytes(published::memory_as_measured(program, measured)));
        result.memory_kind = published::name_of(measured.memory_kind);
    }
    result.predicted_memory_in_use_gib = to_gib(Bytes(fit.needed_bytes));
    result.memory_allowed_gib = to_gib(Bytes(fit.allowed_bytes));
    result.memory_words = memory_words(program, fit);
}

program::Program lowered(const program::Plan& plan, bool check) {
    refuse_long_step(plan, plan.name, "--rows");
    program::Program program = program::lower(plan);
    if (check) program::validate(program);
    return program;
}

RowPrediction predict(const PublishedRow& row, const RowsOptions& options) {
    RowPrediction result{.id = row.run.id,
                         .source = row.run.source,
                         .sweep = published::sweep_of(row.run),
                         .counts = row.run.scored && !row.ran_out,
                         .measured_step_time_s = row.measured.step_time_s,
                         .measured_peak_memory_gib = row.measured.peak_memory_gib,
                         .ran_out = row.ran_out,
                         .inferred = row.run.inferred,
                         .skipped = row.refused};
    if (!result.skipped.empty()) return result;
    try {
        const published::PlanOfRun translated = published::plan_of(row.run);
        if (!translated.plan) {
            result.skipped = translated.reason;
            return result;
        }
        result.implementation = translated.plan->implementation.name;
        const program::Program program = lowered(*translated.plan, options.check);
        predict_memory(program, row.measured, result);
        if (row.ran_out) return result;  // there is no step to time
        const topologies::Cluster cluster(translated.plan->cluster);
        const sim::Evaluation evaluation = sim::evaluate(program, cluster, {.derivatives = options.sensitivity});
        result.predicted_step_time_s = evaluation.record.step_time_s;
        result.sensitivity = evaluation.sensitivity;
    } catch (const std::exception& error) {  // an error in one row, even a bug, does not stop the others
        result.skipped = std::string("not predicted: ") + error.what();
    }
    return result;
}

int explain(const std::vector<PublishedRow>& rows, const RowsOptions& options) {
    const auto found = std::find_if(rows.begin(), rows.end(), [&](const PublishedRow& row) {
        return !row.run.id.empty() && row.run.id == options.explain_row;
    });
    if (found == rows.end()) {
        std::vector<std::string> ids;
        ids.reserve(rows.size());
        for (const PublishedRow& row : rows) ids.push_back(row.run.id);
        const std::string near = nearest_name(options.explain_row, ids);
        throw InputError("command line", "--explain-row", "'" + options.explain_row + "'",
                         "the id of a row" + (near.empty() ? "" : "; did you mean '" + near + "'?"));
    }
    if (!found->refused.empty()) throw InputError(found->refused);
    print(fmt::format("{}\n  source  {}\n", found->run.id, found->run.source));
    const published::PlanOfRun translated = published::plan_of(found->run);
    print("Assumed, since the source does not state it\n");
    for (const std::string& assumption : translated.assumptions) print("  - " + assumption + "\n");
    if (!translated.plan) {
        print("No plan\n  " + translated.reason + "\n");
        return kExitDone;
    }
    const program::Program program = lowered(*translated.plan, options.check);
    const topologies::Cluster cluster(translated.plan->cluster);
    const sim::Evaluation evaluation = sim::evaluate(program, cluster);
    print("\n" + reports::summary_text(program, evaluation.record, reports::Stages::each) + "\n");
    print(reports::row_predictions_text({predict(*found, {})}, {.each_row = true}));
    return kExitDone;
}

/// For rows that can be expressed as plans.
int show_differences(const std::vector<const PublishedRow*>& rows) {
    std::vector<std::vector<program::RateDifference>> of_row(rows.size());
    in_parallel("differentiating", rows.size(), [&](std::size_t i) {
        if (rows[i]->ran_out || !rows[i]->refused.empty()) return;
        const published::PlanOfRun translated = published::plan_of(rows[i]->run);
        if (translated.plan) of_row[i] = sim::rate_differences(*translated.plan);
    });
    std::vector<program::RateDifference> all;
    for (const std::vector<program::RateDifference>& one : of_row) all.insert(all.end(), one.begin(), one.end());
    print(reports::rate_differences_text(all));
    return kExitDone;
}

}  // namespace

CLI::Option* add_rows_options(CLI::App& command, RowsOptions& options) {
    CLI::Option* rows = command.add_option(
        "--rows", options.files, "Published training runs, in these files or folders: predict them, run nothing");
    const auto of_rows = [rows](CLI::Option* option) { return option->needs(rows); };
    of_rows(command.add_option("--only", options.only, "Only rows of sources with this in their title"));
    of_rows(command.add_option("--explain-row", options.explain_row, "One row: its plan's assumptions and prediction"));
    CLI::Option* all = of_rows(command.add_flag("--all", options.all, "Predict rows that are not scored too"));
    of_rows(command.add_flag("--scored-only", options.scored_only, "Predict scored rows (default)"))->excludes(all);
    of_rows(command.add_flag("--verbose", options.verbose, "Show each row"));
    of_rows(
        command.add_flag("--misfits", options.misfits,
                         "List the runs that ran but are predicted not to fit, and those that ran out of memory but "
                         "are predicted to fit"));
    of_rows(command.add_flag("--sensitivity", options.sensitivity,
                             "With --json: the derivatives of each row's step with respect to kinds of work"));
    of_rows(command.add_flag(
        "--differences", options.differences,
        "Instead compare the derivatives of each step with respect to its rates with finite differences (minutes)"));
    of_rows(command.add_flag("--check", options.check, "Validate each row's Program too (slow)"));
    return rows;
}

int run_validate_rows(const RowsOptions& options, bool json) {
    const std::vector<PublishedRow> rows = published::read_published_rows(options.files);
    if (!options.explain_row.empty()) return explain(rows, options);
    std::vector<const PublishedRow*> chosen;
    for (const PublishedRow& row : rows) {
        const bool of_source = row.run.source.find(options.only) != std::string::npos;
        // Rows that cannot be read are always reported.
        const bool wanted =
            options.all || row.run.scored || row.ran_out || (!row.refused.empty() && options.only.empty());
        if ((of_source || row.run.source.empty()) && wanted) chosen.push_back(&row);
    }
    if (!options.only.empty() && chosen.empty()) {
        throw InputError("command line", "--only", "'" + options.only + "'", "part of the title of a source with rows");
    }
    if (options.differences) return show_differences(chosen);
    std::vector<RowPrediction> predictions(chosen.size());
    in_parallel("predicting", chosen.size(), [&](std::size_t i) { predictions[i] = predict(*chosen[i], options); });
    print(json ? reports::row_predictions_json(predictions)
               : reports::row_predictions_text(predictions, {.each_row = options.verbose, .misfits = options.misfits}));
    return kExitDone;
}

}  // namespace orrery::cli
