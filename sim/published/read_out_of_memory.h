// Private to the reader of published rows: runs that ran out of memory, about which sources state less.
#pragma once

#include <cstddef>
#include <vector>

#include "core/json_reader.h"
#include "sim/published/published_run.h"

namespace orrery::published {

/// Whether the object is a run that ran out of memory: its "result" contains OOM.
[[nodiscard]] bool ran_out_of_memory(const JsonReader& reader);
/// Reads such an object that has no id: a row of a sweep (model by name, kernel in words) or of a log (dimensions).
/// Facts missing from both are filled in and listed in PublishedRun::inferred. `index` counts from 0.
[[nodiscard]] PublishedRun read_out_of_memory(const JsonReader& reader, std::size_t index);

}  // namespace orrery::published
