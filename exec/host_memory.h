// Memory figures of the operating system.
#pragma once

#include <cstdint>
#include <string>

namespace orrery::exec {

/// Resident bytes of this process, now and at its peak.
struct ResidentMemory {
    std::int64_t now_bytes = 0;
    std::int64_t peak_bytes = 0;
};
[[nodiscard]] ResidentMemory resident_memory();
/// How many of these bytes are on resident pages.
[[nodiscard]] std::int64_t resident_bytes_of(const void* memory, std::int64_t bytes);
/// MemAvailable of the machine, or what remains of the container's limit if that is less.
[[nodiscard]] std::int64_t available_memory_bytes();

/// "1.234 GiB"
[[nodiscard]] std::string gib_text(std::int64_t bytes);

}  // namespace orrery::exec
