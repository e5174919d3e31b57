#include "exec/faults/process_facts.h"

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <system_error>

namespace orrery::exec {
namespace {

/// The fields of a stat file from field 3 (state) on, which follow the process name. The name may contain any
/// character.
/// "" if the process is gone.
std::string stat_after_name(const std::string& path) {
    std::string line;
    std::getline(std::ifstream(path), line, '\0');
    const std::size_t name_end = line.rfind(')');
    return name_end == std::string::npos ? "" : line.substr(name_end + 1);
}

}  // namespace

ProcessFacts process_facts(pid_t process) {
    const std::string number = std::to_string(process);
    std::istringstream fields(stat_after_name("/proc/" + number + "/task/" + number + "/stat"));
    char state = 0;
    std::int64_t value = 0;
    if (!(fields >> state) || state == 'Z' || state == 'X') return {};
    ProcessFacts facts{
        .exists = true, .is_stopped = state == 'T' || state == 't', .runs = state == 'R' || state == 'D'};
    constexpr int kUserTicks = 14, kSystemTicks = 15, kStartTicks = 22;
    for (int field = 4; field <= kStartTicks && fields >> value; ++field) {
        if (field == kUserTicks || field == kSystemTicks) facts.cpu_ticks += value;
        if (field == kStartTicks) facts.start_ticks = value;
    }
    return facts;
}

std::vector<pid_t> children_of(pid_t parent) {
    std::vector<pid_t> children;
    std::error_code ignored;
    for (const auto& entry : std::filesystem::directory_iterator("/proc", ignored)) {
        const std::string name = entry.path().filename().string();
        pid_t process = 0;
        const auto [end, failed] = std::from_chars(name.data(), name.data() + name.size(), process);
        if (failed != std::errc{} || end != name.data() + name.size()) continue;
        std::istringstream fields(stat_after_name("/proc/" + name + "/stat"));
        char state = 0;
        pid_t its_parent = 0;
        if (fields >> state >> its_parent && its_parent == parent) children.push_back(process);
    }
    return children;
}

}  // namespace orrery::exec
