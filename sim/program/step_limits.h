// What limits a plan: the kind of work on which its step spends most time, or the memory that it lacks.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include "core/enum_names.h"
#include "sim/program/sensitivity.h"

namespace orrery::program {

enum class Limit : std::uint8_t {
    compute,           // matrix products and attention
    memory_bandwidth,  // norms, activations, casts, updates and other work that streams the device's memory
    recomputation,     // work that is done again because the device's memory does not hold its results
    host,              // launches, computation on the host, and copies to and from its memory
    pipeline_bubble,   // waits for other pipeline stages
    // Exposed communication by axis, inside a node; `dp` includes gathers of parameters and norms over all ranks.
    tp_communication,
    cp_communication,
    ep_communication,
    dp_communication,
    pp_communication,
    // The same between nodes, which NICs limit.
    tp_nic,
    cp_nic,
    ep_nic,
    dp_nic,
    pp_nic,
    // Of a plan that does not fit.
    memory_states,       // parameters, gradients and optimizer states alone exceed the memory
    memory_activations,  // they fit, but not together with the activations
};
inline constexpr std::size_t kLimitCount = static_cast<std::size_t>(Limit::memory_activations) + 1;
[[nodiscard]] std::string_view name_of(Limit limit);

struct LimitShare {
    Limit limit{};
    double share = 0;  // of the step time
};
/// Shares of a step, the largest first; they sum to 1, and those of 0 are left out. The bubble's share is that of a
/// mean rank. The rest of the step is divided in proportion to the derivatives of the step time by the work of each
/// kind, so that work which nothing waits for, such as hidden communication, has no share. Empty if no derivative is
/// positive.
[[nodiscard]] std::vector<LimitShare> step_shares(const Sensitivity& sensitivity, double bubble_fraction);

}  // namespace orrery::program

namespace orrery {
template <>
inline constexpr int kValuesOf<program::Limit> = static_cast<int>(program::kLimitCount);
}  // namespace orrery
