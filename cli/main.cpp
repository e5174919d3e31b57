// The `orrery` command: reads arguments, calls the rooms, prints. Errors are caught here and nowhere else.
#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cerrno>
#include <charconv>
#include <cmath>
#include <csignal>
#include <cstdio>
#include <new>
#include <sstream>
#include <type_traits>

#include "cli/child.h"
#include "cli/commands.h"
#include "core/error.h"
#include "core/file.h"

namespace {

int complain(const char* kind, const std::string& message, int code) {
    std::fflush(stdout);
    orrery::cli::say(fmt::format("orrery: {}{}\n", kind, message));
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

/// Whether the text is a decimal number of the type and nothing else: the library clamps what is too large, and reads
/// 010 as 8 and nan as a number within any range.
template <typename Number>
bool is_plain_number(const std::string& text) {
    Number value{};
    const char* const end = text.data() + text.size();
    const char* const begin = text.data() + (text.starts_with('+') ? 1 : 0);
    const auto [stopped, error] = std::from_chars(begin, end, value);
    if (error != std::errc() || stopped != end) return false;
    if constexpr (std::is_floating_point_v<Number>) return std::isfinite(value);
    const std::size_t sign = text.starts_with('-') || text.starts_with('+') ? 1 : 0;
    return text[sign] != '0' || text.size() == sign + 1;
}

/// Refuses what the library lets pass: an option or a word without a value, which taken for absent would do silently
/// what nobody asked, and numbers that are read as others.
void check_values(const CLI::App& app) {
    for (const CLI::Option* option : app.get_options()) {
        const std::string type = option->get_type_name();
        const bool is_integer = type.starts_with("INT") || type.starts_with("UINT"),
                   is_real = type.starts_with("FLOAT");
        for (const std::string& value : option->results()) {
            const auto refuse = [&](const char* allowed) {
                throw orrery::InputError("command line", option->get_name(), "'" + value + "'", allowed);
            };
            if (value.empty()) refuse("a value");
            if (is_integer && !is_plain_number<std::int64_t>(value)) refuse("an integer below 2^63 in decimal digits");
            if (is_real && !is_plain_number<double>(value)) refuse("a finite number");
        }
    }
    for (const CLI::App* command : app.get_subcommands()) check_values(*command);
}

/// A standard stream that is closed would give its number to the next file that is opened.
void open_standard_streams() {
    for (const int stream : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) {
        if (fcntl(stream, F_GETFD) >= 0 || errno != EBADF) continue;
        // The other way round, so that reading from it or writing to it still fails.
        (void)open("/dev/null", stream == STDIN_FILENO ? O_WRONLY : O_RDONLY);
    }
}

/// --help and --version. What cannot be written is said, as of any other output.
int print_and_leave(const CLI::App& app, const CLI::ParseError& asked) {
    std::ostringstream text;
    const int code = app.exit(asked, text, text);
    orrery::cli::print(text.str());
    return code;
}

}  // namespace

int main(int argc, char** argv) {
    open_standard_streams();
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
    orrery::cli::add_implementations(app, chosen);
    orrery::cli::add_topo(app, chosen);
    orrery::cli::add_collectives(app, chosen);
    try {
        app.parse(argc, argv);
    } catch (const CLI::ParseError& error) {
        if (error.get_exit_code() == 0) {
            try {
                return print_and_leave(app, error);
            } catch (const orrery::JobError& wrong) {
                return complain("", wrong.what(), orrery::kExitJobFailed);
            }
        }
        if (const std::string text = about_unknown_word(app); !text.empty()) {
            return complain("", orrery::on_one_line(text), orrery::kExitInputWrong);
        }
        return complain("", orrery::on_one_line(error.what()) + " (see orrery --help)", orrery::kExitInputWrong);
    }
    try {
        check_values(app);
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
