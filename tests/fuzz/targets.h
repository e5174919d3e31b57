// What is fuzzed: every reader of files that people and other programs write. Each takes any bytes and returns, or
// throws InputError; whatever else happens is a bug.
#pragma once

#include <string>
#include <vector>

namespace orrery::fuzz {

struct Target {
    const char* name;
    void (*read)(const std::string& text);
    bool predicts = false;  // a step, too: milliseconds for each input
};

/// Without the canary.
[[nodiscard]] const std::vector<Target>& targets();
/// Fails on an input that a fuzzer finds at once: what does not fail on it proves nothing.
void read_canary(const std::string& text);

/// Reads, and takes InputError as an answer: then false.
bool run(const Target& target, const std::string& text);
/// The target of this name, or the canary; throws BugError when there is none.
[[nodiscard]] Target target_named(const std::string& name);

}  // namespace orrery::fuzz
