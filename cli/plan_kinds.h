// One small plan for each thing that a plan may choose: what `orrery backends` asks every backend about.
#pragma once

#include <string>
#include <vector>

#include "sim/program/plan.h"

namespace orrery::cli {

struct PlanKind {
    std::string choice;  // "data parallelism"
    std::string value;   // "zero3"
    program::Plan plan;
};

/// Every kind of parallelism, schedule, memory saving, number format and optimizer, and every architecture of the zoo,
/// each in a plan of the implementation `orrery` that changes little else: models of four narrow layers, on one to four
/// GPUs. The values come from the tables of their enums, so that a new one is here, too.
[[nodiscard]] std::vector<PlanKind> plan_kinds();

/// A model of the same architecture with four narrow layers: all that is left of the sizes is which of them are equal
/// or absent.
[[nodiscard]] models::ModelSpec narrow_model_like(models::ModelSpec model);

}  // namespace orrery::cli
