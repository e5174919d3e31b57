// `orrery calibrate --collectives FILE --profile NAME`: a device's or a network's figures for NCCL, fitted to measured
// collectives.
#pragma once

#include <string>
#include <vector>

namespace orrery::cli {

struct FitOptions {
    std::vector<std::string> files;  // as `orrery validate --collectives` reads them
    std::string profile;             // a device or a link of the catalogue
    bool leave_devices_out = false;  // fit nothing: predict each device by what the others' figures come to
};

/// Prints the figures and what they are worth; the exit code.
[[nodiscard]] int run_calibrate_collectives(const FitOptions& options, bool json);

}  // namespace orrery::cli
