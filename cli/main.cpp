// The `orrery` command: reads arguments, calls the rooms, prints. Errors are caught here and nowhere else.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <csignal>
#include <cstdio>
#include <new>

#include "cli/child.h"
#include "cli/commands.h"
#include "core/error.h"
#include "core/file.h"

namespace {

int complain(const char* kind, const std::string& message, int code) {
    std::fflush(stdout);
    fmt::print(stderr, "orrery: {}{}\n", kind, message);
    return code;
}

/// What to say about the first word that no command knows, or "": where CLI11 would name what is missing instead.
std::string about_unknown_word(const CLI::App& app) {
    const std::vector<std::string> unknown = app.remaining(true);
    if (unknown.empty()) return "";
    const std::vector<CLI::App*> chosen = app.get_subcommands();
    std::string command = "orrery";
    std::vector<std::string> names;
    if (chosen.empty()) {
        for (const CLI::App* known : app.get_subcommands({})) names.push_back(known->get_name());
    } else {
        command += " " + chosen.front()->get_name();
        for (const CLI::Option* option : chosen.front()->get_options()) {
            if (option->get_group().empty()) continue;  // not for users
            for (const std::string& name : option->get_lnames()) names.push_back("--" + name);
        }
    }
    const std::string near = orrery::nearest_name(unknown.front(), names);
    return fmt::format("{}: {} knows no such word; {}allowed: {} (see {} --help)", unknown.front(), command,
                       near.empty() ? "" : "did you mean '" + near + "'? ", fmt::join(names, ", "), command);
}

}  // namespace

int main(int argc, char** argv) {
    std::signal(SIGPIPE, SIG_IGN);
    std::signal(SIGXFSZ, SIG_IGN);  // a limit on the size of files: the write fails and says why
    CLI::App app{"Orrery predicts how a distributed training job will run, and runs it to prove the prediction."};
    app.name("orrery");
    app.require_subcommand(1);
    app.set_version_flag("--version", "orrery 0.1.0");
    app.footer(
        "Exit codes: 0 done, 1 the job failed, 2 the input is wrong, 3 no feasible plan, 70 a bug of ours, "
        "128 + the signal by which the user ended the command.");
    orrery::cli::Action chosen;
    orrery::cli::add_plan(app, chosen);
    orrery::cli::add_simulate(app, chosen);
    orrery::cli::add_run(app, chosen);
    orrery::cli::add_validate(app, chosen);
    orrery::cli::add_calibrate(app, chosen);
    orrery::cli::add_models(app, chosen);
    orrery::cli::add_clusters(app, chosen);
    orrery::cli::add_topo(app, chosen);
    orrery::cli::add_collectives(app, chosen);
    try {
        app.parse(argc, argv);
    } catch (const CLI::ParseError& error) {
        if (error.get_exit_code() == 0) return app.exit(error);  // --help, --version
        if (const std::string text = about_unknown_word(app); !text.empty()) {
            return complain("", text, orrery::kExitInputWrong);
        }
        return complain("", std::string(error.what()) + " (see orrery --help)", orrery::kExitInputWrong);
    }
    try {
        return chosen();
    } catch (const orrery::InputError& error) {
        return complain("", error.what(), orrery::kExitInputWrong);
    } catch (const orrery::InfeasibleError& error) {
        return complain("no feasible plan: ", error.what(), orrery::kExitInfeasible);
    } catch (const orrery::JobError& error) {
        return complain("", error.what(), orrery::kExitJobFailed);
    } catch (const orrery::cli::StoppedBySignal& stop) {
        return stop.exit_code();
    } catch (const std::bad_alloc&) {
        return complain("", "out of memory", orrery::kExitJobFailed);
    } catch (const std::exception& error) {
        return complain("this is a bug of ours: ", error.what(), orrery::kExitBug);
    }
}
