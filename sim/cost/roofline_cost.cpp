#include "sim/cost/roofline_cost.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include "core/error.h"

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

std::array<double, 3> log_shape(std::int64_t m, std::int64_t n, std::int64_t k) {
    const auto log_of = [](std::int64_t size) {
        return std::log(static_cast<double>(std::max<std::int64_t>(size, 1)));
    };
    return {log_of(m), log_of(n), log_of(k)};
}

/// The dense product of which an expert product is a group.
OpKind dense_sibling(OpKind kind) {
    switch (kind) {
        case OpKind::expert_linear_backward_input:
            return OpKind::linear_backward_input;
        case OpKind::expert_linear_backward_weight:
            return OpKind::linear_backward_weight;
        default:
            return OpKind::linear_forward;
    }
}

/// Where the timings of matrix products lie, by which all products are looked up: rows, n and k as the dense operator
/// has them, of one group; of a batched product the shape itself.
std::array<double, 3> coordinates(const Operator& op, const ProductShape& shape) {
    if (op.is_matmul()) return log_shape(op.rows, op.n, op.k);
    if (op.kind == OpKind::expert_linear_backward_input) return log_shape(shape.m, shape.k, shape.n);
    if (op.kind == OpKind::expert_linear_backward_weight) return log_shape(shape.k, shape.m, shape.n);
    return log_shape(shape.m, shape.n, shape.k);
}

bool is_copy(OpKind kind) {
    return kind == OpKind::copy_to_host || kind == OpKind::copy_from_host;
}

bool is_product(OpKind kind) {
    Operator op;
    op.kind = kind;
    return op.is_matmul() || op.is_expert_matmul() || op.is_attention_product();
}

}  // namespace

RooflineCost::RooflineCost(const topologies::ClusterSpec& cluster)
    : cluster_(cluster),
      memory_bytes_per_s_(device().memory_bandwidth_gb_per_s.value * kGigabyte * device().memory_efficiency.value) {
    ORRERY_CHECK(memory_bytes_per_s_ > 0 && device().matmul_efficiency.value > 0,
                 "the device profile '" + device().name + "' has a rate that is not positive");
    for (const topologies::PeakRate& peak : device().peaks) {
        ORRERY_CHECK(peak.tflops.value > 0,
                     "the device profile '" + device().name + "' has a peak that is not positive");
        peaks_[peak.dtype] = device().peak_flops_per_s(peak.dtype);
    }
    for (const topologies::MatmulSample& sample : device().matmul_samples) {
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
    for (const topologies::OperatorSample& sample : device().operator_samples) {
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

double RooflineCost::peak_flops_per_s(DType math) const {
    const auto peak = peaks_.find(math);
    return peak != peaks_.end() ? peak->second : device().peak_flops_per_s(math);
}

const std::vector<ShapePoint>& RooflineCost::rates_for(OpKind kind) const {
    const std::vector<ShapePoint>& own = product_rates_[index_of(kind)];
    if (!own.empty()) return own;
    const std::vector<ShapePoint>& dense = product_rates_[index_of(dense_sibling(kind))];
    Operator op;
    op.kind = kind;
    return !op.is_matmul() && !dense.empty() ? dense : all_product_rates_;
}

double RooflineCost::product_seconds(const Operator& op, const std::vector<ProductShape>& shapes) const {
    const double peak = peak_flops_per_s(op.math);
    const std::vector<ShapePoint>& rates = rates_for(op.kind);
    double seconds = 0;
    for (const ProductShape& shape : shapes) {
        const double rate = rates.empty() ? peak * matmul_efficiency(device(), shape)
                                          : interpolate_shapes(rates, coordinates(op, shape));
        seconds += op.flops / static_cast<double>(shapes.size()) / rate;
    }
    return rates.empty() ? std::max(seconds, memory_seconds(op)) : seconds;
}

double RooflineCost::attention_seconds(const Operator& op) const {
    const double peak = peak_flops_per_s(op.math);
    const std::vector<HeadCurve>& curves = attention_[index_of(op.kind)];
    if (curves.empty()) {
        const double rate = peak * device().matmul_efficiency.value * kAttentionShareOfPlateau;
        return std::max(op.flops / rate, memory_seconds(op));
    }
    const double wanted = std::log(static_cast<double>(std::max<std::int64_t>(op.head_dim, 1)));
    const HeadCurve* nearest = &curves.front();
    for (const HeadCurve& curve : curves) {
        if (std::abs(curve.log_head_dim - wanted) < std::abs(nearest->log_head_dim - wanted)) nearest = &curve;
    }
    // Timed on squares: a rectangle of queries and keys is taken for the square of its area.
    const auto keys = static_cast<double>(op.sequence);
    const double length = op.queries > 0 && op.queries != op.sequence
                              ? std::sqrt(static_cast<double>(op.queries)) * std::sqrt(keys)
                              : keys;
    return op.flops * interpolate_clamped(nearest->seconds_per_flop, length);
}

double RooflineCost::copy_seconds(const Operator& op, std::int64_t active_devices) const {
    // Throws when there is no link at all.
    const BytesPerSecond bandwidth = topologies::host_copy_bandwidth(cluster_, active_devices);
    const bool own_link = cluster_.host_memory_link != topologies::LinkProfile{};
    const topologies::LinkProfile& link = own_link ? cluster_.host_memory_link : cluster_.host_link;
    // What is read at one end is written at the other; either may be stated.
    const double bytes = std::max(op.bytes_read, op.bytes_written);
    return link.latency_us.value * 1e-6 + bytes / bandwidth.value();
}

double RooflineCost::host_seconds(const Operator& op, std::int64_t active_devices) const {
    if (op.kind == OpKind::host_wait) return 0;
    const double nominal = cluster_.host_memory_bandwidth_gb_per_s.value * kGigabyte;
    if (nominal <= 0) {
        throw InputError("cluster " + cluster_.name, "host_memory_bandwidth_gb_per_s", "none",
                         "the bandwidth of a node's memory, in which its processors work on offloaded states");
    }
    return (op.bytes_read + op.bytes_written) * static_cast<double>(active_devices) / (nominal * kHostMemoryEfficiency);
}

double RooflineCost::operator_seconds(const Operator& op) const {
    if (op.kind == OpKind::host_wait) return 0;
    if (is_product(op.kind)) return product_seconds(op, product_shapes(op));
    if (op.is_attention()) return attention_seconds(op);
    if (is_copy(op.kind) && !device().host_runs_compute) return copy_seconds(op, cluster_.devices_per_node);
    const std::vector<CurvePoint>& curve = seconds_over_bytes_[index_of(op.kind)];
    if (curve.empty()) return memory_seconds(op);
    const double bytes = op.bytes_read + op.bytes_written;
    return bytes > 0 ? interpolate_growing(curve, bytes) : 0.0;
}

std::int64_t RooflineCost::active_devices(const program::Program& program) const {
    if (program.plan == nullptr) return cluster_.devices_per_node;
    return std::clamp<std::int64_t>(program.world_size(), 1, cluster_.devices_per_node);
}

Picoseconds RooflineCost::instruction_time(const InstructionContext& where) const {
    const program::Instruction& instruction = where.instruction_here();
    const program::Body& body = where.body_here();
    const bool on_host = instruction.stream == program::Stream::host && !device().host_runs_compute;
    const std::int64_t active = active_devices(where.program);
    double seconds = 0;
    for (std::int32_t i = 0; i < instruction.operator_count; ++i) {
        const Operator& op = body.operators[static_cast<std::size_t>(instruction.first_operator + i)];
        if (on_host) {
            seconds += host_seconds(op, active);
        } else if (is_copy(op.kind) && !device().host_runs_compute) {
            seconds += copy_seconds(op, active);
        } else {
            seconds += operator_seconds(op);
        }
    }
    return picoseconds_from_seconds(seconds);
}

std::string RooflineCost::product_assumption(OpKind kind) const {
    if (!product_rates_[index_of(kind)].empty()) return "";
    if (!all_product_rates_.empty()) return "no timing of its own, taken from other matrix products";
    return device().matmul_efficiency.kind == topologies::Provenance::fallback
               ? "the share of peak that large products reach is assumed"
               : "";
}

std::string RooflineCost::assumption(OpKind kind) const {
    const std::size_t index = index_of(kind);
    if (kind == OpKind::host_wait) return "";
    if (is_product(kind)) return product_assumption(kind);
    if (kind == OpKind::attention_forward || kind == OpKind::attention_backward) {
        return attention_[index].empty() ? "no timing, taken as a fixed share of the rate of large products" : "";
    }
    if (!seconds_over_bytes_[index].empty()) return "";
    if (kind == OpKind::router_forward || kind == OpKind::router_backward) {
        return "no timing, taken from the memory bandwidth without the sorting of tokens";
    }
    if (!device().operator_samples.empty()) return "no timing, taken from the memory bandwidth";
    return device().memory_efficiency.kind == topologies::Provenance::fallback
               ? "the share of memory bandwidth that is reached is assumed"
               : "";
}

std::vector<std::string> RooflineCost::host_assumptions(bool copies, bool computes, std::int64_t active_devices) const {
    std::vector<std::string> lines;
    const std::string devices = std::to_string(active_devices) + " devices of a node are taken to ";
    const std::string where = " on " + cluster_.name + ": ";
    if (copies) {
        lines.push_back("cost of copies to and from host memory" + where + "the " + devices + "copy at the same time");
        const bool own_link = cluster_.host_memory_link != topologies::LinkProfile{};
        const topologies::LinkProfile& link = own_link ? cluster_.host_memory_link : cluster_.host_link;
        if (link.efficiency.kind == topologies::Provenance::fallback) {
            lines.push_back("cost of copies to and from host memory" + where + "the share of " + link.name +
                            " that is reached is assumed");
        }
    }
    if (computes) {
        lines.push_back("cost of the host's own work" + where +
                        "taken from a fixed share of host memory bandwidth; the " + devices +
                        "use it at the same time");
    }
    return lines;
}

std::vector<std::string> RooflineCost::notes(const program::Program& program) const {
    std::array<bool, models::kOpKindCount> used{};
    std::set<DType> math;
    bool copies = false, computes = false, rectangles = false;
    for (const program::Body& body : program.bodies) {
        std::vector<bool> on_host(body.operators.size());
        for (const program::Instruction& instruction : body.instructions) {
            if (instruction.stream != program::Stream::host || device().host_runs_compute) continue;
            for (std::int32_t i = 0; i < instruction.operator_count; ++i) {
                on_host.at(static_cast<std::size_t>(instruction.first_operator + i)) = true;
            }
        }
        for (std::size_t i = 0; i < body.operators.size(); ++i) {
            const Operator& op = body.operators[i];
            if (on_host[i]) {
                computes = computes || op.kind != OpKind::host_wait;
                continue;
            }
            if (is_copy(op.kind) && !device().host_runs_compute) {
                copies = true;
                continue;
            }
            used[index_of(op.kind)] = true;
            if (is_product(op.kind)) math.insert(op.math);
            rectangles = rectangles || (op.is_attention() && !attention_[index_of(op.kind)].empty() && op.queries > 0 &&
                                        op.queries != op.sequence);
        }
    }
    std::set<std::string> lines;
    for (int i = 0; i < models::kOpKindCount; ++i) {
        if (!used[static_cast<std::size_t>(i)]) continue;
        const auto kind = static_cast<OpKind>(i);
        const std::string line = assumption(kind);
        if (!line.empty()) {
            lines.insert("cost of " + std::string(models::name_of(kind)) + " on " + device().name + ": " + line);
        }
    }
    if (all_product_rates_.empty() && !device().host_runs_compute) {
        for (const DType type : math) {
            if (type == DType::bf16 || type == DType::fp16) continue;
            lines.insert("cost of products in " + std::string(orrery::name_of(type)) + " on " + device().name +
                         ": the share of peak that they reach is that of 16-bit products");
        }
    }
    if (rectangles) {
        lines.insert("cost of attention with fewer queries than keys on " + device().name +
                     ": timed on squares, taken at the square of the same area");
    }
    for (std::string& line : host_assumptions(copies, computes, active_devices(program))) lines.insert(std::move(line));
    return {lines.begin(), lines.end()};
}

}  // namespace orrery::sim
