// Inputs of operators that must have certain values: choices of experts, places of rows, counts, and norms.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "core/random.h"
#include "sim/program/program.h"

namespace orrery::exec {

class SpecialInputs {
  public:
    using Memory = IndexedVector<models::SlotIndex, std::vector<std::byte>>;
    /// Writes those of the operator into `host`, which has memory for its slots.
    void write(const program::Body& body, const models::Operator& op, Memory& host);

  private:
    void write_choices(const models::Operator& op, std::vector<std::byte>& memory, bool distinct, std::int64_t top_k);
    void write_places(const models::Operator& op, std::vector<std::byte>& memory);
    void write_counts(const program::Body& body, const models::Operator& op, models::SlotIndex slot, Memory& host);
    [[nodiscard]] std::int64_t below(std::int64_t end);

    RandomStream random_{2, "inputs of operators"};
    std::uint64_t draws_ = 0;
};

}  // namespace orrery::exec
