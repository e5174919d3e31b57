// The cluster on which a measured collective ran: a preset with the network that the published words name.
#include <algorithm>
#include <array>
#include <cctype>

#include "sim/published/published_collectives.h"
#include "sim/published/translation.h"
#include "topologies/cluster_variant.h"

namespace orrery::published {
namespace {

using program::CommKind;

struct PresetOfGpu {
    std::string_view words;  // occurs in the hardware's words, in upper case
    std::string_view preset;
    std::string_view intra_node = "";  // replaces the preset's link
};
/// The first one named counts.
constexpr std::array<PresetOfGpu, 11> kPresetsOfGpus{{
    {"H800", "dgx-h100", "nvlink-400"},
    {"GB200", "gb200-nvl72"},
    {"B300", "dgx-b300"},
    {"B200", "dgx-b200"},
    {"H200", "hgx-h200"},
    {"H100", "dgx-h100"},
    {"A100 40GB", "dgx-a100-40gb"},
    {"A100-SXM4-40GB", "dgx-a100-40gb"},
    {"A100", "dgx-a100"},
    {"L40S", "pcie-l40s"},
    {"RTX PRO 6000", "pcie-rtx-pro-6000"},
}};

struct KnownNetwork {
    std::string_view words;  // upper case
    std::string_view nic;
    std::int64_t nics_per_node = 0;  // 0: the preset's
};
constexpr std::array<KnownNetwork, 10> kKnownNetworks{{
    {"EFAV4", "efa-v4-400"},
    {"EFA", "efa-400"},
    {"TCPXO", "gpudirect-tcpxo-200", 8},  // Google's A3 Mega: eight NICs of 200 Gb/s for the GPUs
    {"TCPX", "gpudirect-tcpx-200", 4},    // A3 High: four
    {"OCI BM.GPU.B4", "roce-200"},        // sixteen NICs of 100 Gb/s, two per GPU
    {"ROCE", "roce-400"},
    {"NDR", "infiniband-ndr"},
    {"INFINIBAND", ""},
    {"(IB ", ""},
    {" RACKS", ""},  // NVL72 racks: InfiniBand between them
}};

struct KnownOp {
    std::string_view name;
    CommKind kind;
};
constexpr std::array<KnownOp, 8> kKnownOps{{
    {"all_reduce", CommKind::all_reduce},
    {"all_gather", CommKind::all_gather},
    {"reduce_scatter", CommKind::reduce_scatter},
    {"alltoall", CommKind::all_to_all},
    {"all_to_all", CommKind::all_to_all},
    {"broadcast", CommKind::broadcast},
    {"reduce", CommKind::reduce},
    {"sendrecv", CommKind::send},
}};

struct KnownDType {
    std::string_view name;
    DType dtype;
};
constexpr std::array<KnownDType, 11> kKnownDTypes{{
    {"half", DType::fp16},
    {"fp16", DType::fp16},
    {"bf16", DType::bf16},
    {"fp32", DType::fp32},
    {"fp64", DType::fp64},
    {"bfloat16", DType::bf16},
    {"float", DType::fp32},
    {"double", DType::fp64},
    {"int8", DType::uint8},
    {"uint8", DType::uint8},
    {"int32", DType::int32},
}};

std::string upper(std::string text) {
    for (char& letter : text) letter = static_cast<char>(std::toupper(static_cast<unsigned char>(letter)));
    return text;
}

template <typename List>
const typename List::value_type* find_named(const List& list, const std::string& name) {
    const auto found = std::find_if(list.begin(), list.end(), [&](const auto& known) { return known.name == name; });
    return found == list.end() ? nullptr : &*found;
}
template <typename List>
const typename List::value_type* find_in(const List& list, const std::string& words) {
    const auto found =
        std::find_if(list.begin(), list.end(), [&](const auto& known) { return contains(words, known.words); });
    return found == list.end() ? nullptr : &*found;
}

topologies::ClusterSpec cluster_of(const PublishedCollective& row, const std::string& words) {
    const PresetOfGpu* gpu = find_in(kPresetsOfGpus, words);
    if (gpu == nullptr) throw NotExpressible("no device profile for '" + row.hardware + "'");
    topologies::ClusterVariant variant{.base = std::string(gpu->preset), .intra_node = std::string(gpu->intra_node)};
    const std::int64_t domain = topologies::load_cluster(variant.base, 1).devices_per_node;
    if (row.ranks <= domain && (row.nodes == 1 || gpu->words == "GB200")) return make_cluster(variant, domain);
    if (row.nodes == 1) {
        throw NotExpressible("a node of " + std::to_string(row.ranks) + " GPUs; " + variant.base + " has at most " +
                             std::to_string(domain));
    }
    const KnownNetwork* network = find_in(kKnownNetworks, words);
    const std::int64_t per_node = gpu->words == "GB200" ? domain : row.ranks / row.nodes;
    if (per_node == 0 || row.ranks % per_node != 0 || per_node > domain) {
        throw NotExpressible(std::to_string(row.ranks) + " ranks on " + std::to_string(row.nodes) + " nodes");
    }
    if (network == nullptr) throw NotExpressible("no network in the words '" + row.hardware + "'");
    variant.nic = std::string(network->nic);
    if (network->nics_per_node != 0) variant.nics_per_node = network->nics_per_node;
    return make_cluster(variant, row.ranks / per_node * domain);
}

/// If a row does not name its tool, its source may imply it: the tables of ml-engineering come from
/// all_reduce_bench.py.
bool measured_from_pytorch(const PublishedCollective& row) {
    if (!row.tool.empty()) return contains(row.tool, "all_reduce_bench");
    return contains(row.source, "stas00/ml-engineering") && row.op == "all_reduce";
}

CollectiveSetup make_setup(const PublishedCollective& row) {
    CollectiveSetup setup;
    const KnownOp* op = find_named(kKnownOps, row.op);
    if (op == nullptr) throw NotExpressible("not an NCCL collective: '" + row.op + "'");
    setup.kind = op->kind;
    if (!row.bytes) throw NotExpressible("no message size stated");
    if (!row.dtype.empty()) {
        const KnownDType* dtype = find_named(kKnownDTypes, row.dtype);
        if (dtype == nullptr) throw NotExpressible("unknown element type '" + row.dtype + "'");
        setup.dtype = dtype->dtype;
    }
    const std::string words = upper(row.hardware + " " + row.setting);
    setup.cluster = cluster_of(row, words);
    setup.nvls_off = contains(words, "NVLS_ENABLE=0") || contains(words, "NVLS OFF");
    if (measured_from_pytorch(row)) {
        setup.tool_us = {
            21, topologies::Provenance::fitted,
            "a call from PyTorch and its events: all-reduce of 32 to 512 KiB on 8 H200, 5 rows (coll-0223 to "
            "coll-0227), beside nccl-tests on 8 H200"};
    }
    setup.sharp = row.nodes > 1 && contains(words, "SHARP");
    return setup;
}

}  // namespace

SetupOfRow setup_of(const PublishedCollective& row) {
    try {
        return {make_setup(row), ""};
    } catch (const NotExpressible& reason) {
        return {std::nullopt, reason.what()};
    }
}

}  // namespace orrery::published
