// A share of many plans in which still every technique meets every other that it meets anywhere.
#pragma once

#include <vector>

#include "tests/parity/plans.h"

namespace orrery::parity {

struct Pruned {
    std::vector<Case> kept;  // in the order given
    std::vector<Case> others;
};
/// Keeps cases until each model, each technique, and each two techniques that stand in one plan stand in one that is
/// kept: always the case that has most of what is missing, the first of equals.
[[nodiscard]] Pruned pruned_pairwise(const std::vector<Case>& cases);

}  // namespace orrery::parity
