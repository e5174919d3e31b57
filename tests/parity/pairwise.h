// Pairwise pruning of plans: keeps every pair of techniques that occurs in some plan.
#pragma once

#include <vector>

#include "tests/parity/plans.h"

namespace orrery::parity {

struct Pruned {
    std::vector<Case> kept;  // in the order given
    std::vector<Case> others;
};
/// Keeps cases greedily until each model, each technique and each pair of techniques that occurs in a plan occurs in a
/// kept plan. The next case is the one with the most missing ones, the first for ties.
[[nodiscard]] Pruned pruned_pairwise(const std::vector<Case>& cases);

}  // namespace orrery::parity
