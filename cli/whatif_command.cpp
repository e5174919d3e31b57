// orrery whatif: other values for the inputs of a plan.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <iterator>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "cli/commands.h"
#include "cli/crossover.h"
#include "cli/parallel.h"
#include "cli/plan_job.h"
#include "cli/tornado.h"
#include "cli/whatif_points.h"
#include "core/error.h"
#include "core/file.h"
#include "reports/crossover_report.h"
#include "reports/sweep_report.h"
#include "reports/tornado_report.h"

namespace orrery::cli {
namespace {

constexpr std::size_t kMostPoints = 10000;

struct WhatIfOptions {
    std::string plan, csv, output;
    std::vector<std::string> set, below, against;
    std::string crossover;
    bool draws_tornado = false;
    double change_percent = 10;
    std::optional<double> memory_margin_gib;
    bool replans = false, json = false;
    int threads = 0;
    StoreOptions store;
};

struct Texts {
    std::string json, csv, table;
};

void show(const WhatIfOptions& options, const Texts& texts, const std::string& heading) {
    if (!options.csv.empty()) write_file_atomically(options.csv, texts.csv);
    if (!options.output.empty()) write_file_atomically(options.output, texts.json);
    if (options.json) {
        print(texts.json);
        return;
    }
    print(heading + "\n" + texts.table);
}

std::string heading_of(const WhatIfJob& job) {
    return fmt::format("{} on {}, {}", job.plan.name, job.plan.cluster.name,
                       job.replans ? "the best plan for the inputs of each row" : "the same plan for all");
}

/// All combinations, in the order of the values; those of the last path vary fastest.
std::vector<std::vector<std::string>> combinations(const std::vector<InputValues>& inputs) {
    std::vector<std::vector<std::string>> all{{}};
    for (const InputValues& input : inputs) {
        std::vector<std::vector<std::string>> longer;
        for (const std::vector<std::string>& before : all) {
            for (const std::string& value : input.values) {
                longer.push_back(before);
                longer.back().push_back(value);
            }
        }
        all = std::move(longer);
        if (all.size() > kMostPoints) {
            throw InputError("command line", "--set", std::to_string(all.size()) + " combinations",
                             "at most " + std::to_string(kMostPoints));
        }
    }
    return all;
}

int sweep_inputs(const WhatIfOptions& options, const WhatIfJob& job) {
    program::InputSweep sweep{
        .model = job.plan.model.name, .cluster = job.plan.cluster.name, .plan = job.plan.name, .replans = job.replans};
    std::vector<InputValues> inputs;
    for (const std::string& text : options.set) {
        const InputValues& input = inputs.emplace_back(input_values(text));
        if (std::count(sweep.paths.begin(), sweep.paths.end(), input.path) > 0) {
            throw InputError("command line", "--set", input.path, "each path once; its values are separated by commas");
        }
        sweep.paths.push_back(input.path);
        sweep.base_values.push_back(job.editable.value(input.path, input.values));
    }
    std::vector<Edit> edits{{sweep.paths, sweep.base_values}};
    for (std::vector<std::string>& values : combinations(inputs)) edits.push_back({sweep.paths, std::move(values)});
    std::optional<std::vector<program::SweepPoint>> points = predict_edits(job, edits);
    if (!points) return kExitDone;
    sweep.base = std::move(points->front());
    sweep.points.assign(std::make_move_iterator(points->begin() + 1), std::make_move_iterator(points->end()));
    show(options, {program::to_json_text(sweep), reports::sweep_csv(sweep), reports::sweep_text(sweep)},
         heading_of(job));
    return kExitDone;
}

int draw_tornado(const WhatIfOptions& options, const WhatIfJob& job) {
    const std::optional<program::Tornado> tornado = tornado_of(job, options.below, options.change_percent / 100);
    if (!tornado) return kExitDone;
    show(options, {program::to_json_text(*tornado), reports::tornado_csv(*tornado), reports::tornado_text(*tornado)},
         heading_of(job));
    return kExitDone;
}

int find_crossover(const WhatIfOptions& options, WhatIfJob job) {
    const InputRange range = input_range(options.crossover);
    std::vector<WhatIfJob> jobs{std::move(job)};
    for (const std::string& path : options.against) {
        WhatIfJob other(path);
        for (const WhatIfJob& known : jobs) {
            if (known.plan.name != other.plan.name) continue;
            throw InputError(path, "--against", "a plan named " + other.plan.name + " again", "plans of other names");
        }
        other.memory_margin_gib = options.memory_margin_gib;
        jobs.push_back(std::move(other));
    }
    const program::Crossover found = crossover_of(jobs, range);
    show(options, {program::to_json_text(found), reports::crossover_csv(found), reports::crossover_text(found)},
         fmt::format("{} on {}, the fastest plan by one input", found.model, found.cluster));
    return kExitDone;
}

int what_if(const WhatIfOptions& options) {
    check_store(options.store,
                {{"--csv", options.csv}, {"--output", options.output}, {"--json", options.json ? "--json" : ""}});
    NamedPaths inputs{{"the plan", options.plan}};
    for (const std::string& path : options.against) inputs.emplace_back("--against", path);
    check_outputs({{"--csv", options.csv}, {"--output", options.output}, {"--db", options.store.db}}, inputs);
    WhatIfJob job(options.plan);
    job.replans = options.replans;
    job.memory_margin_gib = options.memory_margin_gib;
    job.store = options.store;
    if (!options.crossover.empty()) return find_crossover(options, std::move(job));
    return options.draws_tornado ? draw_tornado(options, job) : sweep_inputs(options, job);
}

}  // namespace

void add_whatif(CLI::App& app, Action& chosen) {
    auto options = std::make_shared<WhatIfOptions>();
    CLI::App* command = app.add_subcommand(
        "whatif", "Predict a plan, or the best plan, for other values of its inputs: bandwidths, sizes, choices");
    command->add_option("plan", options->plan, "Plan file (orrery plan --output)")->required();
    CLI::Option* set = command->add_option(
        "--set", options->set,
        "PATH=VALUE,VALUE,...: keys of the plan file joined by dots, and values or factors (0.75x); may be repeated, "
        "all combinations are predicted");
    set->allow_extra_args(false);
    CLI::Option* tornado = command
                               ->add_flag("--tornado", options->draws_tornado,
                                          "Move each number of the cluster up and down, and rank them by the effect")
                               ->excludes(set);
    command->add_option("--below", options->below, "Of --tornado: the numbers below this path; may be repeated")
        ->allow_extra_args(false)
        ->needs(tornado);
    command->add_option("--change", options->change_percent, "By how many percent --tornado moves them")
        ->needs(tornado)
        ->check(CLI::Range(0.1, 90.0))
        ->capture_default_str();
    CLI::Option* crossover =
        command
            ->add_option("--crossover", options->crossover,
                         "PATH=LOW..HIGH: where in this range of an input another plan begins to be the fastest, of "
                         "those of --against, or with --replan of all")
            ->excludes(set)
            ->excludes(tornado);
    CLI::Option* against =
        command->add_option("--against", options->against, "Of --crossover: another plan file; may be repeated")
            ->allow_extra_args(false)
            ->needs(crossover);
    CLI::Option* replan =
        command
            ->add_flag("--replan", options->replans,
                       "Search for the best plan for each combination, in place of the plan of the file")
            ->excludes(against);
    add_memory_margin_option(*command, options->memory_margin_gib);
    add_threads_option(*command, options->threads);
    for (CLI::Option* option : add_store_options(*command, options->store)) option->excludes(crossover);
    command->add_option("--csv", options->csv, "Write the table to this file as CSV");
    command->add_option(
        "--output", options->output,
        "Write the result as JSON to this file: orrery.whatif/1, orrery.tornado/1 or orrery.crossover/1");
    command->add_flag("--json", options->json, "Print this JSON");
    command->footer(
        "With the best plan for each: orrery whatif examples/llama3-8b-64-h100.plan.json "
        "--set training.sequence_length=4096,8192,16384 --replan\n"
        "Where plans change: orrery whatif examples/llama3-8b-64-h100.plan.json "
        "--crossover cluster.nic.bandwidth_gb_per_s_per_direction=5..100 --replan\n"
        "What matters: orrery whatif examples/llama3-8b-64-h100.plan.json --tornado\n"
        "Example: orrery whatif examples/llama3-8b-64-h100.plan.json "
        "--set cluster.nic.bandwidth_gb_per_s_per_direction=0.5x,1x,2x --set training.micro_batch_size=1,2");
    command->callback([options, set, tornado, crossover, against, replan, &chosen] {
        if (set->empty() && tornado->empty() && crossover->empty()) {
            throw CLI::RequiredError("--set, --tornado or --crossover");
        }
        if (!crossover->empty() && against->empty() && replan->empty())
            throw CLI::RequiredError("--against or --replan");
        chosen = [options] { return on_threads(options->threads, [&] { return what_if(*options); }); };
    });
}

}  // namespace orrery::cli
