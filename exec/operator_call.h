// The arguments of an operator call: the memory of its slots, and a context that differs from rank to rank.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string_view>

#include "exec/data.h"
#include "exec/shards.h"
#include "kernels/optimizer.h"
#include "models/layer.h"
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
    std::array<std::int64_t, models::kMaxOperands> in_width{}, out_width{};        // elements of a row (last extent)
    std::array<std::int64_t, models::kMaxOperands> in_elements{}, out_elements{};  // size of the slot
    std::array<DType, models::kMaxOperands> in_dtype, out_dtype;                   // fp32 for absent operands
    std::string_view mask_name;                                                    // name of the uint8 operand's slot
    void* scratch = nullptr;
    std::int64_t scratch_bytes = 0;
};

/// Binds an operator to memory. `decl_of` returns a slot's declaration, which must outlive the result; `address_of`
/// returns its address. All callers bind operators with this function, so that no field is left out.
template <typename DeclOf, typename AddressOf>
[[nodiscard]] OperatorPointers bind(const models::Operator& op, const DeclOf& decl_of, const AddressOf& address_of) {
    OperatorPointers at;
    const auto one = [&](models::SlotIndex slot, void*& pointer, DType& dtype, std::int64_t& width,
                         std::int64_t& elements) {
        if (slot == models::kNoSlot) return;
        const models::SlotDecl& decl = decl_of(slot);
        pointer = address_of(slot);
        dtype = decl.dtype;
        width = decl.shape.empty() ? 0 : decl.shape.back();
        elements = decl.bytes() / size_of(dtype);
        if (dtype == DType::uint8) at.mask_name = decl.name;
    };
    for (std::size_t i = 0; i < models::kMaxOperands; ++i) {
        one(op.in[i], at.in[i], at.in_dtype[i], at.in_width[i], at.in_elements[i]);
        one(op.out[i], at.out[i], at.out_dtype[i], at.out_width[i], at.out_elements[i]);
    }
    if (op.scratch != models::kNoSlot) {
        at.scratch = address_of(op.scratch);
        at.scratch_bytes = decl_of(op.scratch).bytes();
    }
    return at;
}

/// The arguments of an operator that differ from rank to rank or from action to action.
struct OperatorContext {
    const models::ModelSpec* model = nullptr;
    std::int64_t tp_index = 0;
    std::int64_t vocabulary_index = 0;      // index of this rank's part of the vocabulary
    std::int64_t cp = 1, cp_index = 0;      // number of context-parallel ranks, and this rank's index among them
    double loss_scale = 1.0;                // factor on the gradient of each token's loss: 1 / tokens in a global batch
    const TokenSource* data = nullptr;      // load_tokens, load_targets
    std::span<const std::int64_t> samples;  // global sample indices of the micro-batch; size micro_batch
    double dropout = 0;                     // probability
    std::uint64_t seed = 0;                 // of the dropout masks
    std::int64_t layer = 0;                 // of the operator, also for the dropout masks: from 0; the embedding is -1
    kernels::AdamW optimizer;               // adamw; weight_decay applies to the ranges that decay
    bool decoupled_decay = true;            // true: AdamW, false: Adam
    kernels::SgdMomentum sgd;               // sgd_momentum
    double clip_norm = 0;                   // largest norm of the whole job's gradients; 0: no clipping
    std::span<const UpdateRange> updates;   // ranges of the flat operators, whose pointers are those of whole buffers
};

/// An operator and the memory of its slots. The address `op` identifies the operator within its Program.
struct BoundOperator {
    const models::Operator* op = nullptr;
    OperatorPointers at;
};

}  // namespace orrery::exec
