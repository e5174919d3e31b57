// `orrery validate --collectives`: predicts measured collectives and compares.
#pragma once

#include <string>
#include <vector>

#include "reports/collective_predictions.h"

namespace CLI {  // NOLINT(readability-identifier-naming): the library's own name
class App;
class Option;
}  // namespace CLI

namespace orrery::cli {

struct CollectivesOptions {
    std::string file;
    bool each_row = false;
};

/// The figures used for a device: the catalogue's, or those derived from other devices (topologies::derived_nccl).
enum class FiguresOf { catalogue, other_devices };
[[nodiscard]] std::vector<reports::CollectivePrediction> predicted_collectives(const std::string& file,
                                                                               FiguresOf figures);

/// Adds the options; returns --collectives.
CLI::Option* add_collectives_options(CLI::App& command, CollectivesOptions& options);

[[nodiscard]] int run_validate_collectives(const CollectivesOptions& options, bool json);

}  // namespace orrery::cli
