#include "cli/command_line.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <charconv>
#include <cmath>
#include <type_traits>

#include "cli/version.h"
#include "core/error.h"
#include "core/file.h"

namespace orrery::cli {
namespace {

/// Whether the text is exactly a decimal number of the type. CLI11 clamps numbers that are too large, and accepts 010
/// as 8 and nan as a number within any range.
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

}  // namespace

void add_commands(CLI::App& app, Action& chosen) {
    app.name("orrery");
    app.require_subcommand(1);
    app.set_version_flag("--version", std::string("orrery ") + kVersion);
    app.footer(
        "Exit codes: 0 success, 1 the job failed, 2 the input is wrong, 3 no feasible plan, 70 a bug in Orrery, "
        "128 + the signal with which the user ended the command.");
    add_plan(app, chosen);
    add_scale(app, chosen);
    add_capacity(app, chosen);
    add_whatif(app, chosen);
    add_merge(app, chosen);
    add_diff(app, chosen);
    add_report(app, chosen);
    add_simulate(app, chosen);
    add_run(app, chosen);
    add_validate(app, chosen);
    add_calibrate(app, chosen);
    add_backends(app, chosen);
    add_models(app, chosen);
    add_clusters(app, chosen);
    add_implementations(app, chosen);
    add_topo(app, chosen);
    add_collectives(app, chosen);
}

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
    const std::string near = nearest_name(unknown.front(), names);
    return fmt::format("{}: unknown argument of {}; {}allowed: {} (see {} --help)", unknown.front(), command,
                       near.empty() ? "" : "did you mean '" + near + "'? ", fmt::join(names, ", "), command);
}

void check_values(const CLI::App& app) {
    for (const CLI::Option* option : app.get_options()) {
        const std::string type = option->get_type_name();
        const bool is_integer = type.starts_with("INT") || type.starts_with("UINT"),
                   is_real = type.starts_with("FLOAT");
        for (const std::string& value : option->results()) {
            const auto refuse = [&](const char* allowed) {
                throw InputError("command line", option->get_name(), "'" + value + "'", allowed);
            };
            if (value.empty()) refuse("a value");
            if (is_integer && !is_plain_number<std::int64_t>(value)) refuse("an integer below 2^63 in decimal digits");
            if (is_real && !is_plain_number<double>(value)) refuse("a finite number");
        }
    }
    for (const CLI::App* command : app.get_subcommands()) check_values(*command);
}

}  // namespace orrery::cli
