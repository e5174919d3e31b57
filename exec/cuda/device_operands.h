// Operands of GPU kernels, with their types.
#pragma once

#include <cstddef>

#include "exec/operands.h"
#include "kernels/cuda/floats.h"

namespace orrery::exec {

class DeviceOperands : public Operands {
  public:
    using Operands::Operands;
    [[nodiscard]] kernels::cuda::ConstFloats floats_in(std::size_t i) const { return {in(i), in_type(i)}; }
    [[nodiscard]] kernels::cuda::ConstFloats optional_floats_in(std::size_t i) const {
        return {optional_in(i), in_type(i)};
    }
    [[nodiscard]] kernels::cuda::Floats floats_out(std::size_t i) const { return {out(i), out_type(i)}; }
    [[nodiscard]] kernels::cuda::Floats optional_floats_out(std::size_t i) const {
        return {optional_out(i), out_type(i)};
    }
};

}  // namespace orrery::exec
