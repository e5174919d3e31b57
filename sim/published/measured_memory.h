// The part of a predicted memory that a published figure is compared with.
#pragma once

#include <cstdint>

#include "sim/program/program.h"
#include "sim/published/published_run.h"

namespace orrery::published {

/// Predicted bytes of the kind that the source states (MemoryKind), for the last stage if the source measured that one,
/// else for the fullest rank. An unstated kind is taken as reserved, which lies between the others.
[[nodiscard]] std::int64_t memory_as_measured(const program::Program& program, const PublishedMeasurement& measured);

}  // namespace orrery::published
