// The fields of devices and links in a file (core/json_fields.h). Private to this folder and the tests of schemas.
#pragma once

#include <string>
#include <vector>

#include "core/json_fields.h"
#include "topologies/nccl_figures.h"
#include "topologies/profile_names.h"

namespace orrery::topologies {

inline constexpr NumberRange kPositiveFraction{0.0, 1.0, true};
inline constexpr NumberRange kLatency{0, 1e6};  // at most a second
inline constexpr IntegerRange kComputeCapability{1, 1000};
inline constexpr IntegerRange kChannels{1, 64};

/// A value with its kind and a source, which is not empty.
void read_field(const JsonReader& reader, const std::string& key, Figure& figure, NumberRange range);
[[nodiscard]] JsonValue field_json(const Figure& figure);

/// Any type but int64, which is only used for indices.
struct Arithmetic {};
void read_field(const JsonReader& reader, const std::string& key, DType& dtype, const Arithmetic& allowed);

/// Objects with the types as keys.
void read_field(const JsonReader& reader, const std::string& key, std::vector<PeakRate>& peaks);
void read_field(const JsonReader& reader, const std::string& key, std::vector<NarrowPlateau>& plateaus);
[[nodiscard]] JsonValue field_json(const std::vector<PeakRate>& peaks);
[[nodiscard]] JsonValue field_json(const std::vector<NarrowPlateau>& plateaus);

void check_fields(const JsonReader& reader, const NcclProfile& nccl);
void check_fields(const JsonReader& reader, const ProductFigures& products);
void check_fields(const JsonReader& reader, const DeviceProfile& device);

template <Either<MatmulSample> Object>
void visit_fields(Object& s, auto&& visit) {
    visit("op", s.op, kRequired);
    visit("m", s.m, kRequired, kPositiveInteger);
    visit("n", s.n, kRequired, kPositiveInteger);
    visit("k", s.k, kRequired, kPositiveInteger);
    visit("dtype", s.dtype, Presence{}, Arithmetic{});
    visit("bias", s.bias, kIfChanged);
    visit("seconds", s.seconds, kRequired, kPositive);
}

template <Either<OperatorSample> Object>
void visit_fields(Object& s, auto&& visit) {
    visit("op", s.op, kRequired);
    visit("bytes", s.bytes, kRequired, kNotNegative);
    visit("flops", s.flops, kRequired, kNotNegative);
    visit("rows", s.rows, kRequired, kCount);
    visit("head_dim", s.head_dim, kRequired, kCount);
    visit("sequence", s.sequence, kRequired, kCount);
    visit("n", s.n, kIfChanged, kCount);
    visit("k", s.k, kIfChanged, kCount);
    visit("heads", s.heads, kIfChanged, kCount);
    visit("kv_heads", s.kv_heads, kIfChanged, kCount);
    visit("elements", s.elements, kIfChanged, kCount);
    visit("dtype", s.dtype, Presence{}, Arithmetic{});
    visit("seconds", s.seconds, kRequired, kPositive);
}

template <Either<NcclProfile::Ring> Object>
void visit_fields(Object& r, auto&& visit) {
    visit("within", r.within, kRequired);
    visit("share_of_port", r.share_of_port, kRequired, kPositiveFraction);
}

template <Either<NcclProfile> Object>
void visit_fields(Object& n, auto&& visit) {
    visit("channels", n.channels, kRequired, kChannels);
    visit("ring", n.ring, kRequired);
    for (const NcclFigure& figure : kNcclFigures) {
        visit(figure.key, n.*figure.member, figure.required ? kRequired : kIfChanged,
              figure.is_share ? kPositiveFraction : kPositive);
    }
}

template <Either<ProductFigures> Object>
void visit_fields(Object& p, auto&& visit) {
    visit("wave_share", p.wave_share, kRequired, kNotNegative);
    visit("tile_share", p.tile_share, kRequired, kNotNegative);
    visit("fill_length", p.fill_length, kRequired, kNotNegative);
    visit("kernel_us", p.kernel_us, kRequired, kNotNegative);
    visit("power_slope", p.power_slope, kRequired, kNotNegative);
}

template <Either<CollectiveKernels> Object>
void visit_fields(Object& k, auto&& visit) {
    visit("compute_units", k.compute_units, kRequired, kNotNegative);
    visit("compute_units_one_member", k.compute_units_one_member, kRequired, kNotNegative);
    visit("compute_units_send", k.compute_units_send, kRequired, kNotNegative);
    visit("memory_passes", k.memory_passes, kRequired, kNotNegative);
}

/// host_runs_compute is known before the numbers that depend on it are read.
template <Either<DeviceProfile> Object>
void visit_fields(Object& d, auto&& visit) {
    const DependentRange units{d.host_runs_compute ? kCount : kPositiveInteger, kCount};
    const DependentRange cores{d.host_runs_compute ? kPositiveInteger : kCount, kCount};
    visit("name", d.name, kRequired);
    visit("compute_capability", d.compute_capability, kIfChanged, kComputeCapability);
    visit("narrow_matmul_efficiency", d.narrow_matmul_efficiency, kIfChanged);
    visit("usable_memory_gib", d.usable_memory_gib, kIfChanged, kPositive);
    visit("power_limit_w", d.power_limit_w, kIfChanged, kPositive);
    visit("peak_tflops", d.peaks, kRequired);
    visit("memory_bandwidth_gb_per_s", d.memory_bandwidth_gb_per_s, kRequired, kPositive);
    visit("memory_capacity_gib", d.memory_capacity_gib, kRequired, kPositive);
    visit("context_gib", d.context_gib, kRequired, kNotNegative);
    visit("matmul_efficiency", d.matmul_efficiency, kRequired, kPositiveFraction);
    visit("memory_efficiency", d.memory_efficiency, kRequired, kPositiveFraction);
    visit("launch_us", d.launch_us, kRequired, kNotNegative);
    visit("compute_units", d.compute_units, kRequired, units);
    visit("tile_m", d.tile_m, kRequired, units);
    visit("tile_n", d.tile_n, kRequired, units);
    visit("host_runs_compute", d.host_runs_compute, kRequired);
    visit("cores_per_node", d.cores_per_node, kRequired, cores);
    visit("matmul_samples", d.matmul_samples);
    visit("operator_samples", d.operator_samples);
    visit("nccl", d.nccl);
    visit("products", d.products);
    visit("collective_kernels", d.collective_kernels);
}

template <Either<NcclNetwork> Object>
void visit_fields(Object& n, auto&& visit) {
    visit("step_us", n.step_us, kRequired, kPositive);
    visit("tree_fill", n.tree_fill, kRequired, kPositive);
    visit("plugin_tuner", n.plugin_tuner, kIfChanged);
}

template <Either<LinkProfile> Object>
void visit_fields(Object& l, auto&& visit) {
    visit("name", l.name, kRequired);
    visit("kind", l.kind);
    visit("bandwidth_gb_per_s_per_direction", l.bandwidth_gb_per_s_per_direction, kRequired, kPositive);
    visit("latency_us", l.latency_us, kRequired, kLatency);
    visit("efficiency", l.efficiency, kRequired, kPositiveFraction);
    visit("nccl", l.nccl);
}

/// Read the reader's object and refuse unknown keys.
[[nodiscard]] LinkProfile read_link(const JsonReader& reader);
[[nodiscard]] DeviceProfile read_device(const JsonReader& reader);

/// An object with its figures, or a name in the catalogue.
void read_field(const JsonReader& reader, const std::string& key, LinkProfile& link);
void read_field(const JsonReader& reader, const std::string& key, DeviceProfile& device);

}  // namespace orrery::topologies
