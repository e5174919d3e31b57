#include "topologies/device_words.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <string_view>

#include "core/letters.h"

namespace orrery::topologies {
namespace {

/// A model as people write it, and its name in the catalogue. A name contained in another one comes after it.
struct Model {
    std::string_view written, model;
};
constexpr std::array<Model, 37> kModels{{
    {"gb300", "gb300"},
    {"gb200", "gb200"},
    {"gh200", "gh200"},
    {"b300", "b300"},
    {"b200", "b200"},
    {"h200", "h200"},
    {"h800", "h800"},
    {"h100", "h100"},
    {"h20", "h20"},
    {"a800", "a800"},
    {"a100", "a100"},
    {"a40", "a40"},
    {"a10g", "a10g"},
    {"a10", "a10"},
    {"v100", "v100"},
    {"l40s", "l40s"},
    {"l40", "l40"},
    {"l4", "l4"},
    {"t4", "t4"},
    {"rtxpro6000", "rtx-pro-6000"},
    {"pro6000", "rtx-pro-6000"},
    {"rtxa6000", "rtx-a6000"},
    {"a6000", "rtx-a6000"},
    {"rtx6000ada", "rtx-6000-ada"},
    {"6000ada", "rtx-6000-ada"},
    {"rtx6000", "rtx-6000-ada"},
    {"rtx5090", "rtx-5090"},
    {"5090", "rtx-5090"},
    {"rtx4090", "rtx-4090"},
    {"4090", "rtx-4090"},
    {"rtx3090", "rtx-3090"},
    {"3090", "rtx-3090"},
    {"mi355x", "mi355x"},
    {"mi350x", "mi350x"},
    {"mi325x", "mi325x"},
    {"mi300x", "mi300x"},
    {"mi300", "mi300x"},
}};

/// The letters and digits of a text.
struct Plain {
    std::string text;
    std::vector<std::size_t> at;  // position of each in the original
};
Plain plain_of(const std::string& text) {
    Plain plain;
    for (std::size_t i = 0; i < text.size(); ++i) {
        if (!is_letter(text[i]) && !is_digit(text[i])) continue;
        plain.text += text[i];
        plain.at.push_back(i);
    }
    return plain;
}

/// Whether the name begins a word (a count and "x" may precede: "8xH100") and ends one, or a form follows ("A100SXM4").
bool stands_alone(const std::string& text, std::size_t begin, std::size_t end) {
    if (begin > 0 && (is_letter(text[begin - 1]) || is_digit(text[begin - 1]))) {
        if (text[begin - 1] != 'x' || (begin > 1 && is_letter(text[begin - 2]))) return false;
    }
    if (end == text.size() || !(is_letter(text[end]) || is_digit(text[end]))) return true;
    return text.compare(end, 3, "sxm") == 0 || text.compare(end, 4, "pcie") == 0 || text.compare(end, 3, "nvl") == 0 ||
           text.compare(end, 1, "x") == 0;
}

std::string model_in(const std::string& text) {
    const Plain plain = plain_of(text);
    for (const Model& model : kModels) {
        for (std::size_t at = plain.text.find(model.written); at != std::string::npos;
             at = plain.text.find(model.written, at + 1)) {
            if (stands_alone(text, plain.at[at], plain.at[at + model.written.size() - 1] + 1)) {
                return std::string(model.model);
            }
        }
    }
    return "";
}

/// The number before a unit, which must end a word: "80GB", "500 W"; not "900 GB/s".
std::optional<std::int64_t> number_before(const std::string& text, std::string_view unit) {
    for (std::size_t at = text.find(unit); at != std::string::npos; at = text.find(unit, at + 1)) {
        const std::size_t end = at + unit.size();
        if (end < text.size() && (is_letter(text[end]) || is_digit(text[end]) || text[end] == '/')) continue;
        std::size_t last = at;
        while (last > 0 && text[last - 1] == ' ') --last;
        std::size_t first = last;
        while (first > 0 && is_digit(text[first - 1])) --first;
        if (first == last || last - first > 5) continue;
        if (first > 0 && (is_letter(text[first - 1]) || text[first - 1] == '.')) continue;
        return std::stoll(text.substr(first, last - first));
    }
    return {};
}

std::string form_in(const std::string& text) {
    if (text.find("sxm") != std::string::npos) return "sxm";
    if (text.find("pcie") != std::string::npos || text.find("pci-e") != std::string::npos) return "pcie";
    for (std::size_t at = text.find("nvl"); at != std::string::npos; at = text.find("nvl", at + 1)) {
        const std::size_t end = at + 3;  // "NVL", not "NVLink" or "NVL72"
        if (end == text.size() || !(is_letter(text[end]) || is_digit(text[end]))) return "nvl";
    }
    if (text.find("hbm3") != std::string::npos || text.find("hgx") != std::string::npos ||
        text.find("dgx") != std::string::npos) {
        return "sxm";
    }
    return "";
}

/// How far a profile is from the words; empty for another model.
std::optional<double> distance(const DeviceWords& words, const DeviceProfile& profile) {
    const std::optional<DeviceWords> known = read_device_words(profile.name);
    if (!known || known->model != words.model) return {};
    double far = 0;
    if (!words.form.empty() && known->form != words.form) far += 1000;
    if (words.form.empty() && known->form != "sxm") far += 100;
    if (words.memory_gb) {
        const double held =
            known->memory_gb ? static_cast<double>(*known->memory_gb) : profile.memory_capacity_gib.value;
        far += std::abs(held - static_cast<double>(*words.memory_gb));
    } else {
        far += -profile.memory_capacity_gib.value / 1000;  // prefer the larger one, which newer machines have
    }
    return far;
}

Figure derived(const Figure& from, double value, const std::string& how) {
    return {value, Provenance::fallback, "derived: " + how + ", from " + from.source};
}

bool is_of_matrix_units(const PeakRate& peak) {
    return peak.dtype != DType::fp32 && peak.dtype != DType::fp64;
}

std::string in_watts(double watts) {
    return std::to_string(std::llround(watts)) + " W";
}

void limit_power(DeviceProfile& device, double limit_w) {
    const double full_w = device.power_limit_w.value;
    if (full_w <= 0 || limit_w >= full_w) return;
    const double share = std::sqrt(limit_w / full_w);
    const std::string how = "clock with the square root of the power limit, " + in_watts(limit_w) + " of " +
                            in_watts(full_w) + " (assumption, between cube root and proportion)";
    for (PeakRate& peak : device.peaks) {
        if (is_of_matrix_units(peak)) peak.tflops = derived(peak.tflops, peak.tflops.value * share, how);
    }
    device.power_limit_w = derived(device.power_limit_w, limit_w, "the limit that the name says");
}

}  // namespace

std::optional<DeviceWords> read_device_words(const std::string& written) {
    const std::string text = lower_case(written);
    DeviceWords words{.model = model_in(text), .form = form_in(text)};
    if (words.model.empty()) return {};
    words.memory_gb = number_before(text, "gb");
    if (!words.memory_gb) words.memory_gb = number_before(text, "gib");
    if (!words.memory_gb) words.memory_gb = number_before(text, "g");
    // "GH200 480GB" states its CPU's memory.
    if (words.model == "gh200" && words.memory_gb.value_or(0) >= 400) words.memory_gb = {};
    words.power_w = number_before(text, "w");
    words.max_q = plain_of(text).text.find("maxq") != std::string::npos;
    return words;
}

std::optional<DeviceProfile> device_variant(const std::string& text, const std::vector<DeviceProfile>& known) {
    const std::optional<DeviceWords> words = read_device_words(text);
    if (!words) return {};
    const DeviceProfile* nearest = nullptr;
    double least = 0;
    for (const DeviceProfile& profile : known) {
        const std::optional<double> far = distance(*words, profile);
        if (!far || (nearest != nullptr && *far >= least)) continue;
        nearest = &profile;
        least = *far;
    }
    if (nearest == nullptr) return {};
    DeviceProfile device = *nearest;
    const std::optional<DeviceWords> its = read_device_words(device.name);
    const double held = its->memory_gb ? static_cast<double>(*its->memory_gb) : device.memory_capacity_gib.value;
    // Vendors round differently: "180 GB" and "192 GB" B200s have the same memory.
    constexpr double kSameMemory = 0.1;
    if (words->memory_gb && std::abs(static_cast<double>(*words->memory_gb) / held - 1) > kSameMemory) {
        const double capacity_gib = static_cast<double>(*words->memory_gb);
        const double usable_share = device.usable_gib() / device.memory_capacity_gib.value;
        device.memory_capacity_gib =
            derived(device.memory_capacity_gib, capacity_gib, "the capacity that the name says");
        if (device.usable_memory_gib.value > 0) {
            device.usable_memory_gib = derived(device.usable_memory_gib, capacity_gib * usable_share,
                                               "the same share of the capacity that the name says");
        }
    }
    if (words->power_w) {
        limit_power(device, static_cast<double>(*words->power_w));
    } else if (words->max_q) {
        limit_power(device, device.power_limit_w.value / 2);
    }
    if (device != *nearest) device.name = text;
    return device;
}

}  // namespace orrery::topologies
