#include "cli/slurm_job.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cctype>
#include <filesystem>
#include <regex>

#include "cli/child.h"
#include "cli/commands.h"
#include "core/error.h"
#include "core/file.h"
#include "exec/launch.h"
#include "exec/slurm.h"

namespace orrery::cli {
namespace {

constexpr const char* kSlurmGroup = "On a Slurm cluster";

bool has_control_characters(const std::string& text) {
    return std::any_of(text.begin(), text.end(), [](unsigned char letter) { return std::iscntrl(letter) != 0; });
}

/// For a one-line message: control characters become '?'.
std::string shown(std::string text) {
    std::replace_if(
        text.begin(), text.end(), [](unsigned char letter) { return std::iscntrl(letter) != 0; }, '?');
    return text;
}

/// Checks the names of partitions and accounts, or lists of them.
void check_name(const char* option, const std::string& value) {
    static const std::regex names("[A-Za-z0-9_][A-Za-z0-9_.@:+-]*(,[A-Za-z0-9_][A-Za-z0-9_.@:+-]*)*");
    if (!value.empty() && !std::regex_match(value, names)) {
        throw InputError("command line", option, shown(value),
                         "a name as Slurm has it, or several separated by commas");
    }
}

void check_time(const std::string& value) {
    static const std::regex forms("[0-9]+(:[0-9]{1,2}){0,2}|[0-9]+-[0-9]{1,2}(:[0-9]{1,2}){0,2}");
    if (!value.empty() && !std::regex_match(value, forms)) {
        throw InputError("command line", "--time", shown(value),
                         "minutes, minutes:seconds, hours:minutes:seconds, or days-hours, days-hours:minutes, "
                         "days-hours:minutes:seconds");
    }
}

/// Reads one KEY=VALUE, or KEY alone for an option without a value.
std::pair<std::string, std::string> read_option(const std::string& text, const exec::SlurmJob& job) {
    static const std::regex names("[a-z][a-z0-9]*(-[a-z0-9]+)*");
    const auto refuse = [&](const std::string& allowed) {
        throw InputError("command line", "--slurm-option", shown(text), allowed);
    };
    const std::size_t equals = std::min(text.find('='), text.size());
    const std::string key = text.substr(0, equals);
    const std::string value = text.substr(std::min(equals + 1, text.size()));
    if (key.size() < 2 || !std::regex_match(key, names) || has_control_characters(text)) {
        refuse("KEY=VALUE with a long option of sbatch without its dashes, such as qos=high, or KEY alone");
    }
    for (const auto& [option, instead] : exec::sbatch_options_taken(job)) {
        // sbatch accepts abbreviated option names.
        if (option.starts_with(key)) refuse(fmt::format("anything but {}; {}", option, instead));
    }
    for (const auto& [option, earlier] : job.more) {
        if (option == key) refuse(fmt::format("{} once", key));
    }
    if (key == "gres" && value.find("gpu") != std::string::npos) refuse("gres without gpu; the plan sets their number");
    return {key, value};
}

exec::SlurmJob read_options(const SlurmOptions& options) {
    check_name("--partition", options.partition);
    check_name("--account", options.account);
    check_time(options.time);
    exec::SlurmJob job{.ranks_per_node = options.ranks_per_node,
                       .cpus_per_task = options.cpus_per_task,
                       .shares_nodes = options.share_nodes,
                       .partition = options.partition,
                       .account = options.account,
                       .time = options.time};
    for (const std::string& text : options.more) job.more.push_back(read_option(text, job));
    return job;
}

/// The lines of another program's message, joined by "; ".
std::string in_one_line(std::string text) {
    while (!text.empty() && text.back() == '\n') text.pop_back();
    std::string line;
    for (const char letter : text) line += letter == '\n' ? std::string("; ") : std::string(1, letter);
    return line;
}

void submit(const std::string& script, const std::string& path, const exec::SlurmJob& job, const std::string& name) {
    const std::string sbatch = exec::find_in_path("sbatch");
    if (sbatch.empty()) {
        throw InputError(
            "PATH: no sbatch found, which --submit needs; allowed: a PATH with sbatch (Debian: apt install "
            "slurm-client), or without --submit a script to take to the cluster");
    }
    write_file_atomically(path, script);
    const CommandOutput answer = run_and_read({sbatch, "--parsable", path});
    if (answer.exit_code != 0) {
        throw JobError(
            fmt::format("sbatch {} failed with exit code {}: {}", path, answer.exit_code, in_one_line(answer.err)));
    }
    static const std::regex parsable("([0-9]+)(;[^\n]*)?\n");  // job id and, with several clusters, the cluster's name
    std::smatch parts;
    if (!std::regex_match(answer.out, parts, parsable)) {
        throw JobError(fmt::format("sbatch {} printed no job id: {}", path, in_one_line(answer.out + answer.err)));
    }
    print(fmt::format(
        "submitted job {}\n  script  {}\n  output  {}\n", parts[1].str(), path,
        (std::filesystem::path(job.output_folder) / fmt::format("{}-{}.out", name, parts[1].str())).string()));
}

}  // namespace

void add_slurm_options(CLI::App& command, SlurmOptions& options) {
    CLI::Option* slurm =
        command.add_flag("--slurm", options.wanted, "Print an sbatch script that runs this on a cluster")
            ->group(kSlurmGroup);
    const auto add = [&](const char* flag, auto& value, const char* help) {
        return command.add_option(flag, value, help)->group(kSlurmGroup)->needs(slurm);
    };
    command.add_flag("--submit", options.submit, "Write the script next to the results and submit it with sbatch")
        ->group(kSlurmGroup)
        ->needs(slurm);
    add("--partition", options.partition, "Partition");
    add("--account", options.account, "Account");
    add("--time", options.time, "Time limit of the job, such as 2:00:00");
    add("--ranks-per-node", options.ranks_per_node, "Ranks on each Slurm node, if that is not a node of the plan")
        ->check(CLI::Range(std::int64_t{1}, std::int64_t{1} << 20));
    add("--cpus-per-task", options.cpus_per_task, "Cores of each rank (default: 2 with a GPU, else 1)")
        ->check(CLI::Range(std::int64_t{1}, std::int64_t{1} << 12));
    command
        .add_flag("--share-nodes", options.share_nodes,
                  "Allow other jobs on the nodes; by default the job has the nodes and all their memory to itself")
        ->group(kSlurmGroup)
        ->needs(slurm);
    add("--slurm-option", options.more, "KEY=VALUE: any other sbatch option, such as qos=high; can be repeated")
        ->allow_extra_args(false);
}

std::string scriptable_path(const std::string& key, const std::string& path) {
    if (path.empty()) return path;
    if (has_control_characters(path)) {
        throw InputError("command line", key, shown(path), "with --slurm, a path without control characters");
    }
    const std::filesystem::path absolute = std::filesystem::absolute(path);
    // ".." after a symbolic link cannot be resolved textually.
    const bool goes_up = std::find(absolute.begin(), absolute.end(), "..") != absolute.end();
    return (goes_up ? absolute : absolute.lexically_normal()).string();
}

void start_on_slurm(const SlurmOptions& options, const program::Plan& plan, const std::vector<std::string>& arguments,
                    const std::string& folder) {
    exec::SlurmJob job = read_options(options);
    if (folder.find('\\') != std::string::npos) {
        throw InputError("command line", "folder of the results", folder,
                         "with --slurm, a path without backslashes, which sbatch interprets");
    }
    job.program = scriptable_path("orrery", exec::own_path());
    job.arguments = arguments;
    job.working_folder = scriptable_path("working folder", std::filesystem::current_path().string());
    job.output_folder = folder;
    const std::string script = exec::sbatch_script(plan, job);
    if (!options.submit) return print(script);
    const std::string name = exec::slurm_job_name(plan);
    const std::string path = (std::filesystem::path(folder) / (name + ".sbatch")).string();
    check_outputs({{"--submit", path}}, {});
    submit(script, path, job, name);
}

}  // namespace orrery::cli
