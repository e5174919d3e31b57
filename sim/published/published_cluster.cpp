// The cluster of a published run: a preset with the network that the published words name.
#include <algorithm>
#include <array>

#include "core/letters.h"
#include "sim/published/translation.h"
#include "topologies/catalogue.h"
#include "topologies/cluster_variant.h"
#include "topologies/device_words.h"

namespace orrery::published {
namespace {

/// The usual node of a GPU model.
struct KnownGpu {
    std::string_view model;  // as topologies::read_device_words names it
    std::string_view form;   // empty: any
    std::int64_t gpus_per_node;
    std::string_view preset;
    std::int64_t usual_gb_s;           // usual NIC rate of this generation, in Gb/s
    std::string_view intra_node = "";  // replaces the preset's link
    std::int64_t memory_gb = 0;
};
/// The first match counts; gpus_per_node and memory_gb 0: any.
constexpr std::array<KnownGpu, 36> kKnownGpus{{
    {"v100", "pcie", 0, "dgx1-v100", 100, "pcie-gen3-x16"},
    {"v100", "", 16, "dgx2-v100", 100},
    {"v100", "", 0, "dgx1-v100", 100},
    {"a100", "pcie", 0, "dgx-a100", 200, "pcie-gen4-x16"},
    {"a100", "", 0, "dgx-a100-40gb", 200, "", 40},
    {"a100", "", 0, "dgx-a100", 200},
    {"h100", "pcie", 0, "dgx-h100", 400, "pcie-gen5-x16"},
    {"h100", "nvl", 0, "dgx-h100", 400, "pcie-gen5-x16"},
    {"h100", "", 0, "dgx-h100", 400},
    {"h200", "nvl", 0, "hgx-h200", 400, "pcie-gen5-x16"},
    {"h200", "", 0, "hgx-h200", 400},
    {"b200", "", 0, "dgx-b200", 400},
    {"b300", "", 0, "dgx-b300", 400},
    {"gb200", "", 0, "gb200-nvl72", 400},
    {"a800", "pcie", 0, "dgx-a100", 200, "pcie-gen4-x16"},
    {"a800", "", 0, "dgx-a100", 200, "nvlink-400"},
    {"h800", "", 0, "dgx-h100", 400, "nvlink-400"},
    {"h20", "", 0, "dgx-h100", 400},
    {"gh200", "", 0, "gh200-4", 200},
    {"gb300", "", 0, "gb300-nvl72", 400},
    {"a10g", "", 0, "aws-g5", 100},
    {"a10", "", 0, "pcie-a40", 200},
    {"a40", "", 0, "pcie-a40", 200},
    {"rtx-a6000", "", 0, "pcie-a40", 200},
    {"rtx-3090", "", 0, "pcie-a40", 200},
    {"l40s", "", 0, "pcie-rtx-4090", 200},
    {"l40", "", 0, "pcie-rtx-4090", 200},
    {"l4", "", 0, "pcie-rtx-4090", 200},
    {"rtx-6000-ada", "", 0, "pcie-rtx-4090", 200},
    {"rtx-4090", "", 0, "pcie-rtx-4090", 200},
    {"rtx-5090", "", 0, "pcie-rtx-5090", 400},
    {"rtx-pro-6000", "", 0, "pcie-rtx-5090", 400},
    {"t4", "", 0, "pcie-t4", 100},
    {"mi300x", "", 0, "mi300x-8", 400},
    {"mi325x", "", 0, "mi300x-8", 400},
    {"mi355x", "", 0, "mi355x-8", 400},
}};
constexpr std::int64_t kNvl72 = 72;

bool is_rack(std::string_view model) {
    return model == "gb200" || model == "gb300";
}

/// The row's GPU, normalised if the row has it, else as published.
const std::string& gpu_words(const PublishedRun& run) {
    return run.hardware.gpu.empty() ? run.hardware.gpu_words : run.hardware.gpu;
}

const KnownGpu& known_gpu(const PublishedRun& run) {
    if (run.hardware.gpu.empty() && run.hardware.gpu_words.empty()) {
        throw NotExpressible("hardware.gpu is not stated");
    }
    if (const auto words = topologies::read_device_words(gpu_words(run))) {
        for (const KnownGpu& known : kKnownGpus) {
            if (known.model != words->model || (!known.form.empty() && known.form != words->form)) continue;
            if (known.memory_gb != 0 && known.memory_gb != words->memory_gb) continue;
            if (known.gpus_per_node == 0 || known.gpus_per_node == run.hardware.gpus_per_node) return known;
        }
    }
    throw NotExpressible("no device profile for gpu '" + gpu_words(run) + "'");
}

/// Name of a known device, or of a variant of one, which is recorded as an assumption.
std::string device_of(const PublishedRun& run, Assumptions& assumptions) {
    const std::string& words = gpu_words(run);
    const std::string name = topologies::load_device(words).name;
    const std::vector<std::string> known = topologies::device_names();
    if (std::find(known.begin(), known.end(), name) == known.end()) {
        assumptions.add("/cluster/device", "GPU", name, "derived from a known GPU; its figures name their origins");
    }
    return name;
}

/// A number in a text and its position.
struct Number {
    std::int64_t value = 0;
    std::size_t begin = 0, end = 0;
};
std::vector<Number> numbers_in(const std::string& text) {
    std::vector<Number> numbers;
    for (std::size_t i = 0; i < text.size(); ++i) {
        // Digits inside a word ("NVLink4", "p5") do not count; those of "4x200" do.
        const bool in_word = i > 0 && (is_letter(text[i - 1]) || is_digit(text[i - 1]));
        const bool times = i > 1 && text[i - 1] == 'x' && is_digit(text[i - 2]);
        if (!is_digit(text[i]) || (in_word && !times)) continue;
        Number number{.begin = i};
        for (; i < text.size() && is_digit(text[i]); ++i) {
            number.value = std::min<std::int64_t>(number.value * 10 + (text[i] - '0'), 1'000'000);
        }
        number.end = i--;
        numbers.push_back(number);
    }
    return numbers;
}

bool follows(const std::string& text, std::size_t at, std::string_view word) {
    while (at < text.size() && text[at] == ' ') ++at;
    return text.compare(at, word.size(), word) == 0;
}

std::string link_name(const NicWords& nic) {
    if (nic.family == "omnipath") return "omnipath-100";
    if (nic.family == "efa") return nic.gb_per_s == 100 ? "efa-100" : "efa-400";
    if (nic.family == "tcpx") return "gpudirect-tcpx-200";
    if (nic.family == "tcpxo") return "gpudirect-tcpxo-200";
    const std::string rate = std::to_string(nic.gb_per_s);
    if (nic.family != "infiniband") return "roce-" + rate;
    if (nic.gb_per_s == 100) return "infiniband-edr";
    if (nic.gb_per_s == 200) return "infiniband-hdr";
    if (nic.gb_per_s == 400) return "infiniband-ndr";
    if (nic.gb_per_s == 800) return "infiniband-xdr";
    return "infiniband-" + rate;
}

std::string base_preset(const PublishedRun& run, const KnownGpu& known, const NicWords& nic) {
    if (nic.family != "efa") return std::string(known.preset);
    struct Cloud {
        std::string_view model, preset;
    };
    static constexpr std::array<Cloud, 5> kClouds{
        {{"h100", "aws-p5"}, {"a100", "aws-p4d"}, {"h200", "aws-p5en"}, {"b200", "aws-p6-b200"}, {"a10g", "aws-g5"}}};
    for (const Cloud& cloud : kClouds) {
        if (cloud.model == known.model) return std::string(cloud.preset);
    }
    throw NotExpressible("no preset for gpu '" + gpu_words(run) + "' with EFA");
}

/// Sets the NICs from the stated words, and from the usual node of this generation where they are silent.
void choose_nics(const KnownGpu& known, NicWords nic, topologies::ClusterVariant& variant, Assumptions& assumptions) {
    if (nic.family == "efa") return;  // the preset's own
    const std::string not_stated = "of a " + std::string(known.preset) + "; not stated";
    if (nic.family.empty() && nic.gb_per_s == 0) {
        assumptions.add("/cluster/nic", "network", "NICs", not_stated);
        return;
    }
    if (nic.family.empty()) nic.family = "infiniband";
    const bool rate_stated = nic.gb_per_s != 0;
    if (!rate_stated) nic.gb_per_s = known.usual_gb_s;
    variant.nic = link_name(nic);
    if (!rate_stated) assumptions.add("/cluster/nic", "network", variant.nic, "the rate is not stated");
    if (nic.count != 0) {
        const std::int64_t stated = nic.count;
        while (*variant.devices_per_node % nic.count != 0) --nic.count;  // the remaining NICs serve storage
        variant.nics_per_node = nic.count;
        if (nic.count != stated) {
            assumptions.add("/cluster/nics_per_node", "NICs of a node", nic.count,
                            "the largest number up to the stated " + std::to_string(stated) + " that divides the GPUs");
        }
    } else if (nic.rate_in_figures) {
        variant.nics_per_node = 1;
        assumptions.add("/cluster/nics_per_node", "NICs of a node", "1", "the words name one link and no count");
    } else {
        assumptions.add("/cluster/nics_per_node", "NICs of a node", "the preset's", not_stated);
    }
}

/// A node of the plan is an NVLink domain: a whole NVL72 rack or, for larger jobs, the largest multiple of a tray that
/// divides the number of GPUs.
std::int64_t domain_size(std::int64_t gpus, std::int64_t tray) {
    if (gpus <= kNvl72) return kNvl72;
    for (std::int64_t size = kNvl72 - kNvl72 % tray; size >= tray; size -= tray) {
        if (gpus % size == 0) return size;
    }
    return tray;
}

}  // namespace

namespace {

std::string_view nic_family(const std::string& text) {
    struct Known {
        std::string_view words, family;
    };
    static constexpr std::array<Known, 15> kKnown{{
        {"EFA", "efa"},
        {"Omni", "omnipath"},
        {"TCPXO", "tcpxo"},
        {"TCPX", "tcpx"},
        {"RoCE", "roce"},
        {"Slingshot", "slingshot"},
        {"InfiniBand", "infiniband"},
        {"Infiniband", "infiniband"},
        {"EDR", "infiniband"},
        {"HDR", "infiniband"},
        {"NDR", "infiniband"},
        {"XDR", "infiniband"},
        {"FDR", "infiniband"},
        {"Ethernet", "ethernet"},
        {"GbE", "ethernet"},
    }};
    for (const Known& known : kKnown) {
        if (contains(text, known.words)) return known.family;
    }
    return "";
}

/// The rate in Gb/s by the unit after a number: "200 Gb/s", "3.2 Tb/s", "400G", "25 GB/s". 0: no rate.
std::int64_t rate_of(const std::string& text, const Number& number) {
    if (follows(text, number.end, "Gb")) return number.value;
    if (follows(text, number.end, "Tb")) {
        const bool tenths = number.begin > 1 && text[number.begin - 1] == '.' && is_digit(text[number.begin - 2]);
        return tenths ? (text[number.begin - 2] - '0') * 1000 + number.value * 100 : number.value * 1000;
    }
    if (follows(text, number.end, "GB/s")) return number.value * 8;
    const std::size_t after = number.end + 1;
    const bool is_short = number.end < text.size() && text[number.end] == 'G' &&
                          (after == text.size() || !(is_letter(text[after]) || is_digit(text[after])));
    return is_short ? number.value : 0;
}

}  // namespace

NicWords read_nic_words(const std::string& text, std::int64_t gpus_per_node) {
    NicWords nic{.family = std::string(nic_family(text))};
    if (nic.family == "efa") return nic;
    const std::vector<Number> numbers = numbers_in(text);
    for (const Number& number : numbers) {
        if (number.value == 0) continue;
        if (const std::int64_t rate = rate_of(text, number); nic.gb_per_s == 0 && rate > 0) {
            nic.gb_per_s = rate;
            nic.rate_in_figures = true;
        } else if (nic.count == 0 && (follows(text, number.end, "x") || follows(text, number.end, "Omni"))) {
            nic.count = number.value;
        }
    }
    if (nic.gb_per_s == 0) {
        for (const auto& [word, rate] :
             {std::pair{"FDR", 56}, {"EDR", 100}, {"HDR", 200}, {"NDR", 400}, {"XDR", 800}}) {
            if (contains(text, word)) nic.gb_per_s = rate;
        }
    }
    if (nic.count == 0 && contains(text, "ONE ")) nic.count = 1;
    if (nic.count == 0 && contains(text, "per GPU")) nic.count = gpus_per_node;
    // "1600 Gbps per node" is the sum over NICs of 200 Gb/s, or of 400 Gb/s if that would be more NICs than GPUs.
    constexpr std::int64_t kFastestNic = 400, kUsualNic = 200;
    if (nic.count == 0 && nic.gb_per_s > kFastestNic && nic.gb_per_s % kUsualNic == 0 && !contains(text, "XDR")) {
        const bool usual = nic.gb_per_s / kUsualNic <= gpus_per_node || nic.gb_per_s % kFastestNic != 0;
        const std::int64_t each = usual ? kUsualNic : kFastestNic;
        nic.count = nic.gb_per_s / each;
        nic.gb_per_s = each;
    }
    return nic;
}

std::int64_t usual_gpus_per_node(const PublishedRun& run) {
    const KnownGpu& known = known_gpu(run);
    constexpr std::int64_t kTray = 4;  // sources count the trays of an NVL72 rack as nodes
    return is_rack(known.model) ? kTray : topologies::load_cluster(std::string(known.preset), 1).devices_per_node;
}

topologies::ClusterSpec cluster_of(const PublishedRun& run, Assumptions& assumptions) {
    const KnownGpu& known = known_gpu(run);
    const std::int64_t gpus = required(run.hardware.gpus, "hardware.num_gpus");
    const std::int64_t per_node = required(run.hardware.gpus_per_node, "hardware.gpus_per_node");
    const NicWords nic = read_nic_words(run.hardware.inter_node, per_node);
    topologies::ClusterVariant variant{.base = base_preset(run, known, nic), .device = device_of(run, assumptions)};
    if (!known.intra_node.empty()) variant.intra_node = std::string(known.intra_node);
    variant.devices_per_node = is_rack(known.model) ? domain_size(gpus, per_node) : per_node;
    if (gpus > *variant.devices_per_node) choose_nics(known, nic, variant, assumptions);
    return topologies::make_cluster(variant, gpus);
}

}  // namespace orrery::published
