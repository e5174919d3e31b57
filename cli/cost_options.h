// Options about what devices cost, for every command that reports costs.
#pragma once

#include <optional>
#include <string>

#include "sim/capacity/catalogue.h"
#include "topologies/cluster_spec.h"

namespace CLI {  // NOLINT(readability-identifier-naming): the library's own name
class App;
}  // namespace CLI

namespace orrery::cli {

/// As given on the command line.
struct CostOptions {
    std::string catalogue, price_csv, price_as_of;  // files, and the date of the second
    bool spot = false;
    std::optional<double> usd_per_device_hour, watts, node_watts, pue;
    bool operator==(const CostOptions&) const = default;
};

void add_cost_options(CLI::App& command, CostOptions& options);

/// The built-in catalogue with the user's figures over it. Throws InputError.
[[nodiscard]] sim::Catalogue catalogue_of(const CostOptions& options);
/// The figures of the cluster's device, with the user's over them.
[[nodiscard]] program::CostFigures cost_figures_of(const CostOptions& options, const topologies::ClusterSpec& cluster);

}  // namespace orrery::cli
