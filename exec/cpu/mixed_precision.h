// Operators over bf16 operands, on kernels that know fp32 only: operands are copied to fp32 first and what was written
// is rounded afterwards, as units do that multiply 16-bit numbers and add up in 32 bits.
#pragma once

#include <cstdint>
#include <vector>

#include "exec/operator_call.h"

namespace orrery::exec {

class Fp32Copies {
  public:
    /// The same operands, with fp32 copies in place of those in bf16. An operand that stands in several places has one
    /// copy. Valid until the next call.
    [[nodiscard]] OperatorPointers make(const OperatorPointers& at);
    /// Rounds what make() said may be written, to where it belongs.
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
    std::vector<float> values_;  // it only grows, to what program::MemoryFootprint::conversions says
};

[[nodiscard]] bool has_bf16(const OperatorPointers& at);

}  // namespace orrery::exec
