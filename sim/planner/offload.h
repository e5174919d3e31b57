// What the planner may keep in host memory so that a plan fits.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace orrery::sim {

enum class Offload : std::uint8_t {
    none,
    activations,  // those that the first blocks of each chunk save (MemorySavings::offload_layers)
    optimizer,    // optimizer states, which the host updates
    parameters,   // zero3: the shards of the parameters beside the optimizer states
};
inline constexpr std::size_t kOffloadKinds = static_cast<std::size_t>(Offload::parameters) + 1;
[[nodiscard]] std::string_view name_of(Offload kind);

}  // namespace orrery::sim
