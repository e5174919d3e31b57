#include "sim/program/search_summary.h"

#include "core/enum_names.h"

namespace orrery::program {
namespace {

constexpr auto kObjectiveNames = name_table<Objective::energy>({"time", "memory", "pareto", "cost", "energy"});

}  // namespace

std::string_view name_of(Objective objective) {
    return kObjectiveNames[objective];
}

}  // namespace orrery::program
