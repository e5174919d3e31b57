// Lists of numbers of devices on the command line: "64..131072", "8,64,1000".
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace orrery::cli {

/// Numbers separated by commas, and ranges "a..b" of a, 2 a, 4 a ... up to b, where b itself is always the last one.
/// Ascending, each once. Throws InputError naming the option.
[[nodiscard]] std::vector<std::int64_t> device_counts(const std::string& text, const std::string& option);

}  // namespace orrery::cli
