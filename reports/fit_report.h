// NCCL's figures of a profile, fitted to measured collectives, with the errors of the fit.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "reports/error_summary.h"

namespace orrery::reports {

struct FitReport {
    struct Figure {
        std::string key;  // as in the profile
        double before = 0, fitted = 0;
        std::size_t rows = 0;  // measured collectives that the figure affects
        bool held = false;     // too few rows: left unchanged
    };
    struct Errors {
        std::string key, title;          // "left_out", "each part by a fit without it"
        ErrorSummary from_1_mib, below;  // by message size
    };
    std::string profile;   // the device or link
    std::size_t rows = 0;  // measured collectives used for the fit
    std::vector<Figure> figures;
    std::vector<Errors> errors;
};

[[nodiscard]] std::string fit_report_text(const FitReport& report);
/// `orrery.nccl_fit/1`, with the fitted figures rounded to three digits as in profiles. Ends in a newline.
[[nodiscard]] std::string fit_report_json(const FitReport& report);

}  // namespace orrery::reports
