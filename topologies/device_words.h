// GPU names as people write them, including variants of known devices: "NVIDIA A100-SXM4-80GB", "8x H100 80GB HBM3",
// "h100-sxm-96gb-500w", "RTX PRO 6000 Max-Q".
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "topologies/profile.h"

namespace orrery::topologies {

/// What a name states about a GPU.
struct DeviceWords {
    std::string model;  // "h100", "rtx-4090", "mi300x"
    std::string form;   // "sxm", "pcie", "nvl"; empty: not stated
    std::optional<std::int64_t> memory_gb, power_w;
    bool max_q = false;
    bool operator==(const DeviceWords&) const = default;
};
/// Empty if the text names no known GPU.
[[nodiscard]] std::optional<DeviceWords> read_device_words(const std::string& text);

/// The profile of `known` that is nearest to the text (same model; the stated form, else SXM before PCIe; the nearest
/// memory capacity), changed by these rules:
/// - memory: the stated capacity is used; bandwidth and everything else stay;
/// - a power limit below the profile's scales the GEMM peaks with its square root, between the cube root (the voltage
///   follows the clock) and proportion (the voltage is at its floor); a higher limit changes nothing;
/// - Max-Q without a stated power limit: half of the profile's limit.
/// A variant keeps the text as its name; each changed figure is a fallback that names what it was derived from. Empty
/// if no profile has that model.
[[nodiscard]] std::optional<DeviceProfile> device_variant(const std::string& text,
                                                          const std::vector<DeviceProfile>& known);

}  // namespace orrery::topologies
