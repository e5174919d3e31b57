// Searches for other goals than the least step time: the least memory, and the front of both.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <optional>

#include "core/error.h"
#include "sim/planner/planner.h"

namespace orrery::sim {

/// No plan is fast enough, although plans may fit in memory.
class TooSlowError : public InfeasibleError {
  public:
    using InfeasibleError::InfeasibleError;
};

/// A search for the `keep` fastest plans, the first of them proven, with a limit on the peak memory of a rank
/// (PlanRequest::max_memory_bytes; 0: the device's alone). Throws InfeasibleError if none fits. For several
/// implementations it merges their searches.
using LimitedSearch = std::function<PlanSearch(std::int64_t max_memory_bytes, std::size_t keep)>;

struct LeastMemory {
    std::int64_t bytes = std::numeric_limits<std::int64_t>::max();
    std::int64_t lowerings = 0;
    /// The least of both, and the lowerings of both.
    void merge(const LeastMemory& other) {
        bytes = std::min(bytes, other.bytes);
        lowerings += other.lowerings;
    }
};
/// The exact peak memory of the candidate that needs least, where every kind of recomputation is that of all blocks or
/// all parts. All candidates are bounded from below, and lowered in the order of their bounds until no bound is left
/// below the least memory found. Throws InputError as search_plans does.
[[nodiscard]] LeastMemory least_memory_of(const PlanRequest& request, const topologies::Cluster& cluster);

/// The longest step that is allowed: seconds, or a share by which it may exceed the fastest plan's.
struct StepLimit {
    double seconds = std::numeric_limits<double>::infinity();
    std::optional<double> slack;  // replaces `seconds`
    [[nodiscard]] double seconds_for(double fastest_s) const {
        return slack.has_value() ? (1 + *slack) * fastest_s : seconds;
    }
    [[nodiscard]] bool is_set() const { return slack.has_value() || seconds < std::numeric_limits<double>::infinity(); }
};

/// Throws TooSlowError if the fastest plan's step exceeds the limit.
void check_step_limit(double fastest_s, double limit_s);
/// Adds the work of one more search of the same candidates.
void add_counts(program::SearchCounts& into, const PlanSearch& from);

/// Several searches together.
struct ObjectiveSearch {
    /// Best first by the objective; then the plans of the first search that are not feasible.
    std::vector<program::PlanResult> results;
    program::SearchSummary summary;
};

/// With a limit on the step, the least memory is found to this share (SearchSummary::proven_gap says to which).
inline constexpr double kMemoryTolerance = 1.0 / 256;

/// At most `keep` plans with the least peak memory, those that need as much by step time. Without a limit on the step
/// that memory is `least`, which must be the result of least_memory_of (merged, for several implementations). With one,
/// the memory limit is bisected: the fastest plan within a limit tells whether some plan within it is fast enough,
/// since a larger limit allows all plans of a smaller one. Throws InfeasibleError if nothing fits or if no step is
/// short enough.
[[nodiscard]] ObjectiveSearch least_memory(const LimitedSearch& search, const LeastMemory& least, std::size_t keep,
                                           const StepLimit& limit);

/// Points of the Pareto front of step time and peak memory, fastest first, at most `most` of them (> 1), from the
/// fastest plan to the one with the least memory. Each result is the fastest plan for every limit on the memory within
/// its PlanResult::fastest_within: from its own memory to the limit of the search that found it. Each search's limit
/// divides the range evenly that is left below the last plan's memory. The front may have further points between two of
/// these ranges. A plan whose step exceeds the limit ends the range instead; throws InfeasibleError as least_memory.
[[nodiscard]] ObjectiveSearch pareto_front(const LimitedSearch& search, const LeastMemory& least, std::size_t most,
                                           const StepLimit& limit);

}  // namespace orrery::sim
