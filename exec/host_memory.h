// What the operating system says about memory.
#pragma once

#include <cstdint>
#include <string>

namespace orrery::exec {

/// Bytes that this process has resident, and the most it ever had, as the operating system counts them.
struct ResidentMemory {
    std::int64_t now_bytes = 0;
    std::int64_t peak_bytes = 0;
};
[[nodiscard]] ResidentMemory resident_memory();
/// How much of this memory of the process is resident, in whole pages but for the ends.
[[nodiscard]] std::int64_t resident_bytes_of(const void* memory, std::int64_t bytes);
/// MemAvailable of the machine (or of the container's limit, when that is lower).
[[nodiscard]] std::int64_t available_memory_bytes();

/// "1.234 GiB"
[[nodiscard]] std::string gib_text(std::int64_t bytes);

}  // namespace orrery::exec
