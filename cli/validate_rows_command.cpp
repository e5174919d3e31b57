#include <fmt/core.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>

#include "cli/commands.h"
#include "cli/validate_rows.h"
#include "core/error.h"
#include "core/file.h"
#include "core/units.h"
#include "reports/row_predictions.h"
#include "reports/summary.h"
#include "sim/planner/planner.h"
#include "sim/published/plan_of.h"

namespace orrery::cli {
namespace {

using published::PublishedRow;
using reports::RowPrediction;

/// As the GPU's memory tool would show it: context, and the live peak of the rank that holds most.
double peak_memory_gib(const program::RunRecord& record) {
    std::int64_t peak = 0;
    for (const program::RankRecord& rank : record.ranks) peak = std::max(peak, rank.memory_live_peak_bytes);
    return to_gib(Bytes(peak));
}

program::Program lowered(const program::Plan& plan, bool check) {
    program::Program program = program::lower(plan);
    if (check) program::validate(program);
    return program;
}

RowPrediction predict(const PublishedRow& row, bool check) {
    RowPrediction result{.id = row.run.id,
                         .source = row.run.source,
                         .counts = row.run.scored,
                         .measured_step_time_s = row.measured.step_time_s,
                         .measured_peak_memory_gib = row.measured.peak_memory_gib,
                         .skipped = row.refused};
    if (!result.skipped.empty()) return result;
    try {
        const published::PlanOfRun translated = published::plan_of(row.run);
        if (!translated.plan) {
            result.skipped = translated.reason;
            return result;
        }
        const topologies::Cluster cluster(translated.plan->cluster);
        const program::RunRecord record = sim::evaluate(lowered(*translated.plan, check), cluster).record;
        result.predicted_step_time_s = record.step_time_s;
        result.predicted_peak_memory_gib = peak_memory_gib(record);
    } catch (const std::exception& error) {  // one row's trouble, also a bug of ours, leaves the others
        result.skipped = std::string("not predicted: ") + error.what();
    }
    return result;
}

/// A line on a terminal that says how far the work is; nothing where there is no terminal.
class Progress {
  public:
    explicit Progress(std::size_t total) : total_(total), shown_(isatty(STDERR_FILENO) != 0 && total > 0) {}
    Progress(const Progress&) = delete;
    Progress& operator=(const Progress&) = delete;
    ~Progress() {
        if (!shown_) return;
        std::fputs("\r\033[K", stderr);
        std::fflush(stderr);
    }
    void next() {
        ++done_;
        if (!shown_) return;
        constexpr std::size_t kWidth = 40;
        const std::size_t filled = done_ * kWidth / total_;
        fmt::print(stderr, "\rpredicting [{}{}] {}/{}", std::string(filled, '#'), std::string(kWidth - filled, ' '),
                   done_, total_);
        std::fflush(stderr);
    }

  private:
    std::size_t total_, done_ = 0;
    bool shown_;
};

int explain(const std::vector<PublishedRow>& rows, const RowsOptions& options) {
    const auto found = std::find_if(rows.begin(), rows.end(), [&](const PublishedRow& row) {
        return !row.run.id.empty() && row.run.id == options.explain_row;
    });
    if (found == rows.end()) {
        std::vector<std::string> ids;
        ids.reserve(rows.size());
        for (const PublishedRow& row : rows) ids.push_back(row.run.id);
        const std::string near = nearest_name(options.explain_row, ids);
        throw InputError(options.file, "--explain-row", "'" + options.explain_row + "'",
                         "the id of a row" + (near.empty() ? "" : "; did you mean '" + near + "'?"));
    }
    if (!found->refused.empty()) throw InputError(found->refused);
    print(fmt::format("{}\n  source  {}\n", found->run.id, found->run.source));
    const published::PlanOfRun translated = published::plan_of(found->run);
    print("Assumed, since the source does not say\n");
    for (const std::string& assumption : translated.assumptions) print("  - " + assumption + "\n");
    if (!translated.plan) {
        print("No plan\n  " + translated.reason + "\n");
        return kExitDone;
    }
    const program::Program program = lowered(*translated.plan, options.check);
    const topologies::Cluster cluster(translated.plan->cluster);
    const sim::Evaluation evaluation = sim::evaluate(program, cluster);
    print("\n" + reports::summary_text(program, evaluation.record) + "\n");
    print(reports::row_predictions_text({predict(*found, false)}, true));
    return kExitDone;
}

}  // namespace

CLI::Option* add_rows_options(CLI::App& command, RowsOptions& options) {
    CLI::Option* rows =
        command.add_option("--rows", options.file, "Published training runs: predict them, run nothing");
    const auto of_rows = [rows](CLI::Option* option) { return option->needs(rows); };
    of_rows(command.add_option("--only", options.only, "Only rows of sources with this in their title"));
    of_rows(command.add_option("--explain-row", options.explain_row, "One row: its plan's assumptions and prediction"));
    CLI::Option* all = of_rows(command.add_flag("--all", options.all, "Predict rows too that are not scored"));
    of_rows(command.add_flag("--scored-only", options.scored_only, "Predict scored rows (default)"))->excludes(all);
    of_rows(command.add_flag("--verbose", options.verbose, "Show each row"));
    of_rows(command.add_flag("--check", options.check, "Prove each row's Program well-formed too (slow)"));
    return rows;
}

int run_validate_rows(const RowsOptions& options, bool json) {
    const std::vector<PublishedRow> rows = published::read_published_rows(options.file);
    if (!options.explain_row.empty()) return explain(rows, options);
    std::vector<const PublishedRow*> chosen;
    for (const PublishedRow& row : rows) {
        const bool of_source = row.run.source.find(options.only) != std::string::npos;
        // What cannot even be read must not go unnoticed.
        const bool wanted = options.all || row.run.scored || (!row.refused.empty() && options.only.empty());
        if ((of_source || row.run.source.empty()) && wanted) chosen.push_back(&row);
    }
    if (!options.only.empty() && chosen.empty()) {
        throw InputError(options.file, "--only", "'" + options.only + "'", "part of the title of a source with rows");
    }
    std::vector<RowPrediction> predictions;
    predictions.reserve(chosen.size());
    {
        Progress progress(chosen.size());
        for (const PublishedRow* row : chosen) {
            predictions.push_back(predict(*row, options.check));
            progress.next();
        }
    }
    print(json ? reports::row_predictions_json(predictions)
               : reports::row_predictions_text(predictions, options.verbose));
    return kExitDone;
}

}  // namespace orrery::cli
