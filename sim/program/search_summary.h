// What a search for plans looked at, and what it proves.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>
#include <string_view>
#include <vector>

#include "core/enum_names.h"
#include "sim/program/cost_figures.h"

namespace orrery::program {

/// What one implementation's candidates were.
struct SearchSpace {
    struct Choice {
        std::string name, values;  // such as "tp" and "1, 2, 4, 8"
    };
    std::string implementation;
    std::vector<Choice> searched;
    std::vector<std::string> outside;  // what was not looked at
};

/// What the search minimises.
enum class Objective : std::uint8_t {
    time,    // the step time
    memory,  // the peak memory of the fullest rank, then the step time
    pareto,  // the step time at each of several limits on the memory
    cost,    // dollars a token, for whole nodes
    energy,  // energy a token, of whole nodes
};
[[nodiscard]] std::string_view name_of(Objective objective);

/// Counts of candidates: of `considered` ones, `bounded` were given bounds of their own, of which `sketched` were
/// lowered with few micro-batches and `simulated` were simulated. After several searches of the same candidates all
/// but `considered` and `left_out` are sums over them.
struct SearchCounts {
    std::int64_t considered = 0, bounded = 0, sketched = 0, simulated = 0;
    std::int64_t too_large = 0;  // do not fit in memory
    std::int64_t left_out = 0;   // divide evenly, but were not considered
    std::int64_t searches = 1;
};

struct SearchSummary {
    Objective objective{};
    double memory_limit_gib = 0;  // what a rank may use
    double step_limit_s = std::numeric_limits<double>::infinity();
    SearchCounts counts;
    /// The share by which some plan that was considered may be better than the best one at most: faster, smaller or
    /// cheaper, by the objective. On a front, the largest share of its points. 0 if none can be.
    double proven_gap = 0;
    std::size_t proven_ranks = 0;  // leading plans for which this is proven; on a front, its points
    double tolerance = 0;          // the error of a step time found by the search, as a share of it
    std::vector<SearchSpace> spaces;
    CostFigures figures;  // Objective::cost and energy: by which plans were ranked
};

}  // namespace orrery::program

namespace orrery {
template <>
inline constexpr int kValuesOf<program::Objective> = static_cast<int>(program::Objective::energy) + 1;
}  // namespace orrery
