// Which inputs of a plan matter: each moved up and down by the same share.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "sim/program/input_sweep.h"

namespace orrery::program {

struct TornadoBar {
    std::string path;   // keys of the plan file joined by dots
    std::string value;  // of the plan file
    /// d ln(step time) / d ln(input): of the plan by the derivatives of its simulation, of best plans from the two
    /// points. No value if the input changes what is done, or a point has no plan.
    std::optional<double> elasticity;
    SweepPoint less, more;  // with the smaller and the larger value
    /// The larger of the two effects on the speed, as a share.
    [[nodiscard]] double effect() const;
    /// Whether it has an effect that is worth showing, or a value without a plan.
    [[nodiscard]] bool matters() const;
};

struct Tornado {
    std::string model, cluster, plan;  // names
    bool replans = false;              // each point has the best plan for its values; otherwise that of the file
    double change = 0.1;               // the values are 1 - change and 1 + change times that of the file
    SweepPoint base;
    std::vector<TornadoBar> bars;  // largest effect first
};
/// Puts the bars in order.
void rank(Tornado& tornado);

/// `orrery.tornado/1`.
[[nodiscard]] std::string to_json_text(const Tornado& tornado);
[[nodiscard]] Tornado tornado_from_json_text(const std::string& text, const std::string& file);

}  // namespace orrery::program
