// `orrery calibrate --collectives FILE --profile NAME`: fits the NCCL figures of a device or a network to measured
// collectives.
#pragma once

#include <string>
#include <vector>

namespace orrery::cli {

struct FitOptions {
    std::vector<std::string> files;  // in the formats of `orrery validate --collectives`
    std::string profile;             // a device or a link of the catalogue
    bool leave_devices_out = false;  // fit nothing: predict each device with figures derived from the other devices
};

/// Prints the figures and their errors; returns the exit code.
[[nodiscard]] int run_calibrate_collectives(const FitOptions& options, bool json);

}  // namespace orrery::cli
