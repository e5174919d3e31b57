#include "exec/operator_samples.h"

#include <algorithm>

#include "sim/program/operator_sample.h"

namespace orrery::exec {
namespace {

auto signature(const models::Operator& op) {
    return std::make_tuple(op.kind, op.math, op.elements, op.rows, op.n, op.k, op.heads, op.kv_heads, op.head_dim,
                           op.sequence);
}

}  // namespace

bool OperatorSamples::has(const models::Operator& op) const {
    return timings_.contains(signature(op));
}

void OperatorSamples::add(const models::Operator& op, double seconds) {
    timings_.try_emplace(signature(op), Timings{op, {}}).first->second.seconds.push_back(seconds);
}

double OperatorSamples::Timings::median() const {
    std::vector<double> sorted = seconds;
    const std::size_t middle = sorted.size() / 2;
    std::sort(sorted.begin(), sorted.end());
    return sorted.size() % 2 == 1 ? sorted[middle] : (sorted[middle - 1] + sorted[middle]) / 2;
}

OperatorSamples::Samples OperatorSamples::samples() const {
    Samples result;
    for (const auto& [shape, timings] : timings_) {
        program::add_sample(timings.op, timings.median(), result.matmuls, result.operators);
    }
    for (const topologies::MatmulSample& sample : result.matmuls) {
        const double flops =
            2.0 * static_cast<double>(sample.m) * static_cast<double>(sample.n) * static_cast<double>(sample.k);
        double& best = result.best_flops_per_s[sample.dtype];
        best = std::max(best, flops / sample.seconds);
    }
    return result;
}

}  // namespace orrery::exec
