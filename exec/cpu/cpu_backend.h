// Runs operators on this machine's CPU, in fp32, through kernels/.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "exec/data.h"
#include "exec/shards.h"
#include "kernels/kernels.h"
#include "models/model_spec.h"
#include "models/operator.h"

namespace orrery::exec {

/// Memory of an operator's slots, by operand position; null for operands that are absent.
struct OperatorPointers {
    OperatorPointers() {
        in_dtype.fill(DType::fp32);
        out_dtype.fill(DType::fp32);
    }
    std::array<void*, models::kMaxOperands> in{};
    std::array<void*, models::kMaxOperands> out{};
    std::array<std::int64_t, models::kMaxOperands> in_width{}, out_width{};  // elements of a row: the last extent
    std::array<DType, models::kMaxOperands> in_dtype, out_dtype;             // fp32 for operands that are absent
    void* scratch = nullptr;
    std::int64_t scratch_bytes = 0;
};

/// What an operator cannot say because it differs from rank to rank or from action to action.
struct OperatorContext {
    const models::ModelSpec* model = nullptr;
    std::int64_t tp_index = 0;
    std::int64_t cp = 1, cp_index = 0;      // context-parallel ranks, and which of them this is
    double loss_scale = 1.0;                // factor on the gradient of each token's loss: 1 / tokens in a global batch
    const TokenSource* data = nullptr;      // load_tokens, load_targets
    std::span<const std::int64_t> samples;  // global sample indices of the micro-batch; size micro_batch
    kernels::AdamW optimizer;               // adamw: its weight_decay goes to the ranges with decay
    bool decoupled_decay = true;            // adamw; otherwise adam
    kernels::SgdMomentum sgd;               // sgd_momentum
    double clip_norm = 0;                   // of the gradients of the whole job; 0: not clipped
    std::span<const UpdateRange> updates;   // of the flat operators, whose pointers are those of whole buffers
};

class CpuBackend {
  public:
    /// Sets the BLAS to one thread: a rank is one core.
    CpuBackend();
    /// Runs one operator. Operand positions are those documented at models::OpKind; adamw takes in[0] = gradient,
    /// in[1] = norm or none, out[0] = parameters, out[1] = m, out[2] = v. Throws BugError for variants that are only
    /// simulated (dropout, attention that stores its probabilities, master weights).
    void run(const models::Operator& op, const OperatorPointers& at, const OperatorContext& context);

  private:
    struct RotaryTable {
        std::int64_t sequence = 0;
        std::int64_t head_dim = 0;
        std::vector<float> cosines, sines;
    };
    const RotaryTable& rotary_table(const models::ModelSpec& model, std::int64_t sequence, std::int64_t head_dim);
    void rotate(const models::Operator& op, const OperatorContext& context, float* qkv);
    void load(const models::Operator& op, const OperatorPointers& at, const OperatorContext& context);

    RotaryTable rotary_;
    std::vector<std::int32_t> sample_tokens_;
};

}  // namespace orrery::exec
