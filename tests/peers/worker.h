// Shared by the workers of both simulators: the command line and the output.
#pragma once

#include <sys/resource.h>

#include <cstdint>
#include <cstdlib>
#include <fstream>
#include <iostream>
#include <string>
#include <vector>

#include "core/units.h"
#include "tests/peers/fat_tree.h"

namespace orrery::peers {

struct WorkerCase {
    std::string kind;
    std::int32_t hosts = 0;
    std::int64_t bytes = kMessageBytes;
};

/// CPU time of this process so far.
inline double cpu_seconds() {
    rusage usage{};
    getrusage(RUSAGE_SELF, &usage);
    const auto seconds = [](const timeval& time) {
        return static_cast<double>(time.tv_sec) + 1e-6 * static_cast<double>(time.tv_usec);
    };
    return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

/// Parses KIND HOSTS [BYTES].
inline WorkerCase read_case(int argc, char** argv, const std::vector<std::string>& kinds) {
    WorkerCase work;
    if (argc > 2) {
        work.kind = argv[1];
        work.hosts = std::atoi(argv[2]);
        if (argc > 3) work.bytes = std::atoll(argv[3]);
    }
    for (const std::string& kind : kinds) {
        const bool power_of_two = work.hosts >= 4 && (work.hosts & (work.hosts - 1)) == 0;
        if (work.kind == kind && power_of_two && work.bytes > 0) return work;
    }
    std::cerr << "usage: " << argv[0] << " KIND HOSTS [BYTES]; HOSTS: a power of two from 4; KIND:";
    for (const std::string& kind : kinds) std::cerr << ' ' << kind;
    std::cerr << '\n';
    std::exit(kExitInputWrong);
}

/// Prints simulated picoseconds, CPU seconds since main began, and this process's peak resident memory in KiB.
inline void print_result(double simulated_ps, double cpu_s_at_main) {
    const double cpu_s = cpu_seconds() - cpu_s_at_main;
    // Not ru_maxrss, which includes the memory of the parent process before exec.
    std::ifstream status("/proc/self/status");
    std::string word;
    std::int64_t peak_kib = 0;
    while (status >> word) {
        if (word == "VmHWM:") status >> peak_kib;
    }
    std::cout.precision(17);
    std::cout << simulated_ps << ' ' << cpu_s << ' ' << peak_kib << '\n';
}

}  // namespace orrery::peers
