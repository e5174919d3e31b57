// Where a step's time and a rank's memory go, in one answer.
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
    std::string peak_action;  // label_of; empty: nothing is above what lives all the time
};

/// A rate that holds for the plan.
struct RateShown {
    program::Rates::Resolved rate;
    std::optional<double> elasticity;  // d log(step) / d log(rate), where it is known
};

struct Explanation {
    std::string plan_name;
    std::string strategy;
    program::Maker maker{};
    StepBreakdown time;
    CriticalPath path;
    std::vector<ClassMemory> memory;  // by class
    std::int64_t micro_batches = 0;   // of a data-parallel rank in a step
    std::vector<std::string> notes;   // the record's
    std::vector<RateShown> rates;     // in the order of program::rate_rows()
};

/// The record needs every instruction of its ranks, else throws InputError. `path`: see critical_path_of. `slopes`:
/// program::rate_slopes of the step, or empty.
[[nodiscard]] Explanation explain(const program::Program& program, const program::RunRecord& record,
                                  const OperatorWeight& weight, const std::vector<PathElement>& path,
                                  const std::map<std::string, double>& slopes = {});

/// Tables for people; ends in a newline.
[[nodiscard]] std::string explanation_text(const Explanation& explanation);
/// `orrery.explanation/1`, ending in a newline.
[[nodiscard]] std::string explanation_json(const Explanation& explanation);

}  // namespace orrery::reports
