// Typed access to an operator's operands, for the backends that run it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "core/error.h"
#include "exec/operator_call.h"

namespace orrery::exec {

/// Typed access to operands. A missing operand is a BugError, except with optional_* and any_in().
class Operands {
  public:
    Operands(const models::Operator& op, const OperatorPointers& at) : op_(op), at_(at) {}
    [[nodiscard]] const float* in(std::size_t i) const { return static_cast<const float*>(present(at_.in.at(i))); }
    [[nodiscard]] const std::int32_t* integers(std::size_t i) const {
        return static_cast<const std::int32_t*>(present(at_.in.at(i)));
    }
    [[nodiscard]] std::int32_t* integers_out(std::size_t i) const {
        return static_cast<std::int32_t*>(present(at_.out.at(i)));
    }
    [[nodiscard]] const std::int64_t* counts(std::size_t i) const {
        return static_cast<const std::int64_t*>(present(at_.in.at(i)));
    }
    [[nodiscard]] std::int64_t* counts_out(std::size_t i) const {
        return static_cast<std::int64_t*>(present(at_.out.at(i)));
    }
    [[nodiscard]] const float* optional_in(std::size_t i) const { return static_cast<const float*>(at_.in.at(i)); }
    [[nodiscard]] float* out(std::size_t i) const { return static_cast<float*>(present(at_.out.at(i))); }
    [[nodiscard]] float* optional_out(std::size_t i) const { return static_cast<float*>(at_.out.at(i)); }
    [[nodiscard]] double* loss(std::size_t i) const { return static_cast<double*>(present(at_.out.at(i))); }
    [[nodiscard]] const void* any_in(std::size_t i) const { return at_.in.at(i); }
    [[nodiscard]] void* any_out(std::size_t i) const { return present(at_.out.at(i)); }
    [[nodiscard]] DType in_type(std::size_t i) const { return at_.in_dtype.at(i); }
    [[nodiscard]] DType out_type(std::size_t i) const { return at_.out_dtype.at(i); }
    /// Dropout masks.
    [[nodiscard]] const std::uint8_t* mask_in(std::size_t i) const {
        return static_cast<const std::uint8_t*>(present(at_.in.at(i)));
    }
    [[nodiscard]] std::uint8_t* mask_out(std::size_t i) const {
        return static_cast<std::uint8_t*>(present(at_.out.at(i)));
    }
    /// Operands in bf16.
    [[nodiscard]] std::uint16_t* in_bf16(std::size_t i) const {
        return static_cast<std::uint16_t*>(present(at_.in.at(i)));
    }
    [[nodiscard]] std::uint16_t* out_bf16(std::size_t i) const {
        return static_cast<std::uint16_t*>(present(at_.out.at(i)));
    }
    /// An operand that is read and then overwritten.
    [[nodiscard]] float* consumed(std::size_t i) const { return static_cast<float*>(present(at_.in.at(i))); }
    [[nodiscard]] float* scratch(std::int64_t elements) const {
        ORRERY_CHECK(at_.scratch_bytes >= elements * static_cast<std::int64_t>(sizeof(float)),
                     std::string(name_of(op_.kind)) + ": scratch of " + std::to_string(at_.scratch_bytes) +
                         " bytes is too small");
        return static_cast<float*>(present(at_.scratch));
    }
    void must_be_absent(const void* pointer) const {
        ORRERY_CHECK(pointer == nullptr, std::string(name_of(op_.kind)) + ": this variant is only simulated");
    }
    /// For in-place kinds: input and output must be the same slot.
    void must_be_same(std::size_t in, std::size_t out) const {
        ORRERY_CHECK(at_.in.at(in) == at_.out.at(out), std::string(name_of(op_.kind)) + " must work in place");
    }

  private:
    void* present(void* pointer) const {
        ORRERY_CHECK(pointer != nullptr, std::string(name_of(op_.kind)) + ": an operand is missing");
        return pointer;
    }
    const models::Operator& op_;
    const OperatorPointers& at_;
};

}  // namespace orrery::exec
