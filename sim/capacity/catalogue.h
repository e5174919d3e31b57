// The catalogue of what devices cost: the built-in figures, and those of users.
#pragma once

#include <map>
#include <string>

#include "sim/program/cost_figures.h"
#include "topologies/profile.h"

namespace orrery::sim {

struct Catalogue {
    std::map<std::string, program::DatedFigure> usd_per_device_hour;  // by device profile
    program::FaultFigures faults;
};

[[nodiscard]] const Catalogue& built_in_catalogue();
/// Reads `orrery.catalogue/1`; throws InputError.
[[nodiscard]] Catalogue catalogue_from_json_text(const std::string& text, const std::string& file);
/// Figures of `over` replace those of `under`.
[[nodiscard]] Catalogue merged(Catalogue under, const Catalogue& over);

/// Prices from a CSV file with the columns of SkyPilot's catalogues: AcceleratorName, AcceleratorCount, Price, Region
/// and, for `spot`, SpotPrice. For each accelerator that is a known device: the lowest price of a device-hour.
/// `as_of`: year and month of the file. Throws InputError.
[[nodiscard]] Catalogue catalogue_from_price_csv(const std::string& text, const std::string& file,
                                                 const std::string& as_of, bool spot);

/// The device's price in the catalogue, and the power limit of its profile. A variant of a listed device has the price
/// of the listed one. What is not known is not set.
[[nodiscard]] program::CostFigures cost_figures(const Catalogue& catalogue, const topologies::DeviceProfile& device);

}  // namespace orrery::sim
