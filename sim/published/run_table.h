// Private to the reader of published rows: `orrery.published_runs/1`, a table of one source's runs.
#pragma once

#include <span>
#include <string>
#include <string_view>

namespace orrery::published {

/// The values of a run that a table may contain, as JSON pointers into a row ("/hardware/num_gpus").
[[nodiscard]] std::span<const std::string_view> run_table_pointers();

/// The table as a JSON list of rows, each with the common values and its own cells. Throws InputError naming the file
/// and the place for anything that the format does not allow; the reader of rows checks the values.
[[nodiscard]] std::string rows_of_run_table(const std::string& text, const std::string& file);

}  // namespace orrery::published
