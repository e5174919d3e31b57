// Where a published run ran: a preset, with the network that the published words name.
#include <algorithm>
#include <array>
#include <cctype>

#include "sim/published/translation.h"
#include "topologies/cluster_variant.h"

namespace orrery::published {
namespace {

struct KnownGpu {
    std::string_view gpu;  // as the rows name it
    std::int64_t gpus_per_node;
    std::string_view preset;
    std::string_view device;           // where the preset has another one
    std::int64_t usual_gb_s;           // of one NIC of this generation's nodes
    std::string_view intra_node = "";  // where the preset has another link
};
/// The first that fits; gpus_per_node 0: any.
constexpr std::array<KnownGpu, 13> kKnownGpus{{
    {"v100-sxm-16gb", 0, "dgx1-v100", "", 100},
    {"v100-sxm-32gb", 16, "dgx2-v100", "", 100},
    {"v100-sxm-32gb", 0, "dgx1-v100", "v100-sxm-32gb", 100},
    {"a100-sxm-40gb", 0, "dgx-a100-40gb", "", 200},
    {"a100-sxm-80gb", 0, "dgx-a100", "", 200},
    {"a800-sxm-80gb", 0, "dgx-a100", "", 200, "nvlink-400"},
    {"a100-pcie-80gb", 0, "dgx-a100", "", 200, "pcie-gen4-x16"},
    {"h800-sxm-80gb", 0, "dgx-h100", "", 400, "nvlink-400"},
    {"h100-sxm-80gb", 0, "dgx-h100", "", 400},
    {"h200-sxm", 0, "hgx-h200", "", 400},
    {"h200-sxm-141gb", 0, "hgx-h200", "", 400},
    {"b200-sxm", 0, "dgx-b200", "", 400},
    {"gb200", 0, "gb200-nvl72", "", 400},
}};
constexpr std::int64_t kNvl72 = 72;

const KnownGpu& known_gpu(const PublishedRun& run) {
    for (const KnownGpu& known : kKnownGpus) {
        if (known.gpu != run.hardware.gpu) continue;
        if (known.gpus_per_node == 0 || known.gpus_per_node == run.hardware.gpus_per_node) return known;
    }
    throw NotExpressible("no device profile for gpu '" + run.hardware.gpu + "'");
}

bool is_digit(char letter) {
    return std::isdigit(static_cast<unsigned char>(letter)) != 0;
}

/// A number in a text, and where it stands.
struct Number {
    std::int64_t value = 0;
    std::size_t begin = 0, end = 0;
};
std::vector<Number> numbers_in(const std::string& text) {
    std::vector<Number> numbers;
    for (std::size_t i = 0; i < text.size(); ++i) {
        // Digits inside a word ("NVLink4", "p5") count nothing; those of "4x200" do.
        const bool in_word = i > 0 && std::isalnum(static_cast<unsigned char>(text[i - 1])) != 0;
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
    if (nic.family == "roce") {
        if (nic.gb_per_s == 100 || nic.gb_per_s == 200 || nic.gb_per_s == 400) {
            return "roce-" + std::to_string(nic.gb_per_s);
        }
    } else {
        if (nic.gb_per_s == 100) return "infiniband-edr";
        if (nic.gb_per_s == 200) return "infiniband-hdr";
        if (nic.gb_per_s == 400) return "infiniband-ndr";
    }
    throw NotExpressible("no link profile for " + std::to_string(nic.gb_per_s) + " Gb/s " + nic.family);
}

std::string base_preset(const PublishedRun& run, const KnownGpu& known, const NicWords& nic) {
    if (nic.family != "efa") return std::string(known.preset);
    if (run.hardware.gpu == "h100-sxm-80gb") return "aws-p5";
    if (run.hardware.gpu == "a100-sxm-40gb") return "aws-p4d";
    throw NotExpressible("no preset for gpu '" + run.hardware.gpu + "' with EFA");
}

/// What of the network is stated, and what a node of this generation has.
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
        variant.nics_per_node = nic.count;
    } else if (nic.rate_in_figures) {
        variant.nics_per_node = 1;
        assumptions.add("/cluster/nics_per_node", "NICs of a node", "1", "the words name one link and no number");
    } else {
        assumptions.add("/cluster/nics_per_node", "NICs of a node", "the preset's", not_stated);
    }
}

/// A node of the plan is what NVLink joins: of an NVL72 rack so many GPUs that whole domains make up the job.
std::int64_t domain_size(std::int64_t gpus, std::int64_t tray) {
    if (gpus <= kNvl72) return kNvl72;
    for (std::int64_t size = kNvl72 - kNvl72 % tray; size >= tray; size -= tray) {
        if (gpus % size == 0) return size;
    }
    return tray;
}

}  // namespace

NicWords read_nic_words(const std::string& text, std::int64_t gpus_per_node) {
    NicWords nic;
    if (contains(text, "EFA")) {
        nic.family = "efa";
        return nic;
    }
    if (contains(text, "Omni")) nic.family = "omnipath";
    if (contains(text, "RoCE") || contains(text, "TCPX")) nic.family = "roce";
    if (nic.family.empty() && (contains(text, "InfiniBand") || contains(text, "HDR") || contains(text, "NDR"))) {
        nic.family = "infiniband";
    }
    const std::vector<Number> numbers = numbers_in(text);
    for (const Number& number : numbers) {
        if (number.value == 0) continue;
        if (nic.gb_per_s == 0 && follows(text, number.end, "Gb")) {
            nic.gb_per_s = number.value;
            nic.rate_in_figures = true;
        } else if (nic.count == 0 && (follows(text, number.end, "x") || follows(text, number.end, "Omni"))) {
            nic.count = number.value;
        }
    }
    if (nic.gb_per_s == 0) {
        if (contains(text, "EDR")) nic.gb_per_s = 100;
        if (contains(text, "HDR")) nic.gb_per_s = 200;
        if (contains(text, "NDR")) nic.gb_per_s = 400;
    }
    if (nic.count == 0 && contains(text, "ONE ")) nic.count = 1;
    if (nic.count == 0 && contains(text, "per GPU")) nic.count = gpus_per_node;
    // "1600 Gbps per node": the sum of NICs of 200 Gb/s.
    constexpr std::int64_t kFastestNic = 400, kUsualNic = 200;
    if (nic.count == 0 && nic.gb_per_s > kFastestNic && nic.gb_per_s % kUsualNic == 0) {
        nic.count = nic.gb_per_s / kUsualNic;
        nic.gb_per_s = kUsualNic;
    }
    return nic;
}

topologies::ClusterSpec cluster_of(const PublishedRun& run, Assumptions& assumptions) {
    const KnownGpu& known = known_gpu(run);
    const std::int64_t gpus = required(run.hardware.gpus, "hardware.num_gpus");
    const NicWords nic = read_nic_words(run.hardware.inter_node, run.hardware.gpus_per_node);
    topologies::ClusterVariant variant{.base = base_preset(run, known, nic), .device = std::string(known.device)};
    if (!known.intra_node.empty()) variant.intra_node = std::string(known.intra_node);
    variant.devices_per_node = run.hardware.gpus_per_node;
    if (run.hardware.gpu == "gb200") variant.devices_per_node = domain_size(gpus, run.hardware.gpus_per_node);
    if (gpus > *variant.devices_per_node) choose_nics(known, nic, variant, assumptions);
    return topologies::make_cluster(variant, gpus);
}

}  // namespace orrery::published
