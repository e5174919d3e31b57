#include "sim/program/operator_sample.h"

#include <algorithm>
#include <cstdint>
#include <string>
#include <utility>

namespace orrery::program {

void add_sample(const models::Operator& op, double seconds, std::vector<topologies::MatmulSample>& matmuls,
                std::vector<topologies::OperatorSample>& operators) {
    const std::string name(name_of(op.kind));
    if (op.is_matmul() || op.is_expert_matmul()) {
        // For grouped GEMMs the sample is one group's GEMM with the most rows, because that is what look-ups ask for.
        const std::int64_t groups = std::max<std::int64_t>(1, op.groups);
        matmuls.push_back(
            {name, (op.rows + groups - 1) / groups, op.n, op.k, seconds / static_cast<double>(groups), op.math});
        return;
    }
    topologies::OperatorSample sample{
        .op = name, .bytes = op.bytes_read + op.bytes_written, .flops = op.flops, .seconds = seconds, .dtype = op.math};
    if (op.is_attention()) {
        sample.rows = op.rows * op.heads;
        sample.head_dim = op.head_dim;
        sample.sequence = op.sequence;
    }
    operators.push_back(std::move(sample));
}

}  // namespace orrery::program
