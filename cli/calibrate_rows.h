// `orrery calibrate --rows`: rates by which published runs are predicted best, and what they are worth.
#pragma once

#include <string>
#include <vector>

namespace orrery::cli {

struct CalibrateRowsOptions {
    std::vector<std::string> files;
    bool cross_validate = false;
    bool leave_sources_out = false;
};

/// Fits and prints. fitted.json, spread.json and predictions.json, all rows by those rates, go to the folder `output`
/// (empty: nowhere). Where parts are left out, each part's rates go to folders within.
[[nodiscard]] int run_calibrate_rows(const CalibrateRowsOptions& options, const std::string& output);

/// Whether the rates that are compiled in keep to what sim/program/rate_check.h says of them: exit code 1 when not.
[[nodiscard]] int run_check_rates();

}  // namespace orrery::cli
