#include "sim/cost/roofline_cost.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>
#include <set>

namespace orrery::sim {

namespace {

using models::Operator;
using models::OpKind;

std::size_t index_of(OpKind kind) {
    return static_cast<std::size_t>(kind);
}

std::optional<OpKind> kind_named(const std::string& name) {
    for (int i = 0; i < models::kOpKindCount; ++i) {
        if (models::name_of(static_cast<OpKind>(i)) == name) return static_cast<OpKind>(i);
    }
    return std::nullopt;
}

double tiles_over(std::int64_t length, std::int64_t tile) {
    const std::int64_t tiles = (length + tile - 1) / tile;
    return static_cast<double>(tiles);
}

std::array<double, 3> log_shape(std::int64_t m, std::int64_t n, std::int64_t k) {
    const auto log_of = [](std::int64_t size) {
        return std::log(static_cast<double>(std::max<std::int64_t>(size, 1)));
    };
    return {log_of(m), log_of(n), log_of(k)};
}

}  // namespace

ProductShape product_shape(const Operator& op) {
    if (op.kind == OpKind::linear_backward_input) return {op.rows, op.k, op.n};
    if (op.kind == OpKind::linear_backward_weight) return {op.n, op.k, op.rows};
    return {op.rows, op.n, op.k};
}

double matmul_efficiency(const topologies::DeviceProfile& device, const ProductShape& shape) {
    const double plateau = device.matmul_efficiency.value;
    if (device.compute_units <= 0 || device.tile_m <= 0 || device.tile_n <= 0) return plateau;
    const double tiles_m = tiles_over(shape.m, device.tile_m);
    const double tiles_n = tiles_over(shape.n, device.tile_n);
    const double tiles = tiles_m * tiles_n;
    if (tiles <= 0 || shape.k <= 0) return plateau;
    const auto units = static_cast<double>(device.compute_units);
    const double tile_quantisation = (static_cast<double>(shape.m) / (tiles_m * static_cast<double>(device.tile_m))) *
                                     (static_cast<double>(shape.n) / (tiles_n * static_cast<double>(device.tile_n)));
    const double wave_quantisation = tiles / (std::ceil(tiles / units) * units);
    const auto k = static_cast<double>(shape.k);
    return plateau * tile_quantisation * wave_quantisation * (k / (k + kHalfRateReductionLength));
}

RooflineCost::RooflineCost(const topologies::DeviceProfile& device, DType dtype)
    : device_(device),
      peak_flops_per_s_(device.peak_flops_per_s(dtype)),
      memory_bytes_per_s_(device.memory_bandwidth_gb_per_s.value * kGigabyte * device.memory_efficiency.value) {
    ORRERY_CHECK(peak_flops_per_s_ > 0 && memory_bytes_per_s_ > 0 && device_.matmul_efficiency.value > 0,
                 "the device profile '" + device.name + "' has a rate that is not positive");
    for (const topologies::MatmulSample& sample : device_.matmul_samples) {
        const std::optional<OpKind> kind = kind_named(sample.op);
        if (!kind || sample.seconds <= 0) continue;
        const double flops =
            2.0 * static_cast<double>(sample.m) * static_cast<double>(sample.n) * static_cast<double>(sample.k);
        const ShapePoint point{log_shape(sample.m, sample.n, sample.k), flops / sample.seconds};
        product_rates_[index_of(*kind)].push_back(point);
        all_product_rates_.push_back(point);
    }
    std::array<std::vector<CurvePoint>, models::kOpKindCount> over_bytes;
    std::map<std::pair<std::size_t, std::int64_t>, std::vector<CurvePoint>> over_sequence;
    for (const topologies::OperatorSample& sample : device_.operator_samples) {
        const std::optional<OpKind> kind = kind_named(sample.op);
        if (!kind || sample.seconds <= 0) continue;
        const std::size_t index = index_of(*kind);
        if (*kind == OpKind::attention_forward || *kind == OpKind::attention_backward) {
            if (sample.sequence <= 0 || sample.flops <= 0) continue;
            over_sequence[{index, sample.head_dim}].push_back(
                {static_cast<double>(sample.sequence), sample.seconds / sample.flops});
        } else if (sample.bytes > 0) {
            over_bytes[index].push_back({sample.bytes, sample.seconds});
        }
    }
    for (std::size_t i = 0; i < over_bytes.size(); ++i) seconds_over_bytes_[i] = make_curve(std::move(over_bytes[i]));
    for (auto& [key, points] : over_sequence) {
        attention_[key.first].push_back(
            {std::log(static_cast<double>(std::max<std::int64_t>(key.second, 1))), make_curve(std::move(points))});
    }
}

double RooflineCost::memory_seconds(const Operator& op) const {
    return (op.bytes_read + op.bytes_written) / memory_bytes_per_s_;
}

double RooflineCost::matmul_seconds(const Operator& op) const {
    const std::vector<ShapePoint>& own = product_rates_[index_of(op.kind)];
    const std::vector<ShapePoint>& rates = own.empty() ? all_product_rates_ : own;
    if (!rates.empty()) return op.flops / interpolate_shapes(rates, log_shape(op.rows, op.n, op.k));
    const double rate = peak_flops_per_s_ * matmul_efficiency(device_, product_shape(op));
    return std::max(op.flops / rate, memory_seconds(op));
}

double RooflineCost::attention_seconds(const Operator& op) const {
    const std::vector<HeadCurve>& curves = attention_[index_of(op.kind)];
    if (curves.empty()) {
        const double rate = peak_flops_per_s_ * device_.matmul_efficiency.value * kAttentionShareOfPlateau;
        return std::max(op.flops / rate, memory_seconds(op));
    }
    const double wanted = std::log(static_cast<double>(std::max<std::int64_t>(op.head_dim, 1)));
    const HeadCurve* nearest = &curves.front();
    for (const HeadCurve& curve : curves) {
        if (std::abs(curve.log_head_dim - wanted) < std::abs(nearest->log_head_dim - wanted)) nearest = &curve;
    }
    return op.flops * interpolate_clamped(nearest->seconds_per_flop, static_cast<double>(op.sequence));
}

double RooflineCost::operator_seconds(const Operator& op) const {
    if (op.is_matmul()) return matmul_seconds(op);
    if (op.is_attention()) return attention_seconds(op);
    const std::vector<CurvePoint>& curve = seconds_over_bytes_[index_of(op.kind)];
    if (curve.empty()) return memory_seconds(op);
    const double bytes = op.bytes_read + op.bytes_written;
    return bytes > 0 ? interpolate_growing(curve, bytes) : 0.0;
}

Picoseconds RooflineCost::instruction_time(const InstructionContext& where) const {
    const program::Instruction& instruction = where.instruction_here();
    const program::Body& body = where.body_here();
    double seconds = 0;
    for (std::int32_t i = 0; i < instruction.operator_count; ++i) {
        seconds += operator_seconds(body.operators[static_cast<std::size_t>(instruction.first_operator + i)]);
    }
    return picoseconds_from_seconds(seconds);
}

std::string RooflineCost::assumption(OpKind kind) const {
    const std::size_t index = index_of(kind);
    const std::string who = "cost of " + std::string(models::name_of(kind)) + " on " + device_.name + ": ";
    Operator op;
    op.kind = kind;
    if (op.is_matmul()) {
        if (!product_rates_[index].empty()) return "";
        if (!all_product_rates_.empty()) return who + "no timing of its own, taken from other matrix products";
        return device_.matmul_efficiency.kind == topologies::Provenance::fallback
                   ? who + "the share of peak that large products reach is assumed"
                   : "";
    }
    if (op.is_attention()) {
        return attention_[index].empty() ? who + "no timing, taken as a fixed share of the rate of large products" : "";
    }
    if (!seconds_over_bytes_[index].empty()) return "";
    if (!device_.operator_samples.empty()) return who + "no timing, taken from the memory bandwidth";
    return device_.memory_efficiency.kind == topologies::Provenance::fallback
               ? who + "the share of memory bandwidth that is reached is assumed"
               : "";
}

std::vector<std::string> RooflineCost::notes(const program::Program& program) const {
    std::array<bool, models::kOpKindCount> used{};
    for (const program::Body& body : program.bodies) {
        for (const Operator& op : body.operators) used[index_of(op.kind)] = true;
    }
    std::set<std::string> lines;
    for (int i = 0; i < models::kOpKindCount; ++i) {
        if (!used[static_cast<std::size_t>(i)]) continue;
        std::string line = assumption(static_cast<OpKind>(i));
        if (!line.empty()) lines.insert(std::move(line));
    }
    return {lines.begin(), lines.end()};
}

}  // namespace orrery::sim
