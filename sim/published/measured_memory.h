// What of a predicted memory a published figure is to be compared with.
#pragma once

#include <cstdint>

#include "sim/program/program.h"
#include "sim/published/published_run.h"

namespace orrery::published {

/// Bytes of the kind that the source states (MemoryKind), of the stage that it speaks of or else of the fullest one.
/// What nobody says is taken as reserved, which lies between the others.
[[nodiscard]] std::int64_t memory_as_measured(const program::Program& program, const PublishedMeasurement& measured);

}  // namespace orrery::published
