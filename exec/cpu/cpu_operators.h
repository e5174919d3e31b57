// Runs operators on this machine's CPU, in fp32, through kernels/.
#pragma once

#include <cstdint>
#include <vector>

#include "exec/operator_call.h"
#include "kernels/kernels.h"
#include "models/model_spec.h"
#include "models/operator.h"

namespace orrery::exec {

class CpuOperators {
  public:
    /// Sets the BLAS to one thread: a rank is one core.
    CpuOperators();
    /// Runs one operator. Operand positions are those documented at models::OpKind; adamw takes in[0] = gradient,
    /// in[1] = norm or none, out[0] = parameters, out[1] = m, out[2] = v. Throws BugError for variants that are only
    /// simulated (dropout, attention that stores its probabilities, master weights).
    void run(const models::Operator& op, const OperatorPointers& at, const OperatorContext& context);

  private:
    struct RotaryTable {
        std::int64_t sequence = 0;
        std::int64_t width = 0;  // of a head, as far as it is rotated
        std::vector<float> cosines, sines;
    };
    const RotaryTable& rotary_table(const models::ModelSpec& model, std::int64_t sequence, std::int64_t width);
    void rotate(const models::Operator& op, const OperatorContext& context, float* qkv);
    void load(const models::Operator& op, const OperatorPointers& at, const OperatorContext& context);

    RotaryTable rotary_;
    std::vector<std::int32_t> sample_tokens_;
};

}  // namespace orrery::exec
