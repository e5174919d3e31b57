#include <CLI/CLI.hpp>

#include "cli/collective_places.h"
#include "cli/commands.h"
#include "cli/validate_collectives.h"
#include "core/error.h"
#include "reports/collective_predictions.h"
#include "sim/network/collectives.h"
#include "sim/published/published_collectives.h"
#include "topologies/derived_nccl.h"

namespace orrery::cli {
namespace {

using published::CollectiveSetup;
using published::PublishedCollective;
using reports::CollectivePrediction;

CollectivePrediction predict(const PublishedCollective& row, CollectivePlaces& places, FiguresOf figures) {
    CollectivePrediction result{.id = row.id,
                                .source = row.source,
                                .op = row.op,
                                .hardware = row.hardware,
                                .dtype = row.dtype,
                                .nccl_version = row.nccl_version,
                                .ranks = row.ranks,
                                .nodes = row.nodes,
                                .bytes = row.bytes,
                                .measured_us = row.measured_us};
    const published::SetupOfRow translated = published::setup_of(row);
    if (!translated.setup) {
        result.skipped = translated.reason;
        return result;
    }
    CollectiveSetup setup = *translated.setup;
    if (figures == FiguresOf::other_devices) setup.cluster.device.nccl = topologies::derived_nccl(setup.cluster);
    const sim::CollectiveCost cost =
        sim::collective_cost(setup.kind, *row.bytes, places.of(setup.cluster, row.ranks, row.nodes), setup.cluster,
                             options_of(setup, row.nccl_version));
    result.device = setup.cluster.device.name;
    result.algorithm = cost.algorithm_name();
    result.protocol = cost.detail;
    result.predicted_us = cost.seconds * 1e6 + setup.tool_us.value;
    if (!row.measured_us) result.skipped = "no time stated";
    if (!row.doubt.empty()) result.skipped = row.doubt;
    return result;
}

}  // namespace

std::vector<CollectivePrediction> predicted_collectives(const std::string& file, FiguresOf figures) {
    CollectivePlaces places;
    std::vector<CollectivePrediction> predictions;
    for (const PublishedCollective& row : published::read_published_collectives(file)) {
        predictions.push_back(predict(row, places, figures));
    }
    return predictions;
}

CLI::Option* add_collectives_options(CLI::App& command, CollectivesOptions& options) {
    CLI::Option* file =
        command.add_option("--collectives", options.file, "Measured collectives: predict them, run nothing");
    command.add_flag("--each", options.each_row, "Show each collective")->needs(file);
    return file;
}

int run_validate_collectives(const CollectivesOptions& options, bool json) {
    const std::vector<CollectivePrediction> predictions = predicted_collectives(options.file, FiguresOf::catalogue);
    print(json ? reports::collective_predictions_json(predictions)
               : reports::collective_predictions_text(predictions, options.each_row));
    return kExitDone;
}

}  // namespace orrery::cli
