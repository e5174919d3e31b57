// What a plan, or the best plan, takes when inputs of the plan file have other values.
#pragma once

#include <string>
#include <vector>

#include "sim/program/scaling_curve.h"

namespace orrery::program {

/// One combination of values.
struct SweepPoint {
    std::vector<std::string> values;  // by path, as given
    ScalingPoint point;               // with a reason: it has no plan, or the plan breaks a rule
    bool fits = true;                 // in device memory
    double speed = 1;                 // tokens/s over those of the base
};

/// As in `orrery.whatif/1`, on one line.
[[nodiscard]] std::string to_json_text(const SweepPoint& point);
[[nodiscard]] SweepPoint sweep_point_from_json_text(const std::string& text, const std::string& file);

struct InputSweep {
    std::string model, cluster, plan;  // names
    bool replans = false;              // each point has the best plan for its values; otherwise that of the file
    std::vector<std::string> paths;    // keys of the plan file joined by dots
    std::vector<std::string> base_values;
    SweepPoint base;  // with the values of the file
    std::vector<SweepPoint> points;
};

/// `orrery.whatif/1`.
[[nodiscard]] std::string to_json_text(const InputSweep& sweep);
[[nodiscard]] InputSweep sweep_from_json_text(const std::string& text, const std::string& file);

}  // namespace orrery::program
