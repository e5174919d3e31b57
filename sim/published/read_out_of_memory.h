// Private to the reader of published rows: runs that ran out of memory, whose sources say less of them.
#pragma once

#include <cstddef>
#include <vector>

#include "core/json_reader.h"
#include "sim/published/published_run.h"

namespace orrery::published {

/// Whether the object is a run that ran out of memory: it has a "result" with OOM in it.
[[nodiscard]] bool ran_out_of_memory(const JsonReader& reader);
/// The run of such an object without an id of its own: a row of a sweep (model by name, kernel in words), or of a log
/// (dimensions). What neither says is filled in and listed (PublishedRun::inferred). `index` counts from 0.
[[nodiscard]] PublishedRun read_out_of_memory(const JsonReader& reader, std::size_t index);

}  // namespace orrery::published
