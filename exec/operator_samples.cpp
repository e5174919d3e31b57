#include "exec/operator_samples.h"

#include <algorithm>

#include "sim/program/operator_sample.h"

namespace orrery::exec {

bool OperatorSamples::is_new(const models::Operator& op) {
    return seen_.insert({op.kind, op.math, op.rows, op.n, op.k, op.heads, op.kv_heads, op.head_dim, op.sequence})
        .second;
}

void OperatorSamples::add(const models::Operator& op, double seconds) {
    program::add_sample(op, seconds, matmuls_, operators_);
}

double OperatorSamples::best_flops_per_s() const {
    double best = 0;
    for (const topologies::MatmulSample& sample : matmuls_) {
        const double flops =
            2.0 * static_cast<double>(sample.m) * static_cast<double>(sample.n) * static_cast<double>(sample.k);
        if (sample.dtype == DType::fp32) best = std::max(best, flops / sample.seconds);
    }
    return best;
}

}  // namespace orrery::exec
