// `orrery calibrate --rows`: fits rates to published runs and reports the errors.
#pragma once

#include <string>
#include <vector>

namespace orrery::cli {

struct CalibrateRowsOptions {
    std::vector<std::string> files;
    bool cross_validate = false;
    bool leave_sources_out = false;
};

/// Fits and prints. Writes fitted.json, spread.json and predictions.json (all rows with these rates) to the folder
/// `output` (empty: nowhere). If parts are left out, the rates of each part are written to subfolders.
[[nodiscard]] int run_calibrate_rows(const CalibrateRowsOptions& options, const std::string& output);

/// Checks the built-in rates against the rules of sim/program/rate_check.h; exit code 1 if one is broken.
[[nodiscard]] int run_check_rates();

}  // namespace orrery::cli
