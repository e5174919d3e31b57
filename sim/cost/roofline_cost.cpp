#include "sim/cost/roofline_cost.h"

#include <algorithm>
#include <cmath>
#include <set>
#include <utility>

#include "core/error.h"
#include "sim/program/work_rates.h"

namespace orrery::sim {

namespace {

using models::Operator;
using models::OpKind;

std::array<double, 3> log_shape(std::int64_t m, std::int64_t n, std::int64_t k) {
    const auto log_of = [](std::int64_t size) {
        return std::log(static_cast<double>(std::max<std::int64_t>(size, 1)));
    };
    return {log_of(m), log_of(n), log_of(k)};
}

/// Coordinates under which timings of GEMMs are stored and looked up: rows, n and k of the dense operator, for one
/// group of experts; for a batched product its shape.
std::array<double, 3> coordinates(const Operator& op, const models::ProductShape& shape) {
    if (op.is_matmul()) return log_shape(op.whole_rows(), op.n, op.k);
    if (op.kind == OpKind::expert_linear_backward_input) return log_shape(shape.m, shape.k, shape.n);
    if (op.kind == OpKind::expert_linear_backward_weight) return log_shape(shape.k, shape.m, shape.n);
    return log_shape(shape.m, shape.n, shape.k);
}

/// Keys that one query attends to before the causal mask: a document, a window, or the whole sequence.
std::int64_t attended_positions(const Operator& op) {
    return op.reach > 0 ? op.reach : op.sequence;
}

/// Share of the plateau of large GEMMs (kAttentionShareOfPlateau).
double attention_share(const Operator& op) {
    const auto filled = [](std::int64_t length, double fill) {
        const auto all = static_cast<double>(std::max<std::int64_t>(length, 1));
        return all / (all + fill);
    };
    const double share = kAttentionShareOfPlateau * filled(attended_positions(op), kAttentionFillKeys) *
                         filled(op.head_dim, kAttentionFillWidth);
    return op.kind == OpKind::attention_backward ? share * kAttentionBackwardShare : share;
}

bool is_product(OpKind kind) {
    return models::row_of(kind).products != nullptr;
}

}  // namespace

RooflineCost::RooflineCost(const topologies::ClusterSpec& cluster, program::Rates rates)
    : cluster_(cluster),
      rates_(std::move(rates)),
      timings_(cluster.device),
      memory_bytes_per_s_(device().memory_bandwidth_gb_per_s.value * kGigabyte * device().memory_efficiency.value) {
    ORRERY_CHECK(memory_bytes_per_s_ > 0 && device().matmul_efficiency.value > 0,
                 "the device profile '" + device().name + "' has a rate that is not positive");
    for (const topologies::PeakRate& peak : device().peaks) {
        ORRERY_CHECK(peak.tflops.value > 0,
                     "the device profile '" + device().name + "' has a peak that is not positive");
        peaks_[peak.dtype] = device().peak_flops_per_s(peak.dtype);
    }
}

double RooflineCost::memory_seconds(const Operator& op) const {
    return (op.bytes_read + op.bytes_written) / memory_bytes_per_s_;
}

double RooflineCost::peak_flops_per_s(DType math) const {
    const auto peak = peaks_.find(math);
    return peak != peaks_.end() ? peak->second : device().peak_flops_per_s(math);
}

double RooflineCost::product_seconds(const Operator& op, const models::ProductShapes& shapes) const {
    const double peak = peak_flops_per_s(op.math);
    const std::vector<ShapePoint>& rates = timings_.product_rates(op.kind, op.math);
    double seconds = 0;
    for (const models::ProductShape& shape : shapes) {
        const double rate = rates.empty() ? peak * matmul_efficiency(device(), shape, op.math)
                                          : interpolate_shapes(rates, coordinates(op, shape));
        seconds += op.flops / static_cast<double>(shapes.size()) / rate;
    }
    return seconds;
}

double RooflineCost::attention_seconds(const Operator& op) const {
    const double peak = peak_flops_per_s(op.math);
    const std::vector<CurvePoint>* curve = timings_.attention(op.kind, op.math, op.head_dim);
    if (curve == nullptr) {
        const double share = device().host_runs_compute ? kAttentionShareOfHost : attention_share(op);
        return op.flops / (peak * device().matmul_efficiency.value * share);
    }
    // Timings are of squares. A rectangle of queries and keys counts as the square of equal area; a band, or blocks
    // along the diagonal, as the square whose queries attend to as many keys.
    const auto reach = static_cast<double>(attended_positions(op));
    const double length = op.queries > 0 && op.queries != op.sequence
                              ? std::sqrt(static_cast<double>(op.queries)) * std::sqrt(reach)
                              : reach;
    return op.flops * interpolate_clamped(*curve, length);
}

/// Timings of products do not include a second result, which is as large as the first.
double RooflineCost::epilogue_seconds(const Operator& op) const {
    return op.is_fused() ? op.bytes_written / 2 / memory_bytes_per_s_ : 0;
}

/// Time of GEMMs and attention; 0 for other operators. Timings include memory time.
double RooflineCost::arithmetic_seconds(const Operator& op) const {
    if (is_product(op.kind)) return product_seconds(op, product_shapes(op));
    return op.is_attention() ? attention_seconds(op) : 0.0;
}

bool RooflineCost::has_arithmetic_timing(const Operator& op) const {
    return is_product(op.kind) ? !timings_.product_rates(op.kind, op.math).empty()
                               : timings_.attention(op.kind, op.math, op.head_dim) != nullptr;
}

double RooflineCost::copy_seconds(const Operator& op, std::int64_t active_devices) const {
    // Throws if there is no link.
    const BytesPerSecond bandwidth = topologies::host_copy_bandwidth(cluster_, active_devices);
    const bool own_link = cluster_.host_memory_link != topologies::LinkProfile{};
    const topologies::LinkProfile& link = own_link ? cluster_.host_memory_link : cluster_.host_link;
    // Bytes read at one end are written at the other; an operator may state either.
    const double bytes = std::max(op.bytes_read, op.bytes_written);
    return link.latency_us.value * 1e-6 + bytes / bandwidth.value();
}

double RooflineCost::host_seconds(const Operator& op, std::int64_t active_devices) const {
    if (op.kind == OpKind::host_wait) return 0;
    const double nominal = cluster_.host_memory_bandwidth_gb_per_s.value * kGigabyte;
    if (nominal <= 0) {
        throw InputError("cluster " + cluster_.name, "host_memory_bandwidth_gb_per_s", "none",
                         "the memory bandwidth of a node, whose processors update offloaded states");
    }
    return (op.bytes_read + op.bytes_written) * static_cast<double>(active_devices) / (nominal * kHostMemoryEfficiency);
}

double RooflineCost::rate_of(const Operator& op) const {
    // Only fused attention has rates that depend on the phase, and it has an operator kind for each phase.
    const bool backward = op.kind == OpKind::attention_backward;
    return program::factor_of(program::cell_of(op, backward ? program::Phase::backward : program::Phase::forward),
                              rates_);
}

RooflineCost::OperatorTime RooflineCost::operator_time(const Operator& op) const {
    const double arithmetic = arithmetic_seconds(op), own = seconds_of(op, arithmetic);
    return {.seconds = (own + kernel_seconds(op)) * rate_of(op),
            .on_device = op.is_copy() ? 0 : own,
            .arithmetic = arithmetic};
}

double RooflineCost::operator_seconds(const Operator& op) const {
    return operator_time(op).seconds;
}

/// Copies already pay their link's latency, and host_wait is not a kernel.
double RooflineCost::kernel_seconds(const Operator& op) const {
    if (!device().products || op.is_copy() || op.kind == OpKind::host_wait) return 0;
    return device().products->kernel_us.value * 1e-6;
}

double RooflineCost::seconds_of(const Operator& op, double arithmetic) const {
    if (op.kind == OpKind::host_wait) return 0;
    if (is_product(op.kind) || op.is_attention()) {
        return has_arithmetic_timing(op) ? arithmetic + epilogue_seconds(op) : std::max(arithmetic, memory_seconds(op));
    }
    if (op.is_copy() && !device().host_runs_compute) return copy_seconds(op, cluster_.devices_per_node);
    const std::vector<CurvePoint>* curve = timings_.seconds_over_bytes(op.kind, op.math);
    if (curve == nullptr) return memory_seconds(op);
    const double bytes = op.bytes_read + op.bytes_written;
    return bytes > 0 ? interpolate_growing(*curve, bytes) : 0.0;
}

std::int64_t RooflineCost::active_devices(const program::Program& program) const {
    if (program.plan == nullptr) return cluster_.devices_per_node;
    return std::clamp<std::int64_t>(program.world_size(), 1, cluster_.devices_per_node);
}

template <typename Visit>
void RooflineCost::for_each_operator(const InstructionContext& where, const Visit& visit) const {
    const program::Instruction& instruction = where.instruction_here();
    const program::Body& body = where.body_here();
    const bool on_host = instruction.stream == program::Stream::host && !device().host_runs_compute;
    const std::int64_t active = active_devices(where.program);
    for (std::int32_t i = 0; i < instruction.operator_count; ++i) {
        const Operator& op = body.operators[instruction.first_operator + i];
        if (on_host) {
            visit(op, OperatorTime{.seconds = host_seconds(op, active)});
        } else if (op.is_copy() && !device().host_runs_compute) {
            visit(op, OperatorTime{.seconds = copy_seconds(op, active)});
        } else {
            visit(op, operator_time(op));
        }
    }
}

InstructionCost RooflineCost::instruction_cost(const InstructionContext& where) const {
    double seconds = step_seconds(where), on_device = 0, arithmetic = 0, memory = 0;
    for_each_operator(where, [&](const Operator& op, const OperatorTime& time) {
        seconds += time.seconds;
        on_device += time.on_device;
        arithmetic += std::min(time.on_device, time.arithmetic);
        memory += std::min(time.on_device, memory_seconds(op));
    });
    InstructionCost cost{.time = picoseconds_from_seconds(seconds)};
    if (on_device > 0) cost.share = {arithmetic / on_device, memory / on_device};
    return cost;
}

void RooflineCost::add_terms(const InstructionContext& where, std::vector<TimeTerm>& terms) const {
    const program::Body& body = where.body_here();
    const bool on_host = where.instruction_here().stream == program::Stream::host && !device().host_runs_compute;
    for_each_operator(where, [&](const Operator& op, const OperatorTime& time) {
        TimeTerm term{program::cell_of(op, body.phase), time.seconds};
        if (on_host) term.cell = {.work = models::WorkClass::host, .pass = term.cell.pass};
        terms.push_back(term);
    });
    const double step = step_seconds(where);
    if (step > 0) terms.push_back({{.work = models::WorkClass::host_step}, step});
}

double RooflineCost::step_seconds() const {
    return rates_[program::RateKey::host_step_ms] * 1e-3;
}

double RooflineCost::step_seconds(const InstructionContext& where) const {
    const double seconds = step_seconds();
    const program::Body& body = where.body_here();
    if (seconds == 0 || body.phase != program::Phase::optimizer) return 0;
    const auto first =
        std::find_if(body.operators.begin(), body.operators.end(), [](const Operator& op) { return op.is_update(); });
    const auto index = program::OperatorIndex::of(first - body.operators.begin());
    const program::Instruction& instruction = where.instruction_here();
    const bool is_here =
        index >= instruction.first_operator && index < instruction.first_operator + instruction.operator_count;
    return is_here ? seconds : 0;
}

std::string RooflineCost::product_assumption(OpKind kind, DType math) const {
    if (timings_.has(kind, math)) return "";
    if (timings_.has_products()) return "no timing of its own, taken from other matrix products";
    return device().matmul_efficiency.kind == topologies::Provenance::fallback
               ? "the share of peak that large products reach is assumed"
               : "";
}

std::string RooflineCost::assumption(OpKind kind, DType math) const {
    if (kind == OpKind::host_wait) return "";
    if (is_product(kind)) return product_assumption(kind, math);
    if (timings_.has(kind, math)) return "";
    const bool is_attention = kind == OpKind::attention_forward || kind == OpKind::attention_backward;
    const bool in_another_type = is_attention ? timings_.attention(kind, math, 1) != nullptr
                                              : timings_.seconds_over_bytes(kind, math) != nullptr;
    if (in_another_type) return "no timing in " + std::string(orrery::name_of(math)) + ", taken from another type's";
    if (is_attention) return "no timing, taken as a share of the rate of large products by keys and head dimension";
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
    std::set<std::pair<OpKind, DType>> used;
    bool copies = false, computes = false, rectangles = false;
    for (const program::Body& body : program.bodies) {
        IndexedVector<program::OperatorIndex, bool> on_host(body.operators.size());
        for (const program::Instruction& instruction : body.instructions) {
            if (instruction.stream != program::Stream::host || device().host_runs_compute) continue;
            for (std::int32_t i = 0; i < instruction.operator_count; ++i) {
                on_host.at(instruction.first_operator + i) = true;
            }
        }
        for (const program::OperatorIndex i : body.operators.indices()) {
            const Operator& op = body.operators[i];
            if (on_host[i]) {
                computes = computes || op.kind != OpKind::host_wait;
                continue;
            }
            if (op.is_copy() && !device().host_runs_compute) {
                copies = true;
                continue;
            }
            used.insert({op.kind, op.math});
            rectangles = rectangles || (op.is_attention() && op.queries > 0 && op.queries != op.sequence &&
                                        timings_.attention(op.kind, op.math, op.head_dim) != nullptr);
        }
    }
    std::set<std::string> lines;
    for (const auto& [kind, math] : used) {
        const std::string line = assumption(kind, math);
        if (!line.empty()) {
            lines.insert("cost of " + std::string(models::name_of(kind)) + " on " + device().name + ": " + line);
        }
        const bool in_16_bits = math == DType::bf16 || math == DType::fp16;
        if (is_product(kind) && !in_16_bits && !timings_.has_products() && !device().host_runs_compute) {
            lines.insert("cost of products in " + std::string(orrery::name_of(math)) + " on " + device().name +
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
