// Why a model has no plan with given degrees, in a word.
#pragma once

#include <cstdint>
#include <string_view>

#include "core/enum_names.h"

namespace orrery::program {

enum class Obstacle : std::uint8_t {
    memory,          // plans have these degrees, but none fits
    heads,           // tp does not divide the heads
    kv_heads,        // tp neither divides the heads of keys and values nor is a multiple of their number
    ffn,             // tp does not divide the width of the feed-forward network
    layers,          // more stages than layers
    batch,           // dp does not divide the global batch
    nodes,           // the devices are not whole nodes, or more nodes than the technique or the implementation can use
    implementation,  // it does not have the technique
    rule,            // another rule of plans
};
inline constexpr int kObstacleCount = static_cast<int>(Obstacle::rule) + 1;
[[nodiscard]] std::string_view name_of(Obstacle obstacle);

}  // namespace orrery::program

namespace orrery {
template <>
inline constexpr int kValuesOf<program::Obstacle> = program::kObstacleCount;
}  // namespace orrery
