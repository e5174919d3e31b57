#include "exec/environment.h"

#include <dlfcn.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <climits>
#include <cstdlib>
#include <ctime>
#include <fstream>

#include "exec/transport/mpi_version.h"

extern "C" void sgemm_();  // in the BLAS that was loaded; only its address is used

namespace orrery::exec {
namespace {

/// "" if /proc/cpuinfo does not name it.
std::string processor() {
    std::ifstream file("/proc/cpuinfo");
    for (std::string line; std::getline(file, line);) {
        if (!line.starts_with("model name")) continue;
        const std::size_t value = line.find(": ");
        if (value != std::string::npos) return line.substr(value + 2);
    }
    return {};
}

/// The file of the loaded BLAS with all symbolic links resolved, because libblas.so.3 may be any BLAS.
std::string blas() {
    Dl_info info{};
    if (dladdr(reinterpret_cast<void*>(&sgemm_), &info) == 0 || info.dli_fname == nullptr) return {};
    char path[PATH_MAX] = {};
    return realpath(info.dli_fname, path) != nullptr ? path : info.dli_fname;
}

std::string date() {
    const std::time_t now = std::time(nullptr);
    std::tm utc{};
    gmtime_r(&now, &utc);
    char text[32] = {};
    std::strftime(text, sizeof(text), "%Y-%m-%dT%H:%M:%SZ", &utc);
    return text;
}

}  // namespace

std::map<std::string, std::string> describe_environment(const Transport& transport) {
    std::map<std::string, std::string> environment{{"date", date()},
                                                   {"processor", processor()},
                                                   {"cores", std::to_string(transport.cores())},
                                                   {"ranks_on_host", std::to_string(transport.ranks_on_host())},
                                                   {"blas", blas()},
                                                   {"mpi", mpi_version()},
                                                   {"compiler", __VERSION__},
                                                   {"orrery", ORRERY_VERSION}};
    char host[256] = {};
    if (gethostname(host, sizeof(host) - 1) == 0) environment["host"] = host;
    utsname system{};
    if (uname(&system) == 0) environment["kernel"] = std::string(system.sysname) + " " + system.release;
    std::erase_if(environment, [](const auto& entry) { return entry.second.empty(); });
    return environment;
}

}  // namespace orrery::exec
