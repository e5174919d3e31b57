// The fuzz targets: every reader of files that people and other programs write. A reader must accept any bytes and
// return or throw InputError; anything else is a bug.
#pragma once

#include <string>
#include <vector>

namespace orrery::fuzz {

struct Target {
    const char* name;
    void (*read)(const std::string& text);
    bool predicts = false;  // also predicts a step, which takes milliseconds per input
};

/// All targets except the canary.
[[nodiscard]] const std::vector<Target>& targets();
/// Fails on an input that a working fuzzer finds at once.
void read_canary(const std::string& text);

/// Whether the target reads the text; false if it throws InputError.
bool run(const Target& target, const std::string& text);
/// The target of this name, or the canary; throws BugError when there is none.
[[nodiscard]] Target target_named(const std::string& name);

}  // namespace orrery::fuzz
