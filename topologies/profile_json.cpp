#include <algorithm>

#include "topologies/catalogue.h"
#include "topologies/names.h"
#include "topologies/profile_fields.h"

namespace orrery::topologies {
namespace {

std::optional<DType> arithmetic_named(const std::string& name) {
    const std::optional<DType> dtype = dtype_named(name);
    return dtype == DType::int64 ? std::nullopt : dtype;
}
constexpr const char* kArithmetic = "fp64, fp32, tf32, bf16, fp16, fp8, fp4, int32 or uint8";

std::optional<DType> narrow_named(const std::string& name) {
    const std::optional<DType> dtype = dtype_named(name);
    return dtype == DType::fp8 || dtype == DType::fp4 ? dtype : std::nullopt;
}

/// Reads figures by type into a list. `named`: the type of a name, if it is allowed.
template <typename Entry, typename Named>
void read_by_type(const JsonReader& reader, std::vector<Entry>& list, NumberRange range, Named named,
                  const std::string& allowed) {
    for (const std::string& key : reader.keys()) {
        const std::optional<DType> dtype = named(key);
        if (!dtype) reader.fail(key, "figures for " + allowed);
        Figure figure;
        read_field(reader, key, figure, range);
        list.push_back({*dtype, std::move(figure)});
    }
}

template <typename Entry>
JsonValue json_by_type(const std::vector<Entry>& list, Figure Entry::*figure) {
    JsonValue json = JsonValue::object();
    for (const Entry& one : list) json.set(std::string(orrery::name_of(one.dtype)), field_json(one.*figure));
    return json;
}

/// From the prefix of the name, as in the catalogue: "pcie-gen4-x16".
LinkMedium medium_of(const std::string& name) {
    const std::vector<std::string>& names = link_medium_names();
    const auto found = std::find_if(names.begin(), names.end(), [&](std::string known) {
        std::replace(known.begin(), known.end(), '_', '-');
        return name.starts_with(known);
    });
    return found == names.end() ? LinkMedium::other : static_cast<LinkMedium>(found - names.begin());
}

template <typename Load, typename Read>
auto named_or_in_full(const JsonReader& reader, const std::string& key, const std::vector<std::string>& names,
                      Load load, Read read) {
    if (reader.kind(key) != JsonKind::string) return read(reader.object(key));
    const std::string name = reader.string(key);
    try {
        return load(name);
    } catch (const InputError&) {
        reader.fail(key, "an object with its figures, or one of " + join_names(names));
    }
}

}  // namespace

void read_field(const JsonReader& reader, const std::string& key, Figure& figure, NumberRange range) {
    const JsonReader object = reader.object(key);
    figure.value = object.number("value", range);
    orrery::read_field(object, "kind", figure.kind);
    figure.source = object.string("source");
    if (figure.source.empty()) object.fail("source", "the figure's origin, as text");
    object.finish();
}

JsonValue field_json(const Figure& figure) {
    return JsonValue::object()
        .set("value", JsonValue(figure.value))
        .set("kind", JsonValue(name_of(figure.kind)))
        .set("source", JsonValue(figure.source));
}

void read_field(const JsonReader& reader, const std::string& key, DType& dtype, const Arithmetic&) {
    const std::optional<DType> found = arithmetic_named(reader.string(key));
    if (!found) reader.fail(key, kArithmetic);
    dtype = *found;
}

void read_field(const JsonReader& reader, const std::string& key, std::vector<PeakRate>& peaks) {
    read_by_type(reader.object(key), peaks, kPositive, arithmetic_named, kArithmetic);
    if (peaks.empty()) reader.fail(key, "at least one figure");
}

void read_field(const JsonReader& reader, const std::string& key, std::vector<NarrowPlateau>& plateaus) {
    read_by_type(reader.object(key), plateaus, kPositiveFraction, narrow_named, "fp8 or fp4");
}

JsonValue field_json(const std::vector<PeakRate>& peaks) {
    return json_by_type(peaks, &PeakRate::tflops);
}

JsonValue field_json(const std::vector<NarrowPlateau>& plateaus) {
    return json_by_type(plateaus, &NarrowPlateau::share);
}

void check_fields(const JsonReader& reader, const NcclProfile& nccl) {
    for (std::size_t i = 1; i < nccl.ring.size(); ++i) {
        if (nccl.ring[i].within > nccl.ring[i - 1].within) continue;
        reader.objects("ring")[i].fail("within", "a wider part than the one before it");
    }
    if (nccl.ring.empty() || nccl.ring.back().within != NodePart::node) {
        reader.fail("ring", "a list whose last entry has within = node");
    }
    if (nccl.ll_channel_gb_per_s.value <= 0 && nccl.ll_share.value <= 0) {
        reader.fail("ring", "ll_channel_gb_per_s or ll_share next to it, which limits LL");
    }
    if ((nccl.nvls_share.value > 0) != (nccl.nvls_rounds.value > 0)) {
        reader.fail(nccl.nvls_share.value > 0 ? "nvls_share" : "nvls_rounds", "nvls_share and nvls_rounds, or neither");
    }
}

void check_fields(const JsonReader& reader, const ProductFigures& products) {
    if (products.wave_share.value > 1) reader.fail("wave_share", "a share of at most 1");
    if (products.tile_share.value <= 0 || products.tile_share.value > 1) {
        reader.fail("tile_share", "a share above 0 and at most 1");
    }
}

void check_fields(const JsonReader& reader, const DeviceProfile& device) {
    if (device.usable_memory_gib.value > device.memory_capacity_gib.value) {
        reader.object("usable_memory_gib").fail("value", "at most memory_capacity_gib");
    }
}

LinkProfile read_link(const JsonReader& reader) {
    LinkProfile link;
    read_fields(reader, link);
    if (!reader.has("kind")) link.kind = medium_of(link.name);  // older files have none
    reader.finish();
    return link;
}

DeviceProfile read_device(const JsonReader& reader) {
    DeviceProfile device;
    device.host_runs_compute = reader.boolean("host_runs_compute");
    read_fields(reader, device);
    reader.finish();
    return device;
}

void read_field(const JsonReader& reader, const std::string& key, LinkProfile& link) {
    link = named_or_in_full(reader, key, link_names(), load_link, read_link);
}

void read_field(const JsonReader& reader, const std::string& key, DeviceProfile& device) {
    device = named_or_in_full(reader, key, device_names(), load_device, read_device);
}

}  // namespace orrery::topologies
