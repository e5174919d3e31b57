// What a search leaves out on request.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace orrery::sim {

/// Columns of the table of ranked plans.
enum class PlanField : std::uint8_t {
    stack,
    dp,
    tp,
    cp,
    ep,
    etp,
    pp,
    sp,
    data,
    shards,
    gathered,
    order,
    schedule,
    chunks,
    vocabulary,
    stages,
    recompute,
    offload,
    micro_batch,
};
[[nodiscard]] std::string_view name_of(PlanField field);

/// A value that no candidate of a search may have, such as tp=16 or schedule=zb-v.
struct Exclusion {
    PlanField field{};
    /// Of a field that counts, the number; of any other, the index of the value among allowed_values.
    std::int64_t value = 0;
    bool operator==(const Exclusion&) const = default;
};

/// The values that a field may have; empty for fields that count. The schedule of one stage is none of them.
[[nodiscard]] const std::vector<std::string>& allowed_values(PlanField field);

/// Parses FIELD=VALUE, or a bare kind of data parallelism, schedule or kind of recomputation (zero3 is data=zero3).
/// Throws InputError with the name of the flag, the text and what is allowed.
[[nodiscard]] Exclusion exclusion_named(const std::string& text, const std::string& flag);
/// FIELD=VALUE
[[nodiscard]] std::string text_of(const Exclusion& exclusion);

}  // namespace orrery::sim
