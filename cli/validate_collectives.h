// `orrery validate --collectives`: measured collectives, predicted, against what was measured.
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

/// Whose figures predict: the catalogue's, or those derived from the other devices' (topologies::derived_nccl).
enum class FiguresOf { catalogue, other_devices };
[[nodiscard]] std::vector<reports::CollectivePrediction> predicted_collectives(const std::string& file,
                                                                               FiguresOf figures);

/// The options of its own; the returned one is --collectives.
CLI::Option* add_collectives_options(CLI::App& command, CollectivesOptions& options);

[[nodiscard]] int run_validate_collectives(const CollectivesOptions& options, bool json);

}  // namespace orrery::cli
