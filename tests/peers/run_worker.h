// Runs a worker and reads what it prints.
#pragma once

#include <cstdio>
#include <stdexcept>
#include <string>

namespace orrery::peers {

struct WorkerResult {
    double simulated_ps = 0;
    double cpu_s = 0;
    double peak_kib = 0;
};

inline WorkerResult run_worker(const std::string& program, const std::string& arguments) {
    const std::string command = "\"" + program + "\" " + arguments + " 2>/dev/null";
    FILE* output = popen(command.c_str(), "r");
    if (output == nullptr) throw std::runtime_error("cannot run " + command);
    WorkerResult result;
    const int read = std::fscanf(output, "%lf %lf %lf", &result.simulated_ps, &result.cpu_s, &result.peak_kib);
    if (pclose(output) != 0 || read != 3) throw std::runtime_error("failed: " + command);
    return result;
}

}  // namespace orrery::peers
