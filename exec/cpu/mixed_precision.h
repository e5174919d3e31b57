// Runs operators with bf16 operands on fp32 kernels: operands are converted to fp32 before, and outputs are rounded to
// bf16 after. This is like hardware that multiplies 16-bit numbers and accumulates in 32 bits.
#pragma once

#include <cstdint>
#include <vector>

#include "exec/operator_call.h"

namespace orrery::exec {

class Fp32Copies {
  public:
    /// Replaces bf16 operands by fp32 copies. An operand that occurs several times has one copy. The result is valid
    /// until the next call.
    [[nodiscard]] OperatorPointers make(const OperatorPointers& at);
    /// Rounds the copies of output operands back to the originals.
    void write_back() const;

  private:
    struct Copy {
        std::uint16_t* original = nullptr;
        std::int64_t elements = 0;
        bool written = false;
        std::int64_t place = 0;  // elements, in values_
    };
    void note(void* operand, std::int64_t elements, bool written);
    [[nodiscard]] float* copy_of(const void* operand);

    std::vector<Copy> copies_;
    std::vector<float> values_;  // grows up to program::MemoryFootprint::conversions
};

[[nodiscard]] bool has_bf16(const OperatorPointers& at);

}  // namespace orrery::exec
