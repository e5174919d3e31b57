#include "cli/run_orrery.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <new>
#include <sstream>

#include "cli/child.h"
#include "cli/command_line.h"
#include "cli/commands.h"
#include "core/error.h"
#include "core/file.h"

namespace orrery::cli {
namespace {

int complain(const char* kind, const std::string& message, int code) {
    std::fflush(stdout);
    say(fmt::format("orrery: {}{}\n", kind, message));
    return code;
}

/// Opens closed standard streams on /dev/null. Otherwise the next opened file would get the number of the stream.
void open_standard_streams() {
    for (const int stream : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) {
        if (fcntl(stream, F_GETFD) >= 0 || errno != EBADF) continue;
        // Opened in the wrong direction, so that using the stream still fails.
        (void)open("/dev/null", stream == STDIN_FILENO ? O_WRONLY : O_RDONLY);
    }
}

/// Prints --help or --version. Throws JobError if the text cannot be written.
int print_and_leave(const CLI::App& app, const CLI::ParseError& asked) {
    std::ostringstream text;
    const int code = app.exit(asked, text, text);
    print(text.str());
    return code;
}

}  // namespace

int run_orrery(int argc, char** argv) {
    open_standard_streams();
    std::signal(SIGPIPE, SIG_IGN);
    std::signal(SIGXFSZ, SIG_IGN);  // beyond a file-size limit the write fails with an error instead of a signal
    CLI::App app{"Orrery predicts how a distributed training job will run, and runs it to check the prediction."};
    Action chosen;
    add_commands(app, chosen);
    try {
        app.parse(argc, argv);
    } catch (const CLI::ParseError& error) {
        if (error.get_exit_code() == 0) {
            try {
                return print_and_leave(app, error);
            } catch (const JobError& wrong) {
                return complain("", wrong.what(), kExitJobFailed);
            }
        }
        if (const std::string text = about_unknown_word(app); !text.empty()) {
            return complain("", on_one_line(text), kExitInputWrong);
        }
        return complain("", on_one_line(error.what()) + " (see orrery --help)", kExitInputWrong);
    }
    try {
        check_values(app);
        return chosen();
    } catch (const InputError& error) {
        return complain("", error.what(), kExitInputWrong);
    } catch (const InfeasibleError& error) {
        return complain("no feasible plan: ", error.what(), kExitInfeasible);
    } catch (const JobError& error) {
        return complain("", error.what(), kExitJobFailed);
    } catch (const StoppedBySignal& stop) {
        return stop.exit_code();
    } catch (const std::bad_alloc&) {
        return complain("", "out of memory", kExitJobFailed);
    } catch (const std::exception& error) {
        return complain("this is a bug in Orrery: ", error.what(), kExitBug);
    }
}

}  // namespace orrery::cli
