#include "cli/calibrate_collectives.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>

#include "cli/collective_places.h"
#include "cli/commands.h"
#include "core/error.h"
#include "reports/row_predictions.h"
#include "reports/table.h"
#include "sim/published/published_collectives.h"
#include "sim/refine/nccl_fit.h"
#include "topologies/catalogue.h"

namespace orrery::cli {
namespace {

using Json = nlohmann::ordered_json;
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

/// A device's figures are those of groups inside a node and, across nodes, of those that its switches reduce for; a
/// network's are those of all groups across it.
bool is_wanted(const published::CollectiveSetup& setup, const sim::MeasuredCollective& row, const FitOptions& options,
               sim::FitTarget target) {
    const topologies::ClusterSpec& cluster = setup.cluster;
    if (target == sim::FitTarget::network) return cluster.nodes > 1 && cluster.nic.name == options.profile;
    if (cluster.device.name != options.profile) return false;
    return cluster.nodes == 1 ||
           sim::collective_cost(row.kind, row.bytes, row.placement, cluster, row.options).algorithm.starts_with("nvls");
}

/// What is left out together: a device's operation among as many ranks, or what was measured on one system.
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

struct Stage {
    const char *key, *title;
    std::vector<double> sim::NcclFit::*errors;
};
constexpr Stage kStages[]{{"before", "by the catalogue's figures", &sim::NcclFit::before},
                          {"after", "by the fitted figures", &sim::NcclFit::after},
                          {"left_out", "each part by a fit without it", &sim::NcclFit::left_out}};

/// Of the rows below 1 MiB, or of the others.
reports::ErrorSummary errors_of(const sim::MeasuredCollectives& measured, const std::vector<double>& errors,
                                bool small) {
    std::vector<double> chosen;
    for (std::size_t i = 0; i < errors.size(); ++i) {
        if ((measured.rows[i].bytes < kMebibyte) == small) chosen.push_back(errors[i]);
    }
    return chosen.empty() ? reports::ErrorSummary{} : reports::error_summary(std::move(chosen));
}

/// As it is put into a profile: with three digits.
double three_digits(double value) {
    return std::stod(fmt::format("{:.3g}", value));
}

std::string text_of(const FitOptions& options, const sim::MeasuredCollectives& measured, const sim::NcclFit& fit) {
    reports::Table figures(
        {{"figure", reports::Align::left}, {"before"}, {"fitted"}, {"rows"}, {"", reports::Align::left}});
    for (const sim::FittedFigure& figure : fit.figures) {
        figures.add_row({figure.key, fmt::format("{:.3g}", figure.before), fmt::format("{:.3g}", figure.after),
                         std::to_string(figure.rows), figure.held ? "held: too few rows move it" : ""});
    }
    reports::Table errors({{"errors", reports::Align::left},
                           {"messages", reports::Align::left},
                           {"rows"},
                           {"median"},
                           {"mean"},
                           {"p90"},
                           {"bias"}});
    for (const Stage& stage : kStages) {
        for (const bool small : {false, true}) {
            const reports::ErrorSummary summary = errors_of(measured, fit.*stage.errors, small);
            if (summary.rows == 0) continue;
            errors.add_row({stage.title, small ? "below 1 MiB" : "1 MiB and more", std::to_string(summary.rows),
                            reports::format_percent(summary.median), reports::format_percent(summary.mean),
                            reports::format_percent(summary.p90), reports::format_signed_percent(summary.bias)});
        }
    }
    return fmt::format("NCCL's figures of {}, fitted to {} measured collectives\n\n{}\n{}", options.profile,
                       measured.rows.size(), figures.to_text(), errors.to_text()) +
           "A part: an operation among as many ranks; of a network, a system.\n";
}

Json summary_json(const reports::ErrorSummary& summary) {
    return {{"rows", summary.rows},
            {"median_absolute_error", summary.median},
            {"mean_absolute_error", summary.mean},
            {"p90_absolute_error", summary.p90},
            {"bias", summary.bias}};
}

std::string json_of(const FitOptions& options, const sim::MeasuredCollectives& measured, const sim::NcclFit& fit) {
    Json figures = Json::array(), errors = Json::object();
    for (const sim::FittedFigure& figure : fit.figures) {
        figures.push_back({{"key", figure.key},
                           {"before", figure.before},
                           {"fitted", three_digits(figure.after)},
                           {"rows", figure.rows},
                           {"held", figure.held}});
    }
    for (const Stage& stage : kStages) {
        Json of_stage = Json::object();
        for (const bool small : {false, true}) {
            const reports::ErrorSummary summary = errors_of(measured, fit.*stage.errors, small);
            if (summary.rows > 0) of_stage[small ? "below_1_mib" : "from_1_mib"] = summary_json(summary);
        }
        errors[stage.key] = of_stage;
    }
    const Json document{{"schema", "orrery.nccl_fit/1"},
                        {"profile", options.profile},
                        {"rows", measured.rows.size()},
                        {"figures", figures},
                        {"errors", errors}};
    return document.dump(2) + "\n";
}

}  // namespace

int run_calibrate_collectives(const FitOptions& options, bool json) {
    const sim::FitTarget target = target_of(options.profile);
    const sim::MeasuredCollectives measured = measured_collectives(options, target);
    const sim::NcclFit fit = sim::fit_nccl(measured, target);
    print(json ? json_of(options, measured, fit) : text_of(options, measured, fit));
    return kExitDone;
}

}  // namespace orrery::cli
