#include "sim/refine/nccl_fit.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <set>

#include "core/error.h"
#include "sim/refine/least_squares.h"
#include "topologies/nccl_figures.h"

namespace orrery::sim {
namespace {

using topologies::ClusterSpec;
using topologies::Figure;
using topologies::NcclProfile;

/// A figure of a cluster that the fit may change.
struct Handle {
    std::string key;
    double most = std::numeric_limits<double>::infinity();
    std::function<Figure&(ClusterSpec&)> figure;
};

/// Upper bound of a figure. A copy reads and writes every byte, so it reaches at most half of the memory bandwidth.
double most_of(const topologies::NcclFigure& figure, const topologies::DeviceProfile& device) {
    if (figure.member == &NcclProfile::copy_gb_per_s) return device.memory_bandwidth_gb_per_s.value / 2;
    return figure.is_share ? 1.0 : std::numeric_limits<double>::infinity();
}

std::vector<Handle> device_handles(const topologies::DeviceProfile& device) {
    const NcclProfile& nccl = *device.nccl;
    std::vector<Handle> handles;
    handles.reserve(nccl.ring.size() + topologies::kNcclFigures.size());
    for (std::size_t i = 0; i < nccl.ring.size(); ++i) {
        handles.push_back({"ring " + name_of(nccl.ring[i].within), 1.0,
                           [i](ClusterSpec& spec) -> Figure& { return spec.device.nccl->ring.at(i).share_of_port; }});
    }
    for (const topologies::NcclFigure& figure : topologies::kNcclFigures) {
        if ((nccl.*figure.member).value <= 0) continue;
        handles.push_back({figure.key, most_of(figure, device), [member = figure.member](ClusterSpec& spec) -> Figure& {
                               return (*spec.device.nccl).*member;
                           }});
    }
    return handles;
}

std::vector<Handle> network_handles(const topologies::NcclNetwork& nccl) {
    std::vector<Handle> handles;
    for (const topologies::NcclNetworkFigure& figure : topologies::kNcclNetworkFigures) {
        if ((nccl.*figure.member).value <= 0) continue;
        handles.push_back(
            {figure.key, std::numeric_limits<double>::infinity(),
             [member = figure.member](ClusterSpec& spec) -> Figure& { return (*spec.nic.nccl).*member; }});
    }
    return handles;
}

void check(const MeasuredCollectives& measured, FitTarget target) {
    if (measured.rows.size() < kFewestRows) {
        throw InputError("measured collectives", "", std::to_string(measured.rows.size()) + " rows",
                         "at least " + std::to_string(kFewestRows) + " that can be predicted");
    }
    const ClusterSpec& first = measured.clusters.front();
    for (const ClusterSpec& spec : measured.clusters) {
        const bool of_device = target == FitTarget::device;
        const std::string& name = of_device ? spec.device.name : spec.nic.name;
        if (of_device ? spec.device.nccl.has_value() : spec.nic.nccl.has_value()) {
            ORRERY_CHECK(name == (of_device ? first.device.name : first.nic.name),
                         "all rows of a fit must have the same device or link profile");
            continue;
        }
        throw InputError((of_device ? "device " : "link ") + name, "nccl", "none",
                         "NCCL figures to start the fit from");
    }
}

/// log(predicted / measured) of rows, after setting the figures in the clusters.
class Errors {
  public:
    Errors(MeasuredCollectives& measured, const std::vector<Handle>& handles)
        : measured_(measured), handles_(handles) {}
    [[nodiscard]] std::vector<double> of(std::span<const double> figures, const std::vector<std::size_t>& rows) const {
        for (ClusterSpec& spec : measured_.clusters) {
            for (std::size_t k = 0; k < handles_.size(); ++k) handles_[k].figure(spec).value = figures[k];
        }
        std::vector<double> errors;
        errors.reserve(rows.size());
        for (const std::size_t i : rows) {
            const MeasuredCollective& row = measured_.rows[i];
            const CollectiveCost cost =
                collective_cost(row.kind, row.bytes, row.placement, measured_.clusters[row.cluster], row.options);
            errors.push_back(std::log((cost.seconds + row.tool_s) / row.measured_s));
        }
        return errors;
    }

  private:
    MeasuredCollectives& measured_;
    const std::vector<Handle>& handles_;
};

std::vector<double> relative(const std::vector<double>& logs) {
    std::vector<double> errors(logs.size());
    std::transform(logs.begin(), logs.end(), errors.begin(), [](double log) { return std::exp(log) - 1; });
    return errors;
}

}  // namespace

NcclFit fit_nccl(MeasuredCollectives measured, FitTarget target) {
    check(measured, target);
    const ClusterSpec& first = measured.clusters.front();
    const std::vector<Handle> handles =
        target == FitTarget::device ? device_handles(first.device) : network_handles(*first.nic.nccl);
    std::vector<double> start, most;
    for (const Handle& handle : handles) {
        start.push_back(handle.figure(measured.clusters.front()).value);
        most.push_back(handle.most);
    }
    std::vector<std::size_t> all(measured.rows.size());
    std::set<std::string> parts;
    for (std::size_t i = 0; i < all.size(); ++i) {
        all[i] = i;
        parts.insert(measured.rows[i].part);
    }
    const Errors errors(measured, handles);
    const auto fitted_to = [&](std::span<const double> from, const std::vector<std::size_t>& rows) {
        return fit_figures(from, most, [&](std::span<const double> figures) { return errors.of(figures, rows); });
    };
    const FigureFit fit = fitted_to(start, all);
    NcclFit result{.before = relative(errors.of(start, all)), .after = relative(errors.of(fit.figures, all))};
    for (std::size_t k = 0; k < handles.size(); ++k) {
        result.figures.push_back({handles[k].key, start[k], fit.figures[k], fit.rows[k], fit.rows[k] < kFewestRows});
    }
    if (parts.size() < 2) return result;
    result.left_out.resize(all.size());
    for (const std::string& part : parts) {
        std::vector<std::size_t> inside, outside;
        for (const std::size_t i : all) (measured.rows[i].part == part ? inside : outside).push_back(i);
        const std::vector<double> figures = fitted_to(fit.figures, outside).figures;
        const std::vector<double> predicted = relative(errors.of(figures, inside));
        for (std::size_t j = 0; j < inside.size(); ++j) result.left_out[inside[j]] = predicted[j];
    }
    return result;
}

}  // namespace orrery::sim
