// A plan with other inputs, predicted: what `orrery whatif` compares.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "cli/plan_edit.h"
#include "cli/stored_sweep.h"
#include "sim/program/input_sweep.h"

namespace orrery::cli {

struct WhatIfJob {
    explicit WhatIfJob(const std::string& plan_path) : plan(program::read_plan(plan_path)), editable(plan) {}
    program::Plan plan;
    EditablePlan editable;
    bool replans = false;  // the best plan in place of the file's
    std::optional<double> memory_margin_gib;
    StoreOptions store;
};

/// Values for inputs of the plan, by path.
struct Edit {
    std::vector<std::string> paths, values;
};

/// The points of all edits, which need not differ, on all cores; speeds are relative to the first, and a point has a
/// reason if its values break a rule or no plan fits. Throws InputError before any prediction if values cannot be read.
/// No value for a shard (run_sweep).
[[nodiscard]] std::optional<std::vector<program::SweepPoint>> predict_edits(const WhatIfJob& job,
                                                                            const std::vector<Edit>& edits);

}  // namespace orrery::cli
