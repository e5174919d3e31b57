// orrery report: results as a page.
#include <CLI/CLI.hpp>
#include <memory>
#include <string>
#include <vector>

#include "cli/capacity_goal.h"
#include "cli/commands.h"
#include "cli/version.h"
#include "core/error.h"
#include "core/file.h"
#include "reports/page/report.h"
#include "sim/program/run_record.h"

namespace orrery::cli {
namespace {

struct ReportOptions {
    std::vector<std::string> files;
    std::string output, markdown, csv, title;
};

int report(const ReportOptions& options) {
    NamedPaths inputs;
    for (const std::string& file : options.files) inputs.emplace_back("a result", file);
    check_outputs({{"--output", options.output}, {"--markdown", options.markdown}, {"--csv", options.csv}}, inputs);
    std::vector<reports::ResultFile> results;
    for (const std::string& file : options.files) {
        results.push_back(reports::result_from_json_text(read_text_file(file, program::kLargestRunRecord), file));
    }
    const reports::ReportPage page =
        reports::report_of(results, {.title = options.title, .version = kVersion, .date_after = date_after});
    const std::string html = reports::page_html(page);
    write_file_atomically(options.output, html);
    if (!options.markdown.empty()) write_file_atomically(options.markdown, reports::page_markdown(page));
    if (!options.csv.empty()) write_file_atomically(options.csv, reports::page_csv(page));
    std::size_t charts = 0;
    for (const reports::PageSection& section : page.sections) charts += section.charts.size();
    print(options.output + ": " + std::to_string(page.sections.size()) + " sections, " + std::to_string(charts) +
          " charts\n");
    return kExitDone;
}

}  // namespace

void add_report(CLI::App& app, Action& chosen) {
    auto options = std::make_shared<ReportOptions>();
    CLI::App* command = app.add_subcommand(
        "report", "Make a page with charts and tables of results: one HTML file that needs no network");
    command
        ->add_option(
            "files", options->files,
            "Results of scale, whatif, capacity, diff (--output), simulate, run (--record), simulate --explain "
            "and validate (--json)")
        ->required();
    command->add_option("--output,-o", options->output, "Write the page to this file (HTML)")->required();
    command->add_option("--markdown", options->markdown, "Write the same content to this file as Markdown");
    command->add_option("--csv", options->csv, "Write the numbers of all tables to this file as CSV, one a line");
    command->add_option("--title", options->title, "Title of the page");
    command->footer("Example: orrery report examples/llama3-8b.scaling.json --output report.html");
    command->callback([options, &chosen] { chosen = [options] { return report(*options); }; });
}

}  // namespace orrery::cli
