// Which of several plans is the fastest, by the value of one input.
#pragma once

#include <string>
#include <vector>

#include "sim/program/scaling_curve.h"

namespace orrery::program {

/// Values of the input for which the same plan is the fastest.
struct CrossoverRange {
    double low = 0, high = 0;
    std::string plan;              // its name; of best plans, what the search chose; "": none fits
    ScalingPoint at_low, at_high;  // of this plan
};

struct Crossover {
    std::string model, cluster;
    std::string path;                // keys of the plan file joined by dots
    std::vector<std::string> plans;  // names; of best plans, that of the file
    bool replans = false;            // the best plan for each value; otherwise those of the files
    /// Ascending; the last value of one is the first of the next, to the share `accuracy`. Where plans change and
    /// change back between two neighbours of the first values that are tried, that is not seen.
    std::vector<CrossoverRange> ranges;
    double accuracy = 0;
};

/// `orrery.crossover/1`.
[[nodiscard]] std::string to_json_text(const Crossover& crossover);
[[nodiscard]] Crossover crossover_from_json_text(const std::string& text, const std::string& file);

}  // namespace orrery::program
