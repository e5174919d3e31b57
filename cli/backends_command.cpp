#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <array>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>

#include "cli/child.h"
#include "cli/commands.h"
#include "cli/plan_kinds.h"
#include "cli/progress_line.h"
#include "core/enum_names.h"
#include "core/error.h"
#include "core/file.h"
#include "exec/device/gpu_limits.h"
#include "exec/executable.h"
#include "exec/make_backend.h"
#include "reports/table.h"

namespace orrery::cli {
namespace {

using nlohmann::ordered_json;

struct BackendsOptions {
    std::string plan;
    bool run = false, json = false;
};

struct BackendColumn {
    const char* name;
    const char* json_name;
    const char* flag;  // of `orrery run`
    bool is_gpu = true, is_emulated = false;
};
constexpr std::array<BackendColumn, 3> kBackends{{
    {.name = "CPU", .json_name = "cpu", .flag = "--on-cpu", .is_gpu = false},
    {.name = "CUDA, emulated", .json_name = "cuda_emulated", .flag = "--emulated", .is_emulated = true},
    {.name = "CUDA", .json_name = "cuda", .flag = nullptr},
}};

enum class Outcome : std::uint8_t {
    runs,  // accepts the plan
    refused,
    ran,     // a step, with --run
    failed,  // in that step
    absent,  // this machine or this build lacks the backend, or devices for all ranks
};
constexpr auto kOutcomeNames = name_table<Outcome::absent>({"runs", "refused", "ran", "failed", "not here"});

/// What a backend does with a plan, and why, unless it runs.
struct Verdict {
    Outcome outcome;
    std::string reason;
};

struct PlanRow {
    std::string choice, value;
    std::vector<Verdict> verdicts;  // by backend
};

std::string without_prefix(const std::string& text, const std::string& prefix) {
    return text.starts_with(prefix) ? text.substr(prefix.size()) : text;
}

/// Empty, or why this machine cannot run the plan on the backend.
std::string why_absent(const BackendColumn& backend, const program::Program& program) {
    if (backend.is_emulated) {
        return std::filesystem::exists(emulated_program()) ? "" : "this build of Orrery has no " + emulated_program();
    }
    const std::string& name = program.plan->name;
    try {
        exec::check_backend(program, !backend.is_gpu, static_cast<int>(program.world_size()), name);
    } catch (const InputError& error) {
        return without_prefix(error.what(), name + ": ");
    } catch (const JobError& error) {
        return error.what();
    }
    return "";
}

Verdict run_on(const BackendColumn& backend, const std::string& plan_path) {
    std::vector<std::string> words{own_program(), "run", plan_path, "--steps", "1", "--warm-up", "0", "--quiet"};
    if (backend.flag != nullptr) words.emplace_back(backend.flag);
    const CommandOutput output = run_and_read(words);
    if (output.exit_code == kExitDone) return {Outcome::ran, ""};
    const std::string message = output.err.substr(0, output.err.find('\n'));
    return {Outcome::failed, fmt::format("{}: exit code {}: {}", backend.name, output.exit_code, message)};
}

std::vector<Verdict> verdicts_on(const program::Plan& plan, const std::string& source, const BackendsOptions& options) {
    const std::string prefix = source + ": ";
    try {
        check_runnable(plan, source);
    } catch (const InputError& error) {
        return {kBackends.size(), Verdict{Outcome::refused, without_prefix(error.what(), prefix)}};
    }
    const program::Program program = proven_program(plan);
    std::string refused_by_gpus;
    try {
        if (plan.cluster.device.host_runs_compute) {
            throw InputError(source, "/cluster", plan.cluster.name, "a cluster of GPUs");
        }
        exec::check_runs_on_gpu(program, source);
    } catch (const InputError& error) {
        refused_by_gpus = without_prefix(error.what(), prefix);
    }
    const TemporaryFolder folder;
    const std::string path = folder.file("backends.plan.json");
    if (options.run) write_file_atomically(path, program::to_json_text(plan));
    std::vector<Verdict> verdicts;
    for (const BackendColumn& backend : kBackends) {
        if (backend.is_gpu && !refused_by_gpus.empty()) {
            verdicts.push_back({Outcome::refused, refused_by_gpus});
        } else if (!options.run) {
            verdicts.push_back({Outcome::runs, ""});
        } else if (const std::string absent = why_absent(backend, program); !absent.empty()) {
            verdicts.push_back({Outcome::absent, absent});
        } else {
            verdicts.push_back(run_on(backend, path));
        }
    }
    return verdicts;
}

std::vector<PlanRow> plan_rows(const BackendsOptions& options) {
    std::vector<PlanRow> rows;
    if (!options.plan.empty()) {
        const program::Plan plan = plan_to_run(program::read_plan(options.plan), true);
        rows.push_back({"plan", plan.name, verdicts_on(plan, options.plan, options)});
        return rows;
    }
    const std::vector<PlanKind> kinds = plan_kinds();
    const auto show = options.run ? status_line() : std::function<void(const std::string&)>();
    for (const PlanKind& kind : kinds) {
        if (show) show(fmt::format("{} of {}: {}", rows.size() + 1, kinds.size(), kind.plan.name));
        rows.push_back({kind.choice, kind.value, verdicts_on(kind.plan, kind.plan.name, options)});
    }
    if (show) show("");
    return rows;
}

/// The reasons of the verdicts, each once. Absent backends have theirs in notes below the table.
std::string reasons_of(const PlanRow& row) {
    std::vector<std::string> reasons;
    for (const Verdict& verdict : row.verdicts) {
        if (verdict.outcome == Outcome::absent || verdict.reason.empty()) continue;
        if (reasons.empty() || reasons.back() != verdict.reason) reasons.push_back(verdict.reason);
    }
    return fmt::format("{}", fmt::join(reasons, "; "));
}

/// `has_limits`: the list of limits follows.
std::string rows_text(const std::vector<PlanRow>& rows, bool has_limits) {
    using reports::Align;
    std::vector<reports::Column> columns{{"choice", Align::left}, {"value", Align::left}};
    for (const BackendColumn& backend : kBackends) columns.push_back({backend.name, Align::left});
    columns.push_back({"reason", Align::left});
    reports::Table table(columns);
    std::map<std::string, int> absent;  // rows, by backend and reason
    std::string choice;
    for (const PlanRow& row : rows) {
        std::vector<std::string> cells{row.choice == choice ? "" : row.choice, row.value};
        choice = row.choice;
        for (std::size_t i = 0; i < row.verdicts.size(); ++i) {
            cells.emplace_back(kOutcomeNames[row.verdicts[i].outcome]);
            if (row.verdicts[i].outcome == Outcome::absent)
                ++absent[kBackends.at(i).name + (": " + row.verdicts[i].reason)];
        }
        // Why a limit exists is in the list of limits.
        const std::string reasons = reasons_of(row);
        cells.push_back(has_limits ? reasons.substr(0, reasons.find(", because ")) : reasons);
        table.add_row(std::move(cells));
    }
    std::string text = table.to_text();
    for (const auto& [reason, count] : absent) text += fmt::format("not here ({}): {}\n", count, reason);
    return text;
}

struct NamedLimits {
    const char* backends;
    const char* title;
    std::vector<exec::RunLimit> limits;
};
std::vector<NamedLimits> all_limits() {
    return {{"all", "Every backend runs only", exec::executor_limits()}, {"cuda", "GPUs run only", exec::gpu_limits()}};
}

std::string limits_text() {
    std::string text;
    for (const NamedLimits& of : all_limits()) {
        text += fmt::format("\n{}:\n", of.title);
        for (const exec::RunLimit& limit : of.limits) {
            text += fmt::format("  {}: {}, because {}\n", limit.key, limit.allowed, limit.reason);
        }
    }
    return text;
}

std::string json_text(const std::vector<PlanRow>& rows) {
    ordered_json json{{"schema", "orrery.backends/1"}, {"plans", ordered_json::array()}};
    for (const PlanRow& row : rows) {
        ordered_json& item = json["plans"].emplace_back(ordered_json{{"choice", row.choice}, {"value", row.value}});
        for (std::size_t i = 0; i < row.verdicts.size(); ++i) {
            ordered_json& verdict = item["backends"][kBackends.at(i).json_name];
            verdict["outcome"] = kOutcomeNames[row.verdicts[i].outcome];
            if (!row.verdicts[i].reason.empty()) verdict["reason"] = row.verdicts[i].reason;
        }
    }
    for (const NamedLimits& of : all_limits()) {
        for (const exec::RunLimit& limit : of.limits) {
            json["limits"].push_back(
                {{"backends", of.backends}, {"key", limit.key}, {"allowed", limit.allowed}, {"reason", limit.reason}});
        }
    }
    return json.dump(2) + "\n";
}

int run_backends(const BackendsOptions& options) {
    const std::vector<PlanRow> rows = plan_rows(options);
    if (options.json) {
        print(json_text(rows));
    } else {
        const bool has_limits = options.plan.empty();
        print(rows_text(rows, has_limits));
        if (has_limits) print(limits_text());
    }
    for (const PlanRow& row : rows) {
        for (const Verdict& verdict : row.verdicts) {
            if (verdict.outcome == Outcome::failed) return kExitJobFailed;
        }
    }
    return kExitDone;
}

}  // namespace

void add_backends(CLI::App& app, Action& chosen) {
    auto options = std::make_shared<BackendsOptions>();
    CLI::App* command =
        app.add_subcommand("backends", "Show which kinds of plans run on CPUs, on emulated GPUs and on GPUs");
    command->add_option("plan", options->plan, "Ask about this plan alone")->type_name("FILE");
    command->add_flag("--run", options->run, "Run one step of each plan on each backend that this machine has");
    command->add_flag("--json", options->json, "Print JSON");
    command->footer("Example: orrery backends examples/gpt2-dp2.plan.json");
    command->callback([options, &chosen] { chosen = [options] { return run_backends(*options); }; });
}

}  // namespace orrery::cli
