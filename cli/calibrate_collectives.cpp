#include "cli/calibrate_collectives.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <map>
#include <utility>

#include "cli/collective_places.h"
#include "cli/commands.h"
#include "cli/validate_collectives.h"
#include "core/error.h"
#include "reports/fit_report.h"
#include "sim/published/published_collectives.h"
#include "sim/refine/nccl_fit.h"
#include "topologies/catalogue.h"

namespace orrery::cli {
namespace {

using published::PublishedCollective;
constexpr std::int64_t kMebibyte = std::int64_t{1} << 20;

sim::FitTarget target_of(const std::string& profile) {
    const std::vector<std::string> devices = topologies::device_names();
    if (std::find(devices.begin(), devices.end(), profile) != devices.end()) return sim::FitTarget::device;
    const std::vector<std::string> links = topologies::link_names();
    if (std::find(links.begin(), links.end(), profile) != links.end()) return sim::FitTarget::network;
    throw InputError("command line", "--profile", "'" + profile + "'",
                     "a device or a link of the catalogue: " +
                         fmt::format("{}, {}", fmt::join(devices, ", "), fmt::join(links, ", ")));
}

/// A device is fitted to groups inside a node and to groups across nodes for which its node switches reduce; a network
/// to all groups across it.
bool is_wanted(const published::CollectiveSetup& setup, const sim::MeasuredCollective& row, const FitOptions& options,
               sim::FitTarget target) {
    const topologies::ClusterSpec& cluster = setup.cluster;
    if (target == sim::FitTarget::network) return cluster.nodes > 1 && cluster.nic.name == options.profile;
    if (cluster.device.name != options.profile) return false;
    if (cluster.nodes == 1) return true;
    const auto chosen = sim::collective_cost(row.kind, row.bytes, row.placement, cluster, row.options).algorithm;
    return chosen && sim::algorithms::row_of(*chosen).manner.in_switches == sim::algorithms::InSwitches::of_nodes;
}

/// Rows with the same part are left out together: an operation and number of ranks of a device, or one system.
std::string part_of(const PublishedCollective& row, sim::FitTarget target) {
    return target == sim::FitTarget::device ? fmt::format("{} of {}", row.op, row.ranks) : row.hardware;
}

sim::MeasuredCollectives measured_collectives(const FitOptions& options, sim::FitTarget target) {
    sim::MeasuredCollectives measured;
    CollectivePlaces places;
    std::map<std::string, std::size_t> known;  // clusters, by name and nodes
    for (const std::string& file : options.files) {
        for (const PublishedCollective& row : published::read_published_collectives(file)) {
            const published::SetupOfRow translated = published::setup_of(row);
            if (!translated.setup || !row.measured_us || !row.doubt.empty() || row.ranks < 2) continue;
            const published::CollectiveSetup& setup = *translated.setup;
            sim::MeasuredCollective one{.kind = setup.kind,
                                        .bytes = *row.bytes,
                                        .placement = places.of(setup.cluster, row.ranks, row.nodes),
                                        .options = options_of(setup, row.nccl_version),
                                        .measured_s = *row.measured_us * 1e-6,
                                        .tool_s = setup.tool_us.value * 1e-6,
                                        .part = part_of(row, target)};
            if (!is_wanted(setup, one, options, target)) continue;
            const auto [place, is_new] =
                known.try_emplace(fmt::format("{} x {}", setup.cluster.name, setup.cluster.nodes), known.size());
            if (is_new) measured.clusters.push_back(setup.cluster);
            one.cluster = place->second;
            measured.rows.push_back(std::move(one));
        }
    }
    return measured;
}

/// Summarises the rows' errors with the figures of one stage of the fit; empty if the stage was not reached.
reports::FitReport::Errors errors_of(const char* key, const char* title, const sim::MeasuredCollectives& measured,
                                     const std::vector<double>& errors) {
    std::vector<double> large, small;
    for (std::size_t i = 0; i < errors.size(); ++i) {
        (measured.rows[i].bytes < kMebibyte ? small : large).push_back(errors[i]);
    }
    return {key, title, reports::error_summary(std::move(large)), reports::error_summary(std::move(small))};
}

reports::FitReport report_of(const FitOptions& options, const sim::MeasuredCollectives& measured,
                             const sim::NcclFit& fit) {
    reports::FitReport report{.profile = options.profile, .rows = measured.rows.size()};
    for (const sim::FittedFigure& figure : fit.figures) {
        report.figures.push_back({figure.key, figure.before, figure.after, figure.rows, figure.held});
    }
    report.errors = {errors_of("before", "by the catalogue's figures", measured, fit.before),
                     errors_of("after", "by the fitted figures", measured, fit.after),
                     errors_of("left_out", "each part by a fit without it", measured, fit.left_out)};
    return report;
}

}  // namespace

namespace {

/// Each device's figures were fitted to its own rows only, so figures derived from the other devices do not depend on
/// the rows they predict.
int run_leave_devices_out(const FitOptions& options, bool json) {
    std::vector<reports::CollectivePrediction> predictions;
    for (const std::string& file : options.files) {
        std::vector<reports::CollectivePrediction> of_file = predicted_collectives(file, FiguresOf::other_devices);
        std::move(of_file.begin(), of_file.end(), std::back_inserter(predictions));
    }
    print(json ? reports::collective_predictions_json(predictions)
               : reports::collective_predictions_text(predictions, false));
    return kExitDone;
}

}  // namespace

int run_calibrate_collectives(const FitOptions& options, bool json) {
    if (options.leave_devices_out == !options.profile.empty()) {
        throw InputError("command line", "--collectives", options.profile.empty() ? "alone" : "both",
                         "--profile, or --leave-devices-out");
    }
    if (options.leave_devices_out) return run_leave_devices_out(options, json);
    const sim::FitTarget target = target_of(options.profile);
    const sim::MeasuredCollectives measured = measured_collectives(options, target);
    const sim::NcclFit fit = sim::fit_nccl(measured, target);
    const reports::FitReport report = report_of(options, measured, fit);
    print(json ? reports::fit_report_json(report) : reports::fit_report_text(report));
    return kExitDone;
}

}  // namespace orrery::cli
