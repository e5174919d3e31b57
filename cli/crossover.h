// Where one plan begins to beat another: `orrery whatif --crossover`.
#pragma once

#include <string>
#include <vector>

#include "cli/whatif_points.h"
#include "sim/program/crossover.h"

namespace orrery::cli {

/// --crossover, parsed.
struct InputRange {
    std::string path;
    double low = 0, high = 0;  // 0 < low < high
};
/// Of "PATH=LOW..HIGH". Throws InputError.
[[nodiscard]] InputRange input_range(const std::string& text);

/// The plans of the jobs, or with WhatIfJob::replans the best plan of the only job, by the value of the input. Throws
/// InputError if the path of a plan is not a number that need not be whole.
[[nodiscard]] program::Crossover crossover_of(const std::vector<WhatIfJob>& jobs, const InputRange& range);

}  // namespace orrery::cli
