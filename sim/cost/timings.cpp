#include "sim/cost/timings.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <tuple>
#include <utility>

#include "models/operator_table.h"

namespace orrery::sim {
namespace {

using models::OpKind;

double log_of(std::int64_t size) {
    return std::log(static_cast<double>(std::max<std::int64_t>(size, 1)));
}

bool is_attention(OpKind kind) {
    return models::row_of(kind).work == models::WorkClass::attention;
}

}  // namespace

Timings::Timings(const topologies::DeviceProfile& device) {
    for (const topologies::MatmulSample& sample : device.matmul_samples) add(sample);
    add(device.operator_samples);
}

void Timings::add(const topologies::MatmulSample& sample) {
    const std::optional<OpKind> kind = models::op_kind_named(sample.op);
    if (!kind || sample.seconds <= 0) return;
    const double flops =
        2.0 * static_cast<double>(sample.m) * static_cast<double>(sample.n) * static_cast<double>(sample.k);
    const ShapePoint point{{log_of(sample.m), log_of(sample.n), log_of(sample.k)}, flops / sample.seconds};
    OfType& timed = by_type_[sample.dtype];
    timed.product_rates[*kind].push_back(point);
    timed.all_product_rates.push_back(point);
}

void Timings::add(std::span<const topologies::OperatorSample> samples) {
    std::map<std::pair<DType, OpKind>, std::vector<CurvePoint>> over_bytes;
    std::map<std::tuple<DType, OpKind, std::int64_t>, std::vector<CurvePoint>> over_sequence;
    for (const topologies::OperatorSample& sample : samples) {
        const std::optional<OpKind> kind = models::op_kind_named(sample.op);
        if (!kind || sample.seconds <= 0) continue;
        if (is_attention(*kind)) {
            if (sample.sequence <= 0 || sample.flops <= 0) continue;
            over_sequence[{sample.dtype, *kind, sample.head_dim}].push_back(
                {static_cast<double>(sample.sequence), sample.seconds / sample.flops});
        } else if (sample.bytes > 0) {
            over_bytes[{sample.dtype, *kind}].push_back({sample.bytes, sample.seconds});
        }
    }
    for (auto& [key, points] : over_bytes) {
        by_type_[key.first].seconds_over_bytes[key.second] = make_curve(std::move(points));
    }
    for (auto& [key, points] : over_sequence) {
        const auto& [dtype, kind, head_dim] = key;
        by_type_[dtype].attention[kind].push_back({log_of(head_dim), make_curve(std::move(points))});
    }
}

template <typename Value, typename Pick>
const std::vector<Value>* Timings::first_of(DType dtype, const Pick& pick) const {
    const auto own = by_type_.find(dtype);
    if (own != by_type_.end() && !pick(own->second).empty()) return &pick(own->second);
    for (const auto& [other, timed] : by_type_) {
        if (!pick(timed).empty()) return &pick(timed);
    }
    return nullptr;
}

bool Timings::has_products() const {
    return std::any_of(by_type_.begin(), by_type_.end(),
                       [](const auto& entry) { return !entry.second.all_product_rates.empty(); });
}

bool Timings::has(OpKind kind, DType dtype) const {
    const auto own = by_type_.find(dtype);
    if (own == by_type_.end()) return false;
    return !own->second.product_rates[kind].empty() || !own->second.seconds_over_bytes[kind].empty() ||
           !own->second.attention[kind].empty();
}

const std::vector<ShapePoint>& Timings::product_rates(OpKind kind, DType dtype) const {
    const auto rates_in = [&](const OfType& timed) -> const std::vector<ShapePoint>& {
        const std::vector<ShapePoint>& own = timed.product_rates[kind];
        if (!own.empty()) return own;
        const std::optional<OpKind> like = models::row_of(kind).timed_as;
        if (like && !timed.product_rates[*like].empty()) return timed.product_rates[*like];
        return timed.all_product_rates;
    };
    static const std::vector<ShapePoint> none;
    const std::vector<ShapePoint>* rates = first_of<ShapePoint>(dtype, rates_in);
    return rates != nullptr ? *rates : none;
}

const std::vector<CurvePoint>* Timings::attention(OpKind kind, DType dtype, std::int64_t head_dim) const {
    const std::vector<HeadCurve>* curves = first_of<HeadCurve>(
        dtype, [&](const OfType& timed) -> const std::vector<HeadCurve>& { return timed.attention[kind]; });
    if (curves == nullptr) return nullptr;
    const auto distance = [wanted = log_of(head_dim)](const HeadCurve& curve) {
        return std::abs(curve.log_head_dim - wanted);
    };
    const auto nearest = std::min_element(curves->begin(), curves->end(), [&](const HeadCurve& a, const HeadCurve& b) {
        return distance(a) < distance(b);
    });
    return &nearest->seconds_per_flop;
}

const std::vector<CurvePoint>* Timings::seconds_over_bytes(OpKind kind, DType dtype) const {
    return first_of<CurvePoint>(
        dtype, [&](const OfType& timed) -> const std::vector<CurvePoint>& { return timed.seconds_over_bytes[kind]; });
}

}  // namespace orrery::sim
