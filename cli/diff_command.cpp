// orrery diff: how the steps of two plans differ.
#include <CLI/CLI.hpp>
#include <memory>
#include <string>
#include <vector>

#include "cli/commands.h"
#include "core/error.h"
#include "core/file.h"
#include "reports/plan_diff.h"
#include "sim/cost/roofline_cost.h"
#include "sim/planner/planner.h"

namespace orrery::cli {
namespace {

constexpr std::size_t kMostInputs = 30;

struct DiffOptions {
    std::string before, after, output;
    std::vector<std::string> records;
    bool json = false;
};

/// One plan with a record that has every instruction.
class Side {
  public:
    /// `record_path`: empty: the record is predicted.
    Side(const std::string& path, const std::string& record_path)
        : path_(path), plan_(program::read_plan(path)), program_(program_of()), cost_(plan_.cluster, plan_.rates) {
        if (record_path.empty()) {
            record_ = sim::evaluate(program_, topologies::Cluster(plan_.cluster), {.record_spans = true}).record;
            return;
        }
        record_ = program::run_record_from_json_text(read_file(record_path, program::kLargestRunRecord), record_path,
                                                     program_);
        program::check_timed(record_.environment, record_path);
        for (const program::RankRecord& rank : record_.ranks) {
            if (rank.spans.empty()) {
                throw InputError(record_path, "/ranks", "a rank without spans",
                                 "a record with every instruction (--record)");
            }
        }
    }

    [[nodiscard]] reports::DiffSide side() const {
        return {path_, &program_, &record_, [this](const models::Operator& op) { return cost_.operator_seconds(op); }};
    }

  private:
    [[nodiscard]] program::Program program_of() const {
        refuse_long_step(plan_, path_, "orrery diff");
        return proven_program(plan_);
    }

    std::string path_;
    program::Plan plan_;
    program::Program program_;
    sim::RooflineCost cost_;
    program::RunRecord record_;
};

int diff(const DiffOptions& options) {
    check_outputs({{"--output", options.output}},
                  {{"the first plan", options.before}, {"the second plan", options.after}});
    const bool has_records = !options.records.empty();
    const Side before(options.before, has_records ? options.records.front() : "");
    const Side after(options.after, has_records ? options.records.back() : "");
    const program::PlanDiff found = reports::diff_of(before.side(), after.side());
    if (!options.output.empty()) write_file_atomically(options.output, program::to_json_text(found));
    print(options.json ? program::to_json_text(found) : reports::diff_text(found, kMostInputs));
    return kExitDone;
}

}  // namespace

void add_diff(CLI::App& app, Action& chosen) {
    auto options = std::make_shared<DiffOptions>();
    CLI::App* command = app.add_subcommand(
        "diff", "Show how the steps of two plans differ: time and memory by what they are spent on, and inputs");
    command->add_option("before", options->before, "Plan file (orrery plan --output)")->required();
    command->add_option("after", options->after, "Another plan file")->required();
    command
        ->add_option("--records", options->records,
                     "Records of the two plans with every instruction (run --record), in place of predictions")
        ->expected(2);
    command->add_option("--output", options->output, "Write orrery.diff/1 JSON to this file");
    command->add_flag("--json", options->json, "Print orrery.diff/1 JSON");
    command->footer("Example: orrery diff examples/gpt2-dp2.plan.json examples/gpt2-pp2.plan.json");
    command->callback([options, &chosen] { chosen = [options] { return diff(*options); }; });
}

}  // namespace orrery::cli
