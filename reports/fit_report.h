// NCCL's figures of a profile, fitted to measured collectives: what they are, and what they are worth.
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
        std::size_t rows = 0;  // that it moves
        bool held = false;     // too few: left as it was
    };
    struct Errors {
        std::string key, title;          // "left_out", "each part by a fit without it"
        ErrorSummary from_1_mib, below;  // by the message's size
    };
    std::string profile;   // the device or link
    std::size_t rows = 0;  // measured collectives that were fitted to
    std::vector<Figure> figures;
    std::vector<Errors> errors;
};

[[nodiscard]] std::string fit_report_text(const FitReport& report);
/// `orrery.nccl_fit/1`, fitted figures with three digits, as they are put into a profile. Ends in a newline.
[[nodiscard]] std::string fit_report_json(const FitReport& report);

}  // namespace orrery::reports
