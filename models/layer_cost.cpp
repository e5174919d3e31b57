// Attended pairs, and the FLOPs and bytes of the operators that are appended to a layer.
#include <algorithm>
#include <cmath>

#include "core/error.h"
#include "models/layer_builder.h"
#include "models/operator_table.h"

namespace orrery::models {
namespace {

/// Pairs of a token with itself or with a token less than `reach` before it in the same document, in a sequence of `s`
/// tokens. A document ends after any token with probability 1/`mean`, so a pair at distance d is inside one document
/// with probability (1-1/mean)^d; the result is the sum over d < reach of (s-d) (1-1/mean)^d. A mean of 0: one
/// document.
double pairs_within(double s, double reach, double mean) {
    if (mean == 0) return reach * (reach + 1) / 2 + (s - reach) * reach;
    const double ended = -std::expm1(reach * std::log1p(-1 / mean));  // probability that a document ends within reach
    return mean * (s * ended + reach * (1 - ended)) - mean * (mean - 1) * ended;
}

}  // namespace

double LayerBuilder::attended_pairs(std::int64_t keys) const {
    const auto s = static_cast<double>(keys);
    if (!kernels().causal_skip) return s * s;
    const bool has_window = model_.sliding_window > 0 && model_.sliding_window < keys;
    const double reach = has_window ? static_cast<double>(model_.sliding_window) : s;
    const double to_earlier = pairs_within(s, reach, static_cast<double>(kernels().document_tokens));
    if (model_.causal) return to_earlier;
    // Bidirectional: each pair counts both ways, a token with itself once. Half of a window is on each side of the
    // token.
    return has_window ? std::min(s * reach, 2 * to_earlier - s) : 2 * to_earlier - s;
}

std::int64_t LayerBuilder::attended_length(std::int64_t keys) const {
    const auto s = static_cast<double>(keys);
    const double whole = kernels().causal_skip && model_.causal ? pairs_within(s, s, 0) : s * s;
    return std::max<std::int64_t>(1, std::llround(s * attended_pairs(keys) / whole));
}

Operator& LayerBuilder::op(Operator op, double pairs) {
    if (op.sequence == 0) op.sequence = context_.sequence;
    if (op.queries == 0) op.queries = op.sequence;
    op.micro_batch = context_.micro_batch;
    if (op.part == BlockPart::none) op.part = part_;
    if (op.math != DType::fp8 && op.math != DType::fp4) op.math = context_.compute_dtype;
    const OperatorRow& row = row_of(op.kind);
    if (row.flops != nullptr) op.flops = row.flops(op, {pairs, model_.rotary_fraction});
    const Traffic traffic = traffic_of(op, layer_.slots);
    op.bytes_read += traffic.read;
    op.bytes_written += traffic.written;
    steps_->emplace_back(op);
    return std::get<Operator>(steps_->back());
}

std::optional<Operator> LayerBuilder::take_last(const std::function<bool(const Operator&)>& is_wanted) {
    const auto* const last = steps_->empty() ? nullptr : std::get_if<Operator>(&steps_->back());
    if (last == nullptr || !is_wanted(*last)) return std::nullopt;
    Operator taken = *last;
    steps_->pop_back();
    taken.flops = taken.bytes_read = taken.bytes_written = 0;
    return taken;
}

}  // namespace orrery::models
