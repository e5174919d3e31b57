#include "exec/host_memory.h"

#include <algorithm>
#include <fstream>
#include <sstream>
#include <string>

#include "core/error.h"
#include "core/units.h"

namespace orrery::exec {
namespace {

/// A value in kB of a /proc file of "Key:   123 kB" lines; -1 when absent.
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
    if (now < 0 || peak < 0) throw JobError("/proc/self/status does not tell this process's memory");
    return {now, peak};
}

std::int64_t available_memory_bytes() {
    std::int64_t available = proc_bytes("/proc/meminfo", "MemAvailable");
    if (available < 0) throw JobError("/proc/meminfo does not tell the available memory");
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

}  // namespace orrery::exec
