// What a plan is lowered to and predicted from it, in a few numbers: two versions of the lowering or of the engine that
// give a plan the same numbers agree on it.
#pragma once

#include <cstdint>
#include <string>

#include "sim/program/program.h"

namespace orrery::fingerprints {

struct Fingerprint {
    std::uint64_t lists = 0;   // hash: actions, their segments and instructions in issue order, and where slots lie
    std::uint64_t order = 0;   // hash: what each instruction of a settled step comes after, directly or not
    std::uint64_t memory = 0;  // hash: the footprint of each class, and its buffers
    std::int64_t step_ps = 0;  // predicted
    bool operator==(const Fingerprint&) const = default;
};

[[nodiscard]] Fingerprint fingerprint_of(const program::Plan& plan);
/// "0123456789abcdef 0123456789abcdef 0123456789abcdef 1234"
[[nodiscard]] std::string to_text(const Fingerprint& fingerprint);
/// Throws BugError for anything else.
[[nodiscard]] Fingerprint fingerprint_from(const std::string& text);

}  // namespace orrery::fingerprints
