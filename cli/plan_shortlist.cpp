#include "cli/plan_shortlist.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include "cli/commands.h"
#include "cli/slurm_job.h"
#include "core/error.h"
#include "core/file.h"
#include "core/json_reader.h"
#include "exec/executable.h"
#include "exec/launch.h"
#include "exec/slurm.h"
#include "reports/shortlist.h"
#include "reports/summary.h"
#include "sim/planner/shortlist.h"
#include "sim/program/run_record.h"

namespace orrery::cli {
namespace {

namespace fs = std::filesystem;
using program::Plan;
using program::PlanResult;
using reports::MeasuredChoice;
using reports::Picked;
using reports::Shortlist;
using reports::ShortlistChoice;

/// Measured by each launch script.
constexpr std::int64_t kSteps = 20, kWarmUpSteps = 3;

bool is_empty_folder(const fs::path& path) {
    std::error_code failed;
    return fs::is_directory(path, failed) && fs::is_empty(path, failed) && !failed;
}

std::vector<std::string> run_arguments(const std::string& plan, const std::string& record) {
    return {"run",      plan,  "--steps", std::to_string(kSteps), "--warm-up", std::to_string(kWarmUpSteps),
            "--record", record};
}

/// In single quotes for a shell.
std::string quoted(const std::string& word) {
    std::string text = "'";
    for (const char letter : word) text += letter == '\'' ? std::string("'\"'\"'") : std::string(1, letter);
    return text + "'";
}

/// Starts the ranks on this machine, or, under mpirun or srun, is one of them.
std::string shell_script(const PlanResult& result, const ShortlistChoice& choice) {
    std::string script = fmt::format(
        "#!/bin/sh\n# {}: {}; predicted step {:.4g} s.\n"
        "# Starts all ranks on this machine; under mpirun or srun --mpi=pmix it is one of them.\n"
        "cd \"$(dirname \"$0\")\" || exit 1\nexec \"${{ORRERY:-orrery}}\"",
        result.plan.name, choice.strategy, result.step_time_s);
    for (const std::string& word : run_arguments(choice.plan_file, choice.record_file)) script += " " + quoted(word);
    return script + "\n";
}

/// One srun of all ranks on the plan's nodes.
std::string batch_script(const PlanResult& result, const ShortlistChoice& choice, const fs::path& folder) {
    const exec::SlurmJob job{
        .program = scriptable_path("orrery", exec::own_path()),
        .arguments = run_arguments((folder / choice.plan_file).string(), (folder / choice.record_file).string()),
        .working_folder = folder.string(),
        .output_folder = folder.string()};
    return exec::sbatch_script(result.plan, job);
}

/// The files of a shortlist by name.
using Files = std::map<std::string, std::string>;

ShortlistChoice choice_of(PlanResult& result, const PlanResult& first, std::int64_t number, const fs::path& folder,
                          Files& files) {
    const std::string base = std::to_string(number);
    result.plan.name += "-choice" + base;  // records name their plan
    ShortlistChoice choice{.number = number,
                           .plan_name = result.plan.name,
                           .implementation = result.plan.implementation.name,
                           .strategy = reports::strategy_of(result.plan),
                           .step_time_s = result.step_time_s,
                           .step_time_low_s = result.step_time_low_s,
                           .step_time_high_s = result.step_time_high_s,
                           .peak_memory_gib = result.peak_memory_gib,
                           .distance = sim::kind_distance(first.plan, result.plan),
                           .plan_file = base + ".plan.json",
                           .record_file = base + ".record.json"};
    files[choice.plan_file] = program::to_json_text(result.plan);
    try {
        std::vector<std::string> differs;
        exec::check_executable(exec::for_executor(result.plan, differs), choice.plan_file);
        const bool spans_nodes = result.plan.cluster.nodes > 1;
        choice.launch_file = base + (spans_nodes ? ".sbatch" : ".sh");
        files[choice.launch_file] = spans_nodes ? batch_script(result, choice, folder) : shell_script(result, choice);
    } catch (const InputError& error) {
        choice.launch_file.clear();
        choice.why_not_run = error.what();
    }
    return choice;
}

/// Writes the files into a new folder beside `folder`, which then gets its name.
void write_folder(const std::string& folder, const Files& files) {
    const fs::path target = fs::absolute(folder).lexically_normal();
    const fs::path whole = target.filename().empty() ? target.parent_path() : target;
    const fs::path part = whole.parent_path() / fmt::format(".{}.{}.part", whole.filename().string(), getpid());
    try {
        fs::create_directory(part);
        for (const auto& [name, text] : files) {
            const fs::path file = part / name;
            write_file_atomically(file.string(), text);
            if (file.extension() != ".sh") continue;
            fs::permissions(file, fs::perms::owner_exec | fs::perms::group_exec | fs::perms::others_exec,
                            fs::perm_options::add);
        }
        fs::rename(part, whole);  // fails if the folder has got files meanwhile
    } catch (const std::exception& error) {
        std::error_code ignored;
        fs::remove_all(part, ignored);
        throw JobError(fmt::format("{}: the shortlist was not written: {}", folder, error.what()));
    }
}

/// A record's file and its plan among the choices.
struct RecordFile {
    std::string path, text;
    program::RunRecord record;
    Plan plan;  // as it ran
};

Plan as_executed(const Plan& plan) {
    std::vector<std::string> differs;
    return exec::for_executor(plan, differs);
}

/// Refuses records that say nothing about each other.
void check_comparable(const std::vector<RecordFile>& files) {
    const RecordFile& first = files.front();
    constexpr std::array<const char*, 4> kMachine{"backend", "device", "processor", "orrery"};
    const auto value = [](const RecordFile& file, const char* key) {
        const auto found = file.record.environment.find(key);
        return found == file.record.environment.end() ? std::string("not stated") : found->second;
    };
    for (const RecordFile& file : files) {
        program::check_timed(file.record.environment, file.path);
        if (value(file, "backend") == "paced") {
            throw InputError(file.path, "/environment/backend", "paced", "a run that computes; this one only slept");
        }
        if (file.record.maker != first.record.maker) {
            throw InputError(file.path, "/maker", reports::name_of(file.record.maker),
                             fmt::format("{}, as in {}: predictions and measurements are not compared with each other",
                                         reports::name_of(first.record.maker), first.path));
        }
        for (const char* key : kMachine) {
            if (value(file, key) == value(first, key)) continue;
            throw InputError(
                file.path, std::string("/environment/") + key, value(file, key),
                fmt::format("{}, as in {}: runs on the same kind of machine", value(first, key), first.path));
        }
    }
}

/// The choice whose plan the record names, under its own name or that of its executed version.
const ShortlistChoice& choice_named(const Shortlist& shortlist, const std::map<std::int64_t, Plan>& plans,
                                    const JsonReader& record) {
    const std::string name = record.string("plan");
    std::string names;
    for (const ShortlistChoice& choice : shortlist.choices) {
        if (choice.plan_name == name || as_executed(plans.at(choice.number)).name == name) return choice;
        names += (names.empty() ? "" : ", ") + choice.plan_name;
    }
    record.fail("plan", "the record of a plan of the shortlist: " + names);
}

RecordFile read_record(const std::string& path, const Plan& plan, std::string text) {
    const JsonReader reader = JsonReader::parse(text, path, JsonPolicy::lenient);
    RecordFile file{.path = path, .text = std::move(text)};
    file.plan = reader.string("plan") == plan.name ? plan : as_executed(plan);
    file.record = program::run_record_from_json_text(file.text, path, proven_program(file.plan));
    file.text.clear();
    return file;
}

MeasuredChoice measured(const ShortlistChoice& choice, const RecordFile* file, std::int64_t steps) {
    MeasuredChoice result{.choice = choice};
    if (file == nullptr) {
        result.why_not = "no record";
        return result;
    }
    const program::RunRecord& record = file->record;
    // Records of runs that were ended early have fewer steps than the launch script asks for.
    const auto run = static_cast<std::int64_t>(record.step_seconds.size());
    if (record.maker == program::Maker::executed && run < steps) {
        result.why_not = fmt::format("ended after {} of {} steps", run, steps);
        return result;
    }
    if (record.step_time_s <= 0) {
        throw InputError(file->path, "/step_time_s", fmt::format("{}", record.step_time_s), "more than 0");
    }
    result.step_time_s = record.step_time_s;
    if (file->plan.implementation.name != choice.implementation) {
        // The executor ran another implementation than that of the plan: its own prediction is compared.
        const topologies::Cluster cluster(file->plan.cluster);
        const auto shorter = sim::shorter_steps(file->plan);
        const sim::Evaluation evaluation = shorter ? sim::evaluate_from(*shorter, file->plan, cluster)
                                                   : sim::evaluate(program::lower(file->plan), cluster);
        result.choice.step_time_s = evaluation.record.step_time_s;
        result.choice.implementation += " by " + file->plan.implementation.name;
    }
    return result;
}

}  // namespace

void check_shortlist_folder(const std::string& folder) {
    std::error_code failed;
    const fs::path path = fs::absolute(folder).lexically_normal();
    const fs::path whole = path.filename().empty() ? path.parent_path() : path;
    if (folder.empty()) throw InputError("command line", "--output-dir", "''", "the path of a folder");
    if (fs::exists(whole, failed) && !is_empty_folder(whole)) {
        throw InputError("command line", "--output-dir", folder,
                         "a folder that does not exist yet, or is empty: files are not overwritten");
    }
    if (!fs::is_directory(whole.parent_path(), failed)) {
        throw InputError("command line", "--output-dir", folder, "a folder in an existing folder");
    }
    check_writable((whole.parent_path() / fmt::format(".{}.part", whole.filename().string())).string());
    (void)scriptable_path("--output-dir", folder);
}

void write_shortlist(const std::vector<sim::PlanRequest>& requests, std::size_t count, const std::string& folder,
                     bool json) {
    std::vector<PlanResult> results = sim::shortlist(requests, count);
    const PlanResult first = results.front();
    const program::Training& training = first.plan.training;
    Shortlist shortlist{.model = first.plan.model.name,
                        .cluster = first.plan.cluster.name,
                        .devices = first.plan.parallelism.world_size(),
                        .global_batch = training.global_batch_size,
                        .sequence_length = training.sequence_length,
                        .steps = kSteps};
    const fs::path there = scriptable_path("--output-dir", folder);
    Files files;
    std::int64_t number = 0;
    for (PlanResult& result : results) {
        shortlist.choices.push_back(choice_of(result, first, ++number, there, files));
    }
    files[kShortlistIndex] = reports::shortlist_json(shortlist);
    write_folder(folder, files);
    if (!json) print(reports::shortlist_text(shortlist, folder));
}

int pick_plan(const std::vector<std::string>& records, const std::string& folder, const std::string& output,
              bool json) {
    const fs::path from = folder.empty() ? fs::path(records.front()).parent_path() : fs::path(folder);
    const std::string index = (from / kShortlistIndex).string();
    const Shortlist shortlist = reports::shortlist_from_json_text(read_text_file(index), index);
    std::map<std::int64_t, Plan> plans;
    NamedPaths inputs{{"the shortlist", index}};
    for (const ShortlistChoice& choice : shortlist.choices) {
        const std::string path = (from / choice.plan_file).string();
        plans[choice.number] = program::read_plan(path);
        inputs.emplace_back("a plan of the shortlist", path);
    }
    for (const std::string& record : records) inputs.emplace_back("a record", record);
    check_outputs({{"--output", output}}, inputs);
    std::vector<RecordFile> files;
    std::map<std::int64_t, std::size_t> file_of;  // by choice
    for (const std::string& path : records) {
        std::string text = read_text_file(path, program::kLargestRunRecord);
        const JsonReader reader = JsonReader::parse(text, path, JsonPolicy::lenient);
        reader.expect_schema("orrery.run_record/1");
        const ShortlistChoice& choice = choice_named(shortlist, plans, reader);
        const auto [entry, is_new] = file_of.emplace(choice.number, files.size());
        if (!is_new) reader.fail("plan", "one record of each plan; " + files[entry->second].path + " is of it, too");
        files.push_back(read_record(path, plans.at(choice.number), std::move(text)));
    }
    check_comparable(files);
    Picked picked{.is_measured = files.front().record.maker == program::Maker::executed};
    bool any = false;
    for (const ShortlistChoice& choice : shortlist.choices) {
        const auto entry = file_of.find(choice.number);
        const RecordFile* file = entry == file_of.end() ? nullptr : &files[entry->second];
        picked.choices.push_back(measured(choice, file, shortlist.steps));
        any = any || picked.choices.back().step_time_s.has_value();
    }
    if (!any) {
        throw InputError(records.front(), "/step_seconds", picked.choices.front().why_not,
                         fmt::format("at least one record with {} steps", shortlist.steps));
    }
    const std::int64_t number = picked.fastest().choice.number;
    if (!output.empty()) write_file_atomically(output, program::to_json_text(plans.at(number)));
    print(json ? reports::picked_json(picked) : reports::picked_text(picked));
    if (!output.empty() && !json) print(fmt::format("the picked plan was written to {}\n", output));
    return kExitDone;
}

}  // namespace orrery::cli
