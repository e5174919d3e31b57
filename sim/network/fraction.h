#pragma once

#include <cstdint>

#include "core/units.h"

namespace orrery::sim {

/// bytes * numerator / denominator, rounded up, without an intermediate that overflows.
[[nodiscard]] inline std::int64_t fraction_of(std::int64_t bytes, std::int64_t numerator, std::int64_t denominator) {
    const std::int64_t rest = checked_product(bytes % denominator, numerator);
    return checked_product(bytes / denominator, numerator) + rest / denominator + (rest % denominator > 0 ? 1 : 0);
}

}  // namespace orrery::sim
