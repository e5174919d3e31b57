#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <exception>
#include <memory>
#include <span>
#include <vector>

#include "cli/commands.h"
#include "cli/parallel.h"
#include "cli/plan_answers.h"
#include "cli/plan_at_most.h"
#include "cli/plan_audit.h"
#include "cli/plan_job.h"
#include "cli/plan_search.h"
#include "cli/plan_shortlist.h"
#include "cli/strict.h"
#include "core/error.h"
#include "core/file.h"
#include "exec/data.h"
#include "reports/model_text.h"
#include "reports/ranked_plans.h"
#include "reports/search_text.h"
#include "reports/summary.h"
#include "reports/table.h"
#include "sim/planner/advise.h"
#include "sim/planner/at_most.h"
#include "sim/planner/planner.h"

namespace orrery::cli {
namespace {

struct PlanOptions : PlanJob {
    std::string output;
    int threads = 0;  // 0: as many as the machine lets this process use
    std::size_t top = 10, prove = 1;
    bool json = false, strict = false;
    std::size_t audit = 0;  // excluded plans to simulate
    PlanAnswerOptions answers;
};

/// Plans that do not fit whose smallest fix the JSON names: those that are nearest to fitting.
constexpr std::size_t kMostFixes = 3;

/// The same command's requests for other numbers of devices.
PlanCase case_of(const PlanJob& job, const models::ModelSpec& model) {
    const auto requests = [job, model](std::int64_t devices) {
        PlanJob sized = job;
        sized.devices = devices;
        return requests_of(sized, model, topologies::load_cluster(job.cluster, devices));
    };
    return {.requests = requests, .devices = job.devices};
}

/// The least memory of any plan of the requests.
sim::LeastMemory least_memory_of(const std::vector<sim::PlanRequest>& requests, const topologies::Cluster& cluster) {
    sim::LeastMemory least;
    for (const sim::PlanRequest& request : requests) {
        try {
            least.merge(sim::least_memory_of(request, cluster));
        } catch (const InputError&) {
            continue;  // the search says why this implementation has no plan
        }
    }
    return least;
}

/// Numbers of plans.
struct Wanted {
    std::size_t keep = 1, prove = 1;
};

/// sim::search_plans of each request. `max_memory_bytes`: a further limit; 0: none.
sim::PlanSearch search_all(const std::vector<sim::PlanRequest>& requests, const topologies::Cluster& cluster,
                           std::int64_t max_memory_bytes, const Wanted& wanted, std::vector<std::string>& notes) {
    const auto search = [&](const sim::PlanRequest& request, std::span<const double> rivals) {
        sim::PlanRequest limited = request;
        if (max_memory_bytes > 0 && (request.max_memory_bytes == 0 || max_memory_bytes < request.max_memory_bytes)) {
            limited.max_memory_bytes = max_memory_bytes;
        }
        return sim::search_plans(limited, cluster, wanted.keep, wanted.prove, rivals);
    };
    return search_each(requests, wanted.keep, search, notes);
}

/// --gpus-at-most.
int run_with_spares(const PlanOptions& options, const models::ModelSpec& model) {
    const PlanAnswerOptions& answers = options.answers;
    const auto refuse_with = [&](bool given, const std::string& other) {
        if (!given) return;
        throw InputError("command line", "--gpus-at-most", std::to_string(options.devices),
                         "--gpus with " + other + ", which is about one number of devices");
    };
    refuse_with(options.goal.pareto, "--pareto");
    refuse_with(options.goal.objective == "memory", "--objective memory");
    refuse_with(answers.explain, "--explain");
    refuse_with(answers.guide, "--guide");
    refuse_with(answers.shortlist > 0, "--shortlist");
    refuse_with(options.audit > 0, "--audit");
    const std::vector<sim::PlanRequest> requests = requests_for_any_size(options, model);
    std::vector<std::string> notes;
    sim::CheapestPlans plans = search_any_number(options.goal, requests, options.top, options.prove, notes);
    const std::vector<program::PlanResult>& ranked = plans.found.results;
    program::SearchSummary& summary = plans.found.summary;
    const program::Plan& best = ranked.front().plan;
    if (options.strict) refuse_assumptions(program::lower(best), "the best plan");
    if (!options.output.empty()) write_file_atomically(options.output, program::to_json_text(best));
    if (options.json) {
        for (const std::string& note : notes) say("orrery: without " + note + "\n");
        print(reports::ranked_plans_json(ranked, summary));
        return kExitDone;
    }
    print(fmt::format("{} ({}) on {}, at most {} {} ({} a node): {}\n", model.name, reports::parameters_text(model),
                      best.cluster.name, reports::format_integer(options.devices), best.cluster.device.name,
                      best.cluster.devices_per_node, reports::search_counts_text(summary.counts)));
    print(reports::left_out_text(model, options.sequence));
    for (const std::string& note : notes) print("without " + note + "\n");
    print(reports::ranked_plans_text(ranked, options.top));
    summary.spaces.clear();  // one for each number of devices: too long a text
    print(reports::proof_text(ranked, summary));
    print(spares_text(plans, options.devices));
    if (!options.output.empty()) print(fmt::format("best plan written to {}\n", options.output));
    return kExitDone;
}

/// The preset or file, for the number of devices asked for.
topologies::ClusterSpec cluster_of(const PlanOptions& options, const models::ModelSpec& model) {
    try {
        return topologies::load_cluster(options.cluster, options.devices);
    } catch (const InputError&) {
        refuse_count(requests_for_any_size(options, model), options.devices, std::current_exception());
    }
}

int find_plans(const PlanOptions& options) {
    check_plan_answers(options.answers);
    check_outputs({{"--output", options.output}}, {{"--model", options.model},
                                                   {"--cluster", options.cluster},
                                                   {"--data", options.data},
                                                   {"--catalogue", options.goal.costs.catalogue},
                                                   {"--price-csv", options.goal.costs.price_csv}});
    const models::ModelSpec model = models::load_model(options.model, options.parts);
    check_degrees(options, model);
    check_together(options);
    check_goal(options.goal, options.top, options.prove);
    if (options.prove > options.top) {
        throw InputError("command line", "--prove-top", std::to_string(options.prove),
                         "at most --top, " + std::to_string(options.top));
    }
    if (options.data != "synthetic") {  // read it to find errors before the search
        (void)exec::TokenSource(options.data, static_cast<std::uint64_t>(options.seed), model.vocab, options.sequence);
    }
    if (options.strict) refuse_left_out(model, options.model);
    if (options.goal.is_by_cost()) (void)cost_goal_of(options.goal, topologies::load_cluster(options.cluster, 1));
    if (options.spares) return run_with_spares(options, model);
    const topologies::ClusterSpec spec = cluster_of(options, model);
    const topologies::Cluster cluster(spec);
    const std::vector<sim::PlanRequest> requests = requests_of(options, model, spec);
    if (options.audit > 0) {
        return audit_plans(requests, cluster, options.top, options.audit, static_cast<std::uint64_t>(options.seed));
    }
    std::vector<std::string> notes;
    const PlanCase job = case_of(options, model);
    const auto search = [&](std::int64_t max_memory_bytes, std::size_t keep) {
        std::vector<std::string> at_limit;  // that an implementation has no plan within a lower limit is no news
        return search_all(requests, cluster, max_memory_bytes, {keep, std::min(keep, options.prove)},
                          max_memory_bytes == 0 ? notes : at_limit);
    };
    const sim::ObjectiveSearch found = [&] {
        try {
            return search_for(options.goal, spec, options.top, search,
                              [&] { return least_memory_of(requests, cluster); });
        } catch (const sim::TooSlowError&) {
            throw;  // what does not fit would not answer it
        } catch (const InfeasibleError& nothing) {
            answer_nothing_fits(options.answers, job, nothing, options.json);
        } catch (const InputError&) {
            refuse_count(requests_for_any_size(options, model), options.devices, std::current_exception());
        }
    }();
    std::vector<program::PlanResult> ranked = found.results;
    if (options.strict) refuse_assumptions(program::lower(ranked.front().plan), "the best plan");
    if (!options.output.empty()) {
        write_file_atomically(options.output, program::to_json_text(ranked.front().plan));
    }
    if (options.json) {
        for (const std::string& note : notes) say("orrery: without " + note + "\n");
        if (answer(options.answers, job, ranked, options.json)) return kExitDone;
        sim::add_fixes(ranked, requests, kMostFixes);
        print(reports::ranked_plans_json(ranked, found.summary));
        return kExitDone;
    }
    print(fmt::format("{} ({}) on {}: {}\n", model.name, reports::parameters_text(model), reports::size_text(spec),
                      reports::search_counts_text(found.summary.counts)));
    print(reports::left_out_text(model, options.sequence));
    for (const std::string& note : notes) print("without " + note + "\n");
    print(reports::ranked_plans_text(ranked, options.top));
    print(reports::proof_text(ranked, found.summary));
    if (!options.output.empty()) print(fmt::format("best plan written to {}\n", options.output));
    (void)answer(options.answers, job, ranked, options.json);
    return kExitDone;
}

/// --gpus or --gpus-at-most, and --global-batch. Returns those that a search needs.
std::vector<CLI::Option*> add_size_options(CLI::App& command, const std::shared_ptr<PlanOptions>& options) {
    CLI::Option* devices = command.add_option("--gpus,--ranks", options->devices, "Devices (on local: ranks)")
                               ->check(CLI::Range(std::int64_t{1}, std::int64_t{1} << 20));
    command
        .add_option_function<std::int64_t>(
            "--gpus-at-most,--ranks-at-most",
            [options](std::int64_t most) {
                options->devices = most;
                options->spares = true;
            },
            "In place of --gpus: the best plans on at most this many devices; those left idle are spares")
        ->excludes("--gpus")
        ->check(CLI::Range(std::int64_t{1}, std::int64_t{1} << 20));
    CLI::Option* batch = command.add_option("--global-batch", options->global_batch, "Sequences a step")
                             ->required()
                             ->check(CLI::Range(std::int64_t{1}, std::int64_t{1} << 30));
    return {devices, batch};
}

int run_plan(const PlanOptions& options) {
    if (!options.answers.pick.empty()) {
        return pick_plan(options.answers.pick, options.answers.output_dir, options.output, options.json);
    }
    return on_threads(options.threads, [&] { return find_plans(options); });
}

}  // namespace

void add_plan(CLI::App& app, Action& chosen) {
    auto options = std::make_shared<PlanOptions>();
    CLI::App* command = app.add_subcommand("plan", "Rank the parallelism plans for a model on a cluster");
    std::vector<CLI::Option*> required = add_model_options(*command, *options);
    const std::vector<CLI::Option*> size = add_size_options(*command, options);
    required.insert(required.end(), size.begin(), size.end());
    required.push_back(add_sequence_option(*command, *options));
    add_request_options(*command, *options);
    add_goal_options(*command, options->goal);
    command
        ->add_option(
            "--audit", options->audit,
            "Check the search instead of printing plans: simulate this many of the plans that each "
            "implementation's search excluded, drawn with --seed; exit code 1 if one beats rank 1 or its bound")
        ->check(CLI::Range(std::size_t{1}, std::size_t{1} << 24));
    command->add_option("--data", options->data, "`synthetic`, or a text file whose bytes are the tokens")
        ->capture_default_str();
    add_seed_option(*command, *options);
    add_threads_option(*command, options->threads);
    command->add_option("--top", options->top, "Number of plans to show")
        ->check(CLI::Range(std::size_t{1}, std::size_t{32}))
        ->capture_default_str();
    command
        ->add_option("--prove-top", options->prove,
                     "Number of plans shown that are proven to be the best; the others are the best of those simulated")
        ->check(CLI::Range(std::size_t{1}, std::size_t{32}))
        ->capture_default_str();
    add_memory_margin_option(*command, options->memory_margin_gib);
    command->add_option("--output", options->output, "Write the best plan to this file");
    command->add_flag(
        "--strict", options->strict,
        "Refuse a best plan whose prediction rests on rates or on figures of devices and links that are assumptions");
    command->add_flag("--json", options->json,
                      "Print orrery.plans/2 JSON; with --explain and --guide orrery.plan_answers/1, with --pick "
                      "orrery.pick/1");
    add_plan_answer_options(*command, options->answers, required);
    command->footer(
        "Least memory of plans as fast as the best: orrery plan --model llama3-8b --cluster dgx-h100 --gpus 64 "
        "--global-batch 128 --seq 8192 --objective memory --max-step-time 5%\n"
        "Cheapest that is fast enough: orrery plan --model llama3-8b --cluster dgx-h100 --gpus-at-most 128 "
        "--global-batch 128 --seq 8192 --objective cost --max-step-time 2\n"
        "Front of time and memory: orrery plan --model llama3-8b --cluster dgx-h100 --gpus 64 --global-batch 128 "
        "--seq 8192 --pareto --exclude zero3 --exclude tp=8\n"
        "What limits it: orrery plan --model llama3-8b --cluster dgx-h100 --gpus 64 --global-batch 128 --seq 8192 "
        "--explain\n"
        "Rules of thumb: orrery plan --model llama3-8b --cluster dgx-h100 --gpus 64 --global-batch 128 --seq 8192 "
        "--guide\n"
        "To measure: orrery plan --model gpt2 --cluster dgx-h100 --gpus 8 --global-batch 64 --seq 1024 --shortlist 3 "
        "--output-dir gpt2.shortlist\n"
        "Example: orrery plan --model llama3-70b --cluster dgx-h100 --gpus 512 --global-batch 1024 --seq 8192");
    command->callback([options, &chosen] {
        if (options->devices == 0 && options->answers.pick.empty())
            throw CLI::RequiredError("--gpus or --gpus-at-most");
        chosen = [options] { return run_plan(*options); };
    });
}

}  // namespace orrery::cli
