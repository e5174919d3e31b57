// From result files to a page.
#pragma once

#include <string>
#include <variant>
#include <vector>

#include "reports/page/page.h"
#include "reports/page/run_facts.h"
#include "sim/program/capacity_answer.h"
#include "sim/program/crossover.h"
#include "sim/program/input_sweep.h"
#include "sim/program/plan_diff.h"
#include "sim/program/scaling_curve.h"
#include "sim/program/technique_curves.h"
#include "sim/program/tornado.h"

namespace orrery::reports {

using Result = std::variant<program::ScalingCurve, program::InputSweep, program::Tornado, program::Crossover,
                            program::TechniqueCurves, program::Capacity, program::PlanDiff, RunFacts, StepFacts,
                            ValidationFacts, PublishedFacts>;

struct ResultFile {
    std::string name, schema;
    Result result;
};

/// The results that a page can show, as schemas.
[[nodiscard]] std::vector<std::string> schemas_shown();

/// Throws InputError if the text is none of these results.
[[nodiscard]] ResultFile result_from_json_text(const std::string& text, const std::string& file);

struct ReportWords {
    std::string title;                                                 // empty: made of what the files are about
    std::string version;                                               // of the orrery that makes the page
    std::string (*date_after)(const std::string& start, double days);  // as for capacity_text
};
[[nodiscard]] ReportPage report_of(const std::vector<ResultFile>& files, const ReportWords& words);

}  // namespace orrery::reports
