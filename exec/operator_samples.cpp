#include "exec/operator_samples.h"

#include <algorithm>
#include <string>

namespace orrery::exec {

bool OperatorSamples::is_new(const models::Operator& op) {
    return seen_.insert({op.kind, op.rows, op.n, op.k, op.heads, op.kv_heads, op.head_dim, op.sequence}).second;
}

void OperatorSamples::add(const models::Operator& op, double seconds) {
    const std::string name(name_of(op.kind));
    if (op.is_matmul()) {
        matmuls_.push_back({name, op.rows, op.n, op.k, seconds});
        return;
    }
    topologies::OperatorSample sample{
        .op = name, .bytes = op.bytes_read + op.bytes_written, .flops = op.flops, .seconds = seconds};
    if (op.is_attention()) {
        sample.rows = op.rows * op.heads;
        sample.head_dim = op.head_dim;
        sample.sequence = op.sequence;
    }
    operators_.push_back(std::move(sample));
}

double OperatorSamples::best_flops_per_s() const {
    double best = 0;
    for (const topologies::MatmulSample& sample : matmuls_) {
        const double flops =
            2.0 * static_cast<double>(sample.m) * static_cast<double>(sample.n) * static_cast<double>(sample.k);
        best = std::max(best, flops / sample.seconds);
    }
    return best;
}

}  // namespace orrery::exec
