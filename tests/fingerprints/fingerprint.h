// A few numbers that summarise the lowering of a plan and its prediction: two versions of the code that give the same
// numbers agree on the plan.
#pragma once

#include <cstdint>
#include <string>

#include "sim/program/program.h"

namespace orrery::fingerprints {

struct Fingerprint {
    std::uint64_t lists = 0;   // hash of actions, their segments and instructions in issue order, and slot addresses
    std::uint64_t order = 0;   // hash of all predecessors, direct or not, of each instruction in the steady state
    std::uint64_t memory = 0;  // hash of the footprint of each class, and its buffers
    std::int64_t step_ps = 0;  // predicted
    bool operator==(const Fingerprint&) const = default;
};

[[nodiscard]] Fingerprint fingerprint_of(const program::Plan& plan);
/// "0123456789abcdef 0123456789abcdef 0123456789abcdef 1234"
[[nodiscard]] std::string to_text(const Fingerprint& fingerprint);
/// Reads such a text; throws BugError for any other.
[[nodiscard]] Fingerprint fingerprint_from(const std::string& text);

}  // namespace orrery::fingerprints
