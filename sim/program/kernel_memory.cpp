#include "sim/program/kernel_memory.h"

#include <algorithm>

#include "core/units.h"

namespace orrery::program {
namespace {

using models::Operator;
using models::OpKind;

/// The elements that the product cuts at a time; 0 if its factors have one type.
std::int64_t cut_elements_of(const Body& body, const Operator& op) {
    const auto type = [&](std::size_t i) { return body.slots[op.in[i]].decl.dtype; };
    if (type(0) == type(1)) return 0;
    const bool cuts_first = type(0) == DType::fp32;
    switch (op.kind) {
        case OpKind::linear_forward:  // x W^T
            return cut_elements(cuts_first ? op.rows : op.n, op.k);
        case OpKind::linear_backward_input:  // dy W
            return cut_elements(cuts_first ? op.rows : op.k, op.n);
        default:  // dy^T x
            return cut_elements(cuts_first ? op.n : op.k, op.rows);
    }
}

/// What the operator overwrites beside its operands.
std::int64_t scratch_bytes_of(const Body& body, const Operator& op) {
    const bool is_bf16_attention =
        op.kind == OpKind::attention_backward && body.slots[op.in[0]].decl.dtype == DType::bf16;
    if (is_bf16_attention) return checked_product(checked_product(op.rows, op.heads), size_of(DType::fp32));
    return op.kind == OpKind::embedding_backward ? sort_bytes(op.rows) : 0;
}

void add(const Program& program, const Body& body, Stream stream, const Operator& op, KernelMemory& memory) {
    memory.scratch_bytes[stream] = std::max(memory.scratch_bytes[stream], scratch_bytes_of(body, op));
    switch (op.kind) {
        case OpKind::linear_forward:
        case OpKind::linear_backward_input:
        case OpKind::linear_backward_weight: {
            KernelMemory::Products& products = memory.products[stream];
            products.any = true;
            products.cut_elements = std::max(products.cut_elements, cut_elements_of(body, op));
            return;
        }
        case OpKind::rope_forward:
        case OpKind::rope_backward:
            memory.rotary_tables.emplace(op.sequence, program.plan->model.rotary_width());
            return;
        default:
            return;
    }
}

}  // namespace

std::int64_t KernelMemory::bytes(std::int64_t compute_capability) const {
    constexpr std::int64_t kHalves = 2;
    std::int64_t sum = kSmallBytes;
    for (const Products& one : products) {
        if (one.any) sum += gemm_workspace_bytes(compute_capability);
        sum += checked_product(one.cut_elements, kHalves * size_of(DType::bf16));
    }
    for (const std::int64_t one : scratch_bytes) sum += one;
    for (const auto& [positions, width] : rotary_tables) {
        sum += checked_product(positions, width * size_of(DType::fp32));  // width / 2 cosines, and as many sines
    }
    return sum;
}

KernelMemory kernel_memory(const Program& program, const RankClass& rank_class) {
    KernelMemory memory;
    for (const auto& segments : rank_class.segment_lists) {
        for (const Segment& segment : segments) {
            const Body& body = program.bodies[segment.body];
            for (const Instruction& instruction : body.instructions) {
                for (std::int32_t i = 0; i < instruction.operator_count; ++i) {
                    add(program, body, instruction.stream, body.operators[instruction.first_operator + i], memory);
                }
            }
        }
    }
    return memory;
}

std::int64_t cut_elements(std::int64_t outer, std::int64_t inner, std::int64_t most) {
    const std::int64_t at_once = std::max<std::int64_t>(std::min(most / std::max<std::int64_t>(inner, 1), outer), 1);
    return at_once * inner;
}

std::int64_t sort_bytes(std::int64_t rows) {
    constexpr std::int64_t kTile = 2048, kWordsOfRow = 5, kCounts = 256;
    const std::int64_t tiles = (rows + kTile - 1) / kTile;
    return checked_product(tiles, (kTile * kWordsOfRow + kCounts) * size_of(DType::int32));
}

std::int64_t gemm_workspace_bytes(std::int64_t compute_capability) {
    constexpr std::int64_t kHopper = 90;
    return compute_capability >= kHopper ? 4096 * 1024 * 8 : 4096 * 1024 * 2 + 16 * 1024 * 8;
}

}  // namespace orrery::program
