// What a search for plans looked at, and what it proves.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

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

/// Counts of candidates: of `considered` ones, `bounded` were given bounds of their own, of which `sketched` were
/// lowered with few micro-batches and `simulated` were simulated.
struct SearchCounts {
    std::int64_t considered = 0, bounded = 0, sketched = 0, simulated = 0;
    std::int64_t too_large = 0;  // do not fit in memory
    std::int64_t dominated = 0;  // are no faster than a similar one
    std::int64_t left_out = 0;   // divide evenly, but were not considered
};

struct SearchSummary {
    SearchCounts counts;
    /// The share of its step time by which some plan that was considered may be faster than the best one at most, beside
    /// the error of a step time; 0 if none can be.
    double proven_gap = 0;
    std::size_t proven_ranks = 0;  // of the leading plans no other one is faster
    double tolerance = 0;          // the error of a step time found by the search, as a share of it
    std::vector<SearchSpace> spaces;
};

}  // namespace orrery::program
