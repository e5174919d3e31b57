#include "sim/program/operator_sample.h"

#include <algorithm>
#include <cstdint>
#include <string>

namespace orrery::program {
namespace {

bool has_bias(const models::Operator& op) {
    if (op.kind == models::OpKind::linear_forward) return op.in[2] != models::kNoSlot;
    return op.kind == models::OpKind::linear_backward_weight && op.out[1] != models::kNoSlot;
}

}  // namespace

void add_sample(const models::Operator& op, double seconds, std::vector<topologies::MatmulSample>& matmuls,
                std::vector<topologies::OperatorSample>& operators) {
    const std::string name(name_of(op.kind));
    if (op.is_matmul() || op.is_expert_matmul()) {
        // For grouped GEMMs the sample is one group's GEMM with the most rows, because that is what look-ups ask for.
        const std::int64_t groups = std::max<std::int64_t>(1, op.groups);
        matmuls.push_back({name, (op.rows + groups - 1) / groups, op.n, op.k, seconds / static_cast<double>(groups),
                           op.math, has_bias(op)});
        return;
    }
    operators.push_back({.op = name,
                         .bytes = op.bytes_read + op.bytes_written,
                         .flops = op.flops,
                         .rows = op.is_attention() ? op.rows * op.heads : op.rows,
                         .head_dim = op.head_dim,
                         .sequence = op.sequence,
                         .seconds = seconds,
                         .dtype = op.math,
                         .n = op.n,
                         .k = op.k,
                         .heads = op.heads,
                         .kv_heads = op.kv_heads,
                         .elements = op.elements});
}

}  // namespace orrery::program
