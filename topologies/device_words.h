// GPUs as people write them, and variants of known devices: "NVIDIA A100-SXM4-80GB", "8x H100 80GB HBM3",
// "h100-sxm-96gb-500w", "RTX PRO 6000 Max-Q".
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "topologies/profile.h"

namespace orrery::topologies {

/// What the words say of a GPU.
struct DeviceWords {
    std::string model;  // "h100", "rtx-4090", "mi300x"
    std::string form;   // "sxm", "pcie", "nvl"; empty: not said
    std::optional<std::int64_t> memory_gb, power_w;
    bool max_q = false;
    bool operator==(const DeviceWords&) const = default;
};
/// None: they name no GPU that is known.
[[nodiscard]] std::optional<DeviceWords> read_device_words(const std::string& text);

/// The profile of `known` that is nearest to the words (the model's; the stated form, else SXM before PCIe; the
/// nearest memory) and what differs from it, by these rules:
/// - memory: the capacity is what is stated; bandwidth and everything else stay;
/// - power limit below the profile's: the peaks of matrix products go with its square root, between the cube root (the
///   voltage follows the clock) and proportion (the voltage is at its floor); a limit above it changes nothing;
/// - Max-Q without a power limit: half of the profile's.
/// A variant keeps the text as its name; each changed figure is a fallback and says what it was derived from. None:
/// no profile is of that model.
[[nodiscard]] std::optional<DeviceProfile> device_variant(const std::string& text,
                                                          const std::vector<DeviceProfile>& known);

}  // namespace orrery::topologies
