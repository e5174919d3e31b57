// `orrery plan --space`, and the options that fix the choices which only the full space has.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "sim/planner/planner.h"

namespace CLI {  // NOLINT(readability-identifier-naming): the library's own name
class App;
}  // namespace CLI

namespace orrery::cli {

/// As given on the command line.
struct PlanSpace {
    std::string space = "default";
    std::int64_t etp = 0;                                       // 0: not given
    std::string overlap_experts, vocabulary_parallel, offload;  // empty: not given
    [[nodiscard]] bool is_full() const { return space == "full"; }
};

void add_space_options(CLI::App& command, PlanSpace& space);

/// Throws InputError if the options exclude these others, which are empty where they are not given.
void check_space(const PlanSpace& space, const std::string& schedule, const std::string& data_parallel,
                 const std::string& recompute);

/// Extends a request, which is already restricted by all other options. Throws InputError where plans have to be those
/// that the executor runs, and the full space is asked for.
void apply_space(const PlanSpace& space, sim::PlanRequest& request);

/// Where the values of these choices come from, by JSON pointer. Empty in the default space without the options.
[[nodiscard]] std::map<std::string, std::string> origins_of(const PlanSpace& space);

}  // namespace orrery::cli
