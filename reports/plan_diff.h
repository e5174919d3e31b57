// The difference of two plans' steps, from their records.
#pragma once

#include <string>

#include "reports/breakdown.h"
#include "sim/program/plan_diff.h"
#include "sim/program/run_record.h"

namespace orrery::reports {

/// One of the two plans. The record has spans.
struct DiffSide {
    std::string file;
    const program::Program* program = nullptr;
    const program::RunRecord* record = nullptr;
    OperatorWeight weight;  // of its operators
};

/// Time, memory and inputs. Throws InputError if a record lacks an instruction.
[[nodiscard]] program::PlanDiff diff_of(const DiffSide& before, const DiffSide& after);

/// Tables of time and memory, and the inputs that changed, at most `most_inputs` of them. Ends in a newline.
[[nodiscard]] std::string diff_text(const program::PlanDiff& diff, std::size_t most_inputs);

}  // namespace orrery::reports
