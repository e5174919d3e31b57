#include "cli/cost_options.h"

#include <CLI/CLI.hpp>

#include "core/error.h"
#include "core/file.h"

namespace orrery::cli {

void add_cost_options(CLI::App& command, CostOptions& options) {
    command.add_option("--catalogue", options.catalogue,
                       "File of orrery.catalogue/1 whose prices and failure figures replace the built-in ones");
    CLI::Option* csv = command.add_option(
        "--price-csv", options.price_csv,
        "Prices from a CSV file with the columns of SkyPilot's catalogues: the lowest price of each accelerator");
    command.add_option("--price-as-of", options.price_as_of, "Year and month of that file, such as 2026-11")
        ->needs(csv);
    command.add_flag("--spot", options.spot, "Take its spot prices")->needs(csv);
    const auto amount = CLI::Range(1e-6, 1e9);
    command.add_option("--usd-per-gpu-hour", options.usd_per_device_hour, "Price of a device-hour in dollars")
        ->check(amount);
    command.add_option("--watts", options.watts, "Power of a device; default: the limit in its profile")->check(amount);
    command.add_option("--node-watts", options.node_watts, "Power of a node beside its devices; default: none")
        ->check(amount);
    command.add_option("--pue", options.pue, "Power of the site over the power of its nodes; default: 1")
        ->check(CLI::Range(1.0, 10.0));
}

sim::Catalogue catalogue_of(const CostOptions& options) {
    sim::Catalogue catalogue = sim::built_in_catalogue();
    if (!options.catalogue.empty()) {
        catalogue = sim::merged(std::move(catalogue),
                                sim::catalogue_from_json_text(read_text_file(options.catalogue), options.catalogue));
    }
    if (!options.price_csv.empty()) {
        if (options.price_as_of.empty()) {
            throw InputError("command line", "--price-csv", options.price_csv, "only with --price-as-of, its date");
        }
        catalogue = sim::merged(std::move(catalogue),
                                sim::catalogue_from_price_csv(read_text_file(options.price_csv), options.price_csv,
                                                              options.price_as_of, options.spot));
    }
    return catalogue;
}

program::CostFigures cost_figures_of(const CostOptions& options, const topologies::ClusterSpec& cluster) {
    program::CostFigures figures = sim::cost_figures(catalogue_of(options), cluster.device);
    const auto give = [](std::optional<program::DatedFigure>& figure, const std::optional<double>& given,
                         const char* option) {
        if (given) figure = {.value = *given, .as_of = "", .source = option};
    };
    give(figures.usd_per_device_hour, options.usd_per_device_hour, "--usd-per-gpu-hour");
    give(figures.watts, options.watts, "--watts");
    give(figures.node_watts, options.node_watts, "--node-watts");
    give(figures.pue, options.pue, "--pue");
    return figures;
}

}  // namespace orrery::cli
