#include <CLI/CLI.hpp>
#include <cstdio>
#include <map>
#include <memory>
#include <numeric>

#include "cli/commands.h"
#include "cli/validate_collectives.h"
#include "core/error.h"
#include "reports/collective_predictions.h"
#include "sim/network/collectives.h"
#include "sim/published/published_collectives.h"
#include "topologies/cluster.h"

namespace orrery::cli {
namespace {

using published::CollectiveSetup;
using published::PublishedCollective;
using reports::CollectivePrediction;

/// Rows of one source share a cluster; its graph is built once.
class Places {
  public:
    const sim::GroupPlacement& of(const topologies::ClusterSpec& spec, std::int64_t ranks, std::int64_t nodes) {
        const auto [place, is_new] = placements_.try_emplace({spec.name, spec.nodes, ranks, nodes});
        if (is_new) place->second = placed(spec, ranks);
        return place->second;
    }

  private:
    static sim::GroupPlacement placed(const topologies::ClusterSpec& spec, std::int64_t ranks) {
        const topologies::Cluster cluster(spec);
        std::vector<std::int64_t> devices(static_cast<std::size_t>(ranks));
        if (spec.nodes == 1) {
            std::iota(devices.begin(), devices.end(), std::int64_t{0});
        } else {
            const std::int64_t members = ranks / spec.nodes;  // of each node, the first
            for (std::int64_t rank = 0; rank < ranks; ++rank) {
                devices[static_cast<std::size_t>(rank)] = rank / members * spec.devices_per_node + rank % members;
            }
        }
        return sim::place_group(cluster, devices);
    }
    std::map<std::tuple<std::string, std::int64_t, std::int64_t, std::int64_t>, sim::GroupPlacement> placements_;
};

/// "2.28.9" as NCCL counts: 22809. Not stated, or in another form: the model's own version.
std::int64_t version_of(const std::string& text) {
    int major = 0, minor = 0, patch = 0;
    if (std::sscanf(text.c_str(), "%d.%d.%d", &major, &minor, &patch) != 3)
        return sim::CollectiveOptions{}.nccl_version;
    return major * 10'000 + minor * 100 + patch;
}

CollectivePrediction predict(const PublishedCollective& row, Places& places) {
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
    const CollectiveSetup& setup = *translated.setup;
    const sim::CollectiveOptions how{.dtype = setup.dtype,
                                     .nvls = !setup.nvls_off,
                                     .sharp = setup.sharp,
                                     .nccl_version = version_of(row.nccl_version)};
    const sim::CollectiveCost cost = sim::collective_cost(
        setup.kind, *row.bytes, places.of(setup.cluster, row.ranks, row.nodes), setup.cluster, how);
    result.device = setup.cluster.device.name;
    result.algorithm = cost.algorithm;
    result.protocol = cost.detail;
    result.predicted_us = cost.seconds * 1e6 + setup.tool_us.value;
    if (!row.measured_us) result.skipped = "no time stated";
    if (!row.doubt.empty()) result.skipped = row.doubt;
    return result;
}

}  // namespace

CLI::Option* add_collectives_options(CLI::App& command, CollectivesOptions& options) {
    CLI::Option* file =
        command.add_option("--collectives", options.file, "Measured collectives: predict them, run nothing");
    command.add_flag("--each", options.each_row, "Show each collective")->needs(file);
    return file;
}

int run_validate_collectives(const CollectivesOptions& options, bool json) {
    Places places;
    std::vector<CollectivePrediction> predictions;
    for (const PublishedCollective& row : published::read_published_collectives(options.file)) {
        predictions.push_back(predict(row, places));
    }
    print(json ? reports::collective_predictions_json(predictions)
               : reports::collective_predictions_text(predictions, options.each_row));
    return kExitDone;
}

}  // namespace orrery::cli
