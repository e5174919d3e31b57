// What it takes to run an operator: the memory of its slots, and what differs from rank to rank.
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
    std::array<std::int64_t, models::kMaxOperands> in_width{}, out_width{};        // elements of a row: the last extent
    std::array<std::int64_t, models::kMaxOperands> in_elements{}, out_elements{};  // that there is room for
    std::array<DType, models::kMaxOperands> in_dtype, out_dtype;                   // fp32 for operands that are absent
    std::string_view mask_name;                                                    // of the operand in uint8
    void* scratch = nullptr;
    std::int64_t scratch_bytes = 0;
};

/// `decl_of` and `address_of` a slot: its declaration, which outlives the call, and where it lies. Whatever binds
/// operators does it by this, so that no operand lacks what kernels ask for.
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

/// What an operator cannot say because it differs from rank to rank or from action to action.
struct OperatorContext {
    const models::ModelSpec* model = nullptr;
    std::int64_t tp_index = 0;
    std::int64_t vocabulary_index = 0;      // which part of the vocabulary is this rank's
    std::int64_t cp = 1, cp_index = 0;      // context-parallel ranks, and which of them this is
    double loss_scale = 1.0;                // factor on the gradient of each token's loss: 1 / tokens in a global batch
    const TokenSource* data = nullptr;      // load_tokens, load_targets
    std::span<const std::int64_t> samples;  // global sample indices of the micro-batch; size micro_batch
    double dropout = 0;                     // probability
    std::uint64_t seed = 0;                 // of its masks, with
    std::int64_t layer = 0;                 // the operator's layer: blocks from 0, the embedding -1
    kernels::AdamW optimizer;               // adamw: its weight_decay goes to the ranges with decay
    bool decoupled_decay = true;            // adamw; otherwise adam
    kernels::SgdMomentum sgd;               // sgd_momentum
    double clip_norm = 0;                   // of the gradients of the whole job; 0: not clipped
    std::span<const UpdateRange> updates;   // of the flat operators, whose pointers are those of whole buffers
};

/// An operator with the memory that its slots are bound to. Operators of one Program are told apart by their addresses.
struct BoundOperator {
    const models::Operator* op = nullptr;
    OperatorPointers at;
};

}  // namespace orrery::exec
