// Operands of an operator that may be in fp32 or bf16, for CUDA kernels.
#pragma once

#include <cstddef>
#include <cstdint>

#include "exec/operands.h"
#include "kernels/cuda/floats.h"

namespace orrery::exec {

/// A missing operand is a BugError, except with optional_*.
class DeviceOperands : public Operands {
  public:
    DeviceOperands(const models::Operator& op, const OperatorPointers& at) : Operands(op, at), at_(at) {}
    [[nodiscard]] kernels::cuda::ConstFloats floats_in(std::size_t i) const { return {in(i), in_type(i)}; }
    [[nodiscard]] kernels::cuda::ConstFloats optional_floats_in(std::size_t i) const {
        return {optional_in(i), in_type(i)};
    }
    [[nodiscard]] kernels::cuda::Floats floats_out(std::size_t i) const { return {out(i), out_type(i)}; }
    [[nodiscard]] kernels::cuda::Floats optional_floats_out(std::size_t i) const {
        return {optional_out(i), out_type(i)};
    }
    /// An operand that is read and then overwritten.
    [[nodiscard]] kernels::cuda::Floats consumed_floats(std::size_t i) const { return {consumed(i), in_type(i)}; }
    /// The rows of an operand from this column on.
    [[nodiscard]] kernels::cuda::ConstFloatRows rows_in(std::size_t i, std::int64_t column = 0) const {
        return {floats_in(i).from(column), at_.in_width.at(i)};
    }
    [[nodiscard]] kernels::cuda::FloatRows rows_out(std::size_t i, std::int64_t column = 0) const {
        return {floats_out(i).from(column), at_.out_width.at(i)};
    }

  private:
    const OperatorPointers& at_;
};

}  // namespace orrery::exec
