// The `orrery` command: reads arguments, calls the rooms, prints. Errors are caught here and nowhere else.
#include <fmt/core.h>

#include <CLI/CLI.hpp>
#include <csignal>
#include <cstdio>
#include <new>

#include "cli/commands.h"
#include "core/error.h"

namespace {

int complain(const char* kind, const std::string& message, int code) {
    std::fflush(stdout);
    fmt::print(stderr, "orrery: {}{}\n", kind, message);
    return code;
}

}  // namespace

int main(int argc, char** argv) {
    std::signal(SIGPIPE, SIG_IGN);
    CLI::App app{"Orrery predicts how a distributed training job will run, and runs it to prove the prediction."};
    app.name("orrery");
    app.require_subcommand(1);
    app.set_version_flag("--version", "orrery 0.1.0");
    app.footer("Exit codes: 0 done, 1 the job failed, 2 the input is wrong, 3 no feasible plan, 70 a bug of ours.");
    orrery::cli::Action chosen;
    orrery::cli::add_plan(app, chosen);
    orrery::cli::add_simulate(app, chosen);
    orrery::cli::add_run(app, chosen);
    orrery::cli::add_validate(app, chosen);
    orrery::cli::add_calibrate(app, chosen);
    orrery::cli::add_models(app, chosen);
    orrery::cli::add_clusters(app, chosen);
    try {
        app.parse(argc, argv);
    } catch (const CLI::ParseError& error) {
        if (error.get_exit_code() == 0) return app.exit(error);  // --help, --version
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
    } catch (const std::bad_alloc&) {
        return complain("", "out of memory", orrery::kExitJobFailed);
    } catch (const std::exception& error) {
        return complain("this is a bug of ours: ", error.what(), orrery::kExitBug);
    }
}
