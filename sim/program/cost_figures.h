// What it costs to use a device: money, power and failures. Figures that change with time and place have a date and a
// source.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace orrery::program {

struct DatedFigure {
    double value = 0;
    std::string as_of;  // year and month; empty: it does not change, such as a datasheet's
    std::string source;
    bool operator==(const DatedFigure&) const = default;
};

/// What is not known is not set.
struct TokenCosts {
    std::optional<double> usd_per_billion_tokens, kwh_per_billion_tokens;
};

/// What is not known is not set, and nothing that needs it is reported.
struct CostFigures {
    std::optional<DatedFigure> usd_per_device_hour;
    std::optional<DatedFigure> watts;       // of a device under load
    std::optional<DatedFigure> node_watts;  // of a node beside its devices; not set: 0
    std::optional<DatedFigure> pue;         // power of the whole site / power of the nodes; not set: 1

    /// For the devices of whole nodes.
    [[nodiscard]] std::optional<double> usd_per_hour(std::int64_t devices) const {
        if (!usd_per_device_hour) return {};
        return usd_per_device_hour->value * static_cast<double>(devices);
    }
    [[nodiscard]] std::optional<double> kilowatts(std::int64_t devices, std::int64_t devices_per_node) const {
        if (!watts) return {};
        const std::int64_t nodes = (devices + devices_per_node - 1) / devices_per_node;
        const double of_nodes = node_watts ? node_watts->value * static_cast<double>(nodes) : 0;
        return (watts->value * static_cast<double>(devices) + of_nodes) * (pue ? pue->value : 1) / 1000;
    }
    /// At this number of tokens a second of all devices.
    [[nodiscard]] TokenCosts token_costs(double tokens_per_s, std::int64_t devices,
                                         std::int64_t devices_per_node) const {
        constexpr double kSecondsPerHour = 3600;
        const double hours = 1e9 / tokens_per_s / kSecondsPerHour;  // for a billion tokens
        TokenCosts costs;
        if (const auto usd = usd_per_hour(devices)) costs.usd_per_billion_tokens = *usd * hours;
        if (const auto kw = kilowatts(devices, devices_per_node)) costs.kwh_per_billion_tokens = *kw * hours;
        return costs;
    }
};

/// How often jobs are interrupted, and what an interruption costs.
struct FaultFigures {
    /// Hours of a device per unexpected interruption of a job: with n devices a job is interrupted after 1/n of these.
    std::optional<DatedFigure> device_hours_per_interruption;
    std::optional<DatedFigure> replaced_share;  // of the interruptions: those after which a node has to be replaced
    std::optional<DatedFigure> detection_s;     // from a failure until the job is aborted
    std::optional<DatedFigure> restart_s;       // from there until it loads its checkpoint
    std::optional<DatedFigure> repair_hours;    // until a replaced node can be used again
    std::optional<DatedFigure> checkpoint_gb_per_s_per_node;    // at which checkpoints are written and read
    std::optional<DatedFigure> checkpoint_bytes_per_parameter;  // not set: those of the plan's precision and optimizer
};

}  // namespace orrery::program
