#include "exec/host_memory.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "core/error.h"
#include "core/units.h"

namespace orrery::exec {
namespace {

/// The bytes of a "Key:   123 kB" line in a /proc file; -1 if there is no such line.
std::int64_t proc_bytes(const char* path, const std::string& key) {
    std::ifstream file(path);
    std::string word;
    while (file >> word) {
        if (word == key + ":") {
            std::int64_t kilobytes = 0;
            if (file >> kilobytes) return kilobytes * 1024;
        }
    }
    return -1;
}

}  // namespace

ResidentMemory resident_memory() {
    const std::int64_t now = proc_bytes("/proc/self/status", "VmRSS");
    const std::int64_t peak = proc_bytes("/proc/self/status", "VmHWM");
    if (now < 0 || peak < 0) throw JobError("/proc/self/status has no VmRSS or no VmHWM line");
    return {now, peak};
}

std::int64_t available_memory_bytes() {
    std::int64_t available = proc_bytes("/proc/meminfo", "MemAvailable");
    if (available < 0) throw JobError("/proc/meminfo has no MemAvailable line");
    std::ifstream limit_file("/sys/fs/cgroup/memory.max");
    std::ifstream used_file("/sys/fs/cgroup/memory.current");
    std::int64_t limit = 0, used = 0;
    if (limit_file >> limit && used_file >> used)
        available = std::min(available, std::max<std::int64_t>(0, limit - used));
    return available;
}

std::string gib_text(std::int64_t bytes) {
    std::ostringstream text;
    text.precision(3);
    text << std::fixed << to_gib(Bytes(bytes)) << " GiB";
    return text.str();
}

std::int64_t resident_bytes_of(const void* memory, std::int64_t bytes) {
    const std::int64_t page = sysconf(_SC_PAGESIZE);
    const auto begin = reinterpret_cast<std::intptr_t>(memory);
    const std::intptr_t first = begin / page * page;
    const auto pages = static_cast<std::size_t>((begin + bytes - first + page - 1) / page);
    std::vector<unsigned char> there(pages);
    if (bytes == 0 ||
        mincore(reinterpret_cast<void*>(first), pages * static_cast<std::size_t>(page), there.data()) != 0)
        return 0;
    std::int64_t resident = 0;
    for (std::size_t i = 0; i < pages; ++i) {
        if ((there[i] & 1U) == 0) continue;
        const std::intptr_t at = first + static_cast<std::int64_t>(i) * page;
        resident += std::min(at + page, begin + bytes) - std::max(at, begin);
    }
    return resident;
}

}  // namespace orrery::exec
