#include "topologies/profile_json.h"

#include <algorithm>
#include <optional>

#include "topologies/nccl_figures.h"

namespace orrery::topologies {
namespace {

constexpr NumberRange kPositiveFraction{0.0, 1.0, true};

const std::vector<std::string>& provenance_names() {
    static const std::vector<std::string> names{"measured", "datasheet", "fitted", "fallback"};
    return names;
}

/// A type for arithmetic: any but int64, which is only used for indices.
std::optional<DType> arithmetic_named(const std::string& name) {
    const std::optional<DType> dtype = dtype_named(name);
    return dtype == DType::int64 ? std::nullopt : dtype;
}
constexpr const char* kArithmetic = "fp64, fp32, tf32, bf16, fp16, fp8, fp4, int32 or uint8";

/// Older files have no `kind`: it is then derived from the prefix of the name, as in the catalogue: "pcie-gen4-x16".
LinkMedium read_medium(const JsonReader& link, const std::string& name) {
    const std::vector<std::string>& names = link_medium_names();
    const bool has_kind = link.has("kind");
    const std::string kind = has_kind ? link.choice("kind", names) : "";
    const auto found = std::find_if(names.begin(), names.end(), [&](std::string known) {
        if (has_kind) return known == kind;
        std::replace(known.begin(), known.end(), '_', '-');
        return name.starts_with(known);
    });
    return found == names.end() ? LinkMedium::other : static_cast<LinkMedium>(found - names.begin());
}

/// Samples without a type were measured in fp32.
DType read_sample_dtype(const JsonReader& sample) {
    if (!sample.has("dtype")) return DType::fp32;
    const std::optional<DType> dtype = arithmetic_named(sample.string("dtype"));
    if (!dtype) sample.fail("dtype", kArithmetic);
    return *dtype;
}

void read_samples(const JsonReader& reader, DeviceProfile& device) {
    if (reader.has("matmul_samples")) {
        for (const JsonReader& item : reader.objects("matmul_samples")) {
            MatmulSample sample;
            sample.op = item.string("op");
            sample.m = item.integer("m", kPositiveInteger);
            sample.n = item.integer("n", kPositiveInteger);
            sample.k = item.integer("k", kPositiveInteger);
            sample.seconds = item.number("seconds", kPositive);
            sample.dtype = read_sample_dtype(item);
            item.finish();
            device.matmul_samples.push_back(std::move(sample));
        }
    }
    if (!reader.has("operator_samples")) return;
    for (const JsonReader& item : reader.objects("operator_samples")) {
        OperatorSample sample;
        sample.op = item.string("op");
        sample.bytes = item.number("bytes", kNotNegative);
        sample.flops = item.number("flops", kNotNegative);
        sample.rows = item.integer("rows", kCount);
        sample.head_dim = item.integer("head_dim", kCount);
        sample.sequence = item.integer("sequence", kCount);
        sample.seconds = item.number("seconds", kPositive);
        sample.dtype = read_sample_dtype(item);
        item.finish();
        device.operator_samples.push_back(std::move(sample));
    }
}

Json nccl_json(const NcclProfile& nccl) {
    Json json{{"channels", nccl.channels}, {"ring", Json::array()}};
    for (const NcclProfile::Ring& ring : nccl.ring) {
        json["ring"].push_back(
            Json{{"within", name_of(ring.within)}, {"share_of_port", figure_json(ring.share_of_port)}});
    }
    for (const NcclFigure& figure : kNcclFigures) {
        if (nccl.*figure.member != Figure{}) json[figure.key] = figure_json(nccl.*figure.member);
    }
    return json;
}

NodePart read_part(const JsonReader& reader) {
    std::vector<std::string> names;
    for (std::size_t i = 0; i < kNodeParts; ++i) names.push_back(name_of(static_cast<NodePart>(i)));
    const std::string chosen = reader.choice("within", names);
    return static_cast<NodePart>(std::find(names.begin(), names.end(), chosen) - names.begin());
}

NcclProfile read_nccl(const JsonReader& reader) {
    NcclProfile nccl;
    nccl.channels = reader.integer("channels", {1, 64});
    for (const JsonReader& item : reader.objects("ring")) {
        const NodePart within = read_part(item);
        if (!nccl.ring.empty() && within <= nccl.ring.back().within) {
            item.fail("within", "a wider part than the one before it");
        }
        nccl.ring.push_back({within, read_figure(item, "share_of_port", kPositiveFraction)});
        item.finish();
    }
    if (nccl.ring.empty() || nccl.ring.back().within != NodePart::node) {
        reader.fail("ring", "a list whose last entry has within = node");
    }
    for (const NcclFigure& figure : kNcclFigures) {
        if (!figure.required && !reader.has(figure.key)) continue;
        nccl.*figure.member = read_figure(reader, figure.key, figure.is_share ? kPositiveFraction : kPositive);
    }
    if (nccl.ll_channel_gb_per_s.value <= 0 && nccl.ll_share.value <= 0) {
        reader.fail("ring", "ll_channel_gb_per_s or ll_share next to it, which limits LL");
    }
    if ((nccl.nvls_share.value > 0) != (nccl.nvls_rounds.value > 0)) {
        reader.fail(nccl.nvls_share.value > 0 ? "nvls_share" : "nvls_rounds", "nvls_share and nvls_rounds, or neither");
    }
    reader.finish();
    return nccl;
}

struct ProductFigure {
    const char* key;
    Figure ProductFigures::*member;
};
constexpr std::array<ProductFigure, 5> kProductFigures{{
    {"wave_share", &ProductFigures::wave_share},
    {"tile_share", &ProductFigures::tile_share},
    {"fill_length", &ProductFigures::fill_length},
    {"kernel_us", &ProductFigures::kernel_us},
    {"power_slope", &ProductFigures::power_slope},
}};

Json products_json(const ProductFigures& products) {
    Json json = Json::object();
    for (const ProductFigure& figure : kProductFigures) json[figure.key] = figure_json(products.*figure.member);
    return json;
}

ProductFigures read_products(const JsonReader& reader) {
    ProductFigures products;
    for (const ProductFigure& figure : kProductFigures) {
        products.*figure.member = read_figure(reader, figure.key, kNotNegative);
    }
    if (products.wave_share.value > 1) reader.fail("wave_share", "a share of at most 1");
    if (products.tile_share.value <= 0 || products.tile_share.value > 1) {
        reader.fail("tile_share", "a share above 0 and at most 1");
    }
    reader.finish();
    return products;
}

struct KernelFigure {
    const char* key;
    Figure CollectiveKernels::*member;
};
constexpr std::array<KernelFigure, 4> kKernelFigures{{
    {"compute_units", &CollectiveKernels::compute_units},
    {"compute_units_one_member", &CollectiveKernels::compute_units_one_member},
    {"compute_units_send", &CollectiveKernels::compute_units_send},
    {"memory_passes", &CollectiveKernels::memory_passes},
}};

Json kernels_json(const CollectiveKernels& kernels) {
    Json json = Json::object();
    for (const KernelFigure& figure : kKernelFigures) json[figure.key] = figure_json(kernels.*figure.member);
    return json;
}

CollectiveKernels read_kernels(const JsonReader& reader) {
    CollectiveKernels kernels;
    for (const KernelFigure& figure : kKernelFigures) {
        kernels.*figure.member = read_figure(reader, figure.key, kNotNegative);
    }
    reader.finish();
    return kernels;
}

}  // namespace

Json figure_json(const Figure& figure) {
    return Json{{"value", figure.value}, {"kind", name_of(figure.kind)}, {"source", figure.source}};
}

Figure read_figure(const JsonReader& parent, const std::string& key, NumberRange range) {
    const JsonReader reader = parent.object(key);
    Figure figure;
    figure.value = reader.number("value", range);
    const std::string kind = reader.choice("kind", provenance_names());
    for (Provenance p : {Provenance::measured, Provenance::datasheet, Provenance::fitted, Provenance::fallback}) {
        if (name_of(p) == kind) figure.kind = p;
    }
    figure.source = reader.string("source");
    if (figure.source.empty()) reader.fail("source", "the figure's origin, as text");
    reader.finish();
    return figure;
}

Json link_json(const LinkProfile& link) {
    Json json{{"name", link.name},
              {"kind", name_of(link.kind)},
              {"bandwidth_gb_per_s_per_direction", figure_json(link.bandwidth_gb_per_s_per_direction)},
              {"latency_us", figure_json(link.latency_us)},
              {"efficiency", figure_json(link.efficiency)}};
    if (link.nccl) {
        Json nccl{{"step_us", figure_json(link.nccl->step_us)}, {"tree_fill", figure_json(link.nccl->tree_fill)}};
        if (link.nccl->plugin_tuner) nccl["plugin_tuner"] = true;
        json["nccl"] = std::move(nccl);
    }
    return json;
}

LinkProfile read_link(const JsonReader& reader) {
    LinkProfile link;
    link.name = reader.string("name");
    link.kind = read_medium(reader, link.name);
    link.bandwidth_gb_per_s_per_direction = read_figure(reader, "bandwidth_gb_per_s_per_direction", kPositive);
    link.latency_us = read_figure(reader, "latency_us", {0, 1e6, false});  // at most a second
    link.efficiency = read_figure(reader, "efficiency", kPositiveFraction);
    if (reader.has("nccl")) {
        const JsonReader nccl = reader.object("nccl");
        link.nccl = NcclNetwork{.step_us = read_figure(nccl, "step_us", kPositive),
                                .tree_fill = read_figure(nccl, "tree_fill", kPositive)};
        if (nccl.has("plugin_tuner")) link.nccl->plugin_tuner = nccl.boolean("plugin_tuner");
        nccl.finish();
    }
    reader.finish();
    return link;
}

Json device_json(const DeviceProfile& device) {
    Json peaks = Json::object();
    for (const PeakRate& peak : device.peaks)
        peaks[std::string(orrery::name_of(peak.dtype))] = figure_json(peak.tflops);
    Json matmuls = Json::array();
    for (const MatmulSample& s : device.matmul_samples) {
        matmuls.push_back(Json{{"op", s.op},
                               {"m", s.m},
                               {"n", s.n},
                               {"k", s.k},
                               {"dtype", orrery::name_of(s.dtype)},
                               {"seconds", s.seconds}});
    }
    Json operators = Json::array();
    for (const OperatorSample& s : device.operator_samples) {
        operators.push_back(Json{{"op", s.op},
                                 {"bytes", s.bytes},
                                 {"flops", s.flops},
                                 {"rows", s.rows},
                                 {"head_dim", s.head_dim},
                                 {"sequence", s.sequence},
                                 {"dtype", orrery::name_of(s.dtype)},
                                 {"seconds", s.seconds}});
    }
    Json json{{"name", device.name}};
    if (device.compute_capability > 0) json["compute_capability"] = device.compute_capability;
    for (const NarrowPlateau& narrow : device.narrow_matmul_efficiency) {
        json["narrow_matmul_efficiency"][std::string(orrery::name_of(narrow.dtype))] = figure_json(narrow.share);
    }
    if (device.usable_memory_gib.value > 0) json["usable_memory_gib"] = figure_json(device.usable_memory_gib);
    if (device.power_limit_w.value > 0) json["power_limit_w"] = figure_json(device.power_limit_w);
    json.update(Json{{"peak_tflops", peaks},
                     {"memory_bandwidth_gb_per_s", figure_json(device.memory_bandwidth_gb_per_s)},
                     {"memory_capacity_gib", figure_json(device.memory_capacity_gib)},
                     {"context_gib", figure_json(device.context_gib)},
                     {"matmul_efficiency", figure_json(device.matmul_efficiency)},
                     {"memory_efficiency", figure_json(device.memory_efficiency)},
                     {"launch_us", figure_json(device.launch_us)},
                     {"compute_units", device.compute_units},
                     {"tile_m", device.tile_m},
                     {"tile_n", device.tile_n},
                     {"host_runs_compute", device.host_runs_compute},
                     {"cores_per_node", device.cores_per_node},
                     {"matmul_samples", matmuls},
                     {"operator_samples", operators}});
    if (device.nccl) json["nccl"] = nccl_json(*device.nccl);
    if (device.products) json["products"] = products_json(*device.products);
    if (device.collective_kernels) json["collective_kernels"] = kernels_json(*device.collective_kernels);
    return json;
}

DeviceProfile read_device(const JsonReader& reader) {
    DeviceProfile device;
    device.name = reader.string("name");
    device.compute_capability = reader.integer_or("compute_capability", {1, 1000}, 0);
    const JsonReader peaks = reader.object("peak_tflops");
    for (const std::string& key : peaks.keys()) {
        const std::optional<DType> dtype = arithmetic_named(key);
        if (!dtype) peaks.fail(key, std::string("figures for ") + kArithmetic);
        device.peaks.push_back({*dtype, read_figure(peaks, key, kPositive)});
    }
    peaks.finish();
    if (device.peaks.empty()) reader.fail("peak_tflops", "at least one figure");
    device.memory_bandwidth_gb_per_s = read_figure(reader, "memory_bandwidth_gb_per_s", kPositive);
    device.memory_capacity_gib = read_figure(reader, "memory_capacity_gib", kPositive);
    if (reader.has("usable_memory_gib")) {
        device.usable_memory_gib = read_figure(reader, "usable_memory_gib", kPositive);
        if (device.usable_memory_gib.value > device.memory_capacity_gib.value) {
            reader.object("usable_memory_gib").fail("value", "at most memory_capacity_gib");
        }
    }
    if (reader.has("power_limit_w")) device.power_limit_w = read_figure(reader, "power_limit_w", kPositive);
    device.context_gib = read_figure(reader, "context_gib", kNotNegative);
    device.matmul_efficiency = read_figure(reader, "matmul_efficiency", kPositiveFraction);
    if (reader.has("narrow_matmul_efficiency")) {
        const JsonReader narrow = reader.object("narrow_matmul_efficiency");
        for (const std::string& key : narrow.keys()) {
            const std::optional<DType> dtype = dtype_named(key);
            if (dtype != DType::fp8 && dtype != DType::fp4) narrow.fail(key, "figures for fp8 or fp4");
            device.narrow_matmul_efficiency.push_back({*dtype, read_figure(narrow, key, kPositiveFraction)});
        }
        narrow.finish();
    }
    device.memory_efficiency = read_figure(reader, "memory_efficiency", kPositiveFraction);
    device.launch_us = read_figure(reader, "launch_us", kNotNegative);
    device.host_runs_compute = reader.boolean("host_runs_compute");
    const IntegerRange units = device.host_runs_compute ? kCount : kPositiveInteger;
    device.compute_units = reader.integer("compute_units", units);
    device.tile_m = reader.integer("tile_m", units);
    device.tile_n = reader.integer("tile_n", units);
    device.cores_per_node = reader.integer("cores_per_node", device.host_runs_compute ? kPositiveInteger : kCount);
    read_samples(reader, device);
    if (reader.has("nccl")) device.nccl = read_nccl(reader.object("nccl"));
    if (reader.has("products")) device.products = read_products(reader.object("products"));
    if (reader.has("collective_kernels")) device.collective_kernels = read_kernels(reader.object("collective_kernels"));
    reader.finish();
    return device;
}

}  // namespace orrery::topologies
