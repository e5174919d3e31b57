// Runs operators on the CPU with the kernels of kernels/, in fp32, or in bf16 by way of fp32 copies.
#pragma once

#include <cstdint>
#include <vector>

#include "exec/cpu/mixed_precision.h"
#include "exec/operands.h"
#include "exec/operator_call.h"
#include "kernels/kernels.h"
#include "models/model_spec.h"
#include "models/operator.h"

namespace orrery::exec {

class CpuOperators {
  public:
    /// Sets the BLAS to one thread, because a rank uses one core.
    CpuOperators();
    /// Runs one operator. models::OpKind documents the operand positions; adamw takes in[0] = gradient, in[1] = norm or
    /// none, out[0] = parameters, out[1] = m, out[2] = v (both in fp32 or bf16), out[4] = master weights of bf16
    /// parameters. Throws BugError for variants that are only simulated (such as attention that stores its
    /// probabilities).
    void run(const models::Operator& op, const OperatorPointers& at, const OperatorContext& context);

  private:
    /// Precondition: no operand is in bf16, except for operators that take any type.
    void run_in_fp32(const models::Operator& op, const OperatorPointers& at, const OperatorContext& context);
    struct RotaryTable {
        std::int64_t sequence = 0;
        std::int64_t width = 0;  // the rotated dimensions of a head
        std::vector<float> cosines, sines;
    };
    const RotaryTable& rotary_table(const models::ModelSpec& model, std::int64_t sequence, std::int64_t width);
    void rotate(const models::Operator& op, const Operands& o, const OperatorPointers& at,
                const OperatorContext& context);

    Fp32Copies copies_;
    RotaryTable rotary_;
};

}  // namespace orrery::exec
