// Operands of an operator in fp32 or bf16, for CUDA kernels.
#pragma once

#include <cstddef>
#include <cstdint>

#include "exec/operands.h"
#include "kernels/cuda/floats.h"

namespace orrery::exec {

/// A missing operand is a BugError, except with optional_*.
class FloatOperands {
  public:
    FloatOperands(const Operands& operands, const OperatorPointers& at) : operands_(operands), at_(at) {}

    [[nodiscard]] kernels::cuda::ConstFloats in(std::size_t i) const { return {operands_.in(i), at_.in_dtype.at(i)}; }
    [[nodiscard]] kernels::cuda::ConstFloats optional_in(std::size_t i) const {
        return {at_.in.at(i), at_.in_dtype.at(i)};
    }
    [[nodiscard]] kernels::cuda::Floats out(std::size_t i) const { return {operands_.out(i), at_.out_dtype.at(i)}; }
    [[nodiscard]] kernels::cuda::Floats optional_out(std::size_t i) const {
        return {at_.out.at(i), at_.out_dtype.at(i)};
    }
    /// An operand that is read and then overwritten.
    [[nodiscard]] kernels::cuda::Floats consumed(std::size_t i) const {
        return {operands_.consumed(i), at_.in_dtype.at(i)};
    }
    /// The rows of an operand from this column on.
    [[nodiscard]] kernels::cuda::ConstFloatRows rows_in(std::size_t i, std::int64_t column = 0) const {
        return {in(i).from(column), at_.in_width.at(i)};
    }
    [[nodiscard]] kernels::cuda::FloatRows rows_out(std::size_t i, std::int64_t column = 0) const {
        return {out(i).from(column), at_.out_width.at(i)};
    }

  private:
    const Operands& operands_;
    const OperatorPointers& at_;
};

}  // namespace orrery::exec
