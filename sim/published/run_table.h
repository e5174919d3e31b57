// Private to the reader of published rows: `orrery.published_runs/1`, runs of one source as a table.
#pragma once

#include <span>
#include <string>
#include <string_view>

namespace orrery::published {

/// What a table may have of a run, as JSON pointers into a row ("/hardware/num_gpus").
[[nodiscard]] std::span<const std::string_view> run_table_pointers();

/// The rows of the table as a JSON list: each has what all have in common, and its cells in their places. Throws
/// InputError naming the file and the place for anything that the format does not allow; the values themselves are for
/// the reader of rows.
[[nodiscard]] std::string rows_of_run_table(const std::string& text, const std::string& file);

}  // namespace orrery::published
