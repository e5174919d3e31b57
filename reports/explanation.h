// `--explain`: where a step's time and a rank's memory go.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "reports/breakdown.h"
#include "reports/critical_path.h"
#include "reports/time_part.h"
#include "sim/program/peak_contents.h"
#include "sim/program/program.h"
#include "sim/program/run_record.h"

namespace orrery::reports {

struct ClassMemory {
    program::ClassIndex rank_class = 0;
    std::string name;
    program::MemoryFootprint footprint;
    program::PeakContents peak;
    std::string peak_action;  // label_of; empty: nothing is live beyond what is always live
};

/// A rate that applies to the plan.
struct RateShown {
    program::Rates::Resolved rate;
    std::optional<double> elasticity;  // d log(step) / d log(rate); empty: not known
};

struct Explanation {
    std::string plan_name;
    std::string strategy;
    program::Maker maker{};
    StepBreakdown time;
    CriticalPath path;
    std::vector<ClassMemory> memory;  // by class
    std::int64_t micro_batches = 0;   // per data-parallel rank and step
    std::vector<std::string> notes;   // from the record
    std::vector<RateShown> rates;     // in the order of program::rate_rows()
};

/// Throws InputError if the record lacks instructions of its ranks. `path`: see critical_path_of. `slopes`:
/// program::rate_slopes of the step, or empty.
[[nodiscard]] Explanation explain(const program::Program& program, const program::RunRecord& record,
                                  const OperatorWeight& weight, const std::vector<PathElement>& path,
                                  const std::map<std::string, double>& slopes = {});

/// Text tables; ends in a newline.
[[nodiscard]] std::string explanation_text(const Explanation& explanation);
/// `orrery.explanation/1`, ending in a newline.
[[nodiscard]] std::string explanation_json(const Explanation& explanation);

}  // namespace orrery::reports
