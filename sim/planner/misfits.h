// Private to the planner: the meshes on which no candidate fits.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <vector>

#include "sim/planner/candidates.h"

namespace orrery::sim {

/// For each mesh (tp, pp, dp, cp, ep) whether all candidates are known not to fit, and which one needs the least
/// memory.
class Misfits {
  public:
    /// The number of candidates, or blocks of them, on the choice's mesh of which it is not known yet.
    [[nodiscard]] std::int64_t& open(const Choice& choice) { return meshes_[mesh_of(choice)].open; }
    void fits(const Choice& choice) { meshes_[mesh_of(choice)].some_fit = true; }
    /// `by_states`: parameters, gradients and optimizer states alone exceed the memory.
    void add(const Choice& choice, std::int64_t bytes, bool by_states);
    /// Of each mesh on which nothing fits, the candidate that needs the least memory.
    [[nodiscard]] std::vector<program::PlanResult> results(const PlanRequest& request) const;

  private:
    struct Closest {
        std::int64_t bytes = -1;  // -1: none
        Choice choice;
        bool by_states = false;
    };
    struct Mesh {
        std::int64_t open = 0;
        bool some_fit = false;
        Closest closest;
    };
    using Key = std::array<std::int64_t, 5>;
    static Key mesh_of(const Choice& choice) { return {choice.tp, choice.pp, choice.dp, choice.cp, choice.ep}; }

    std::map<Key, Mesh> meshes_;
};

}  // namespace orrery::sim
