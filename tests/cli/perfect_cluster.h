// A cluster whose network takes no time.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "core/file.h"

namespace orrery::test {

[[nodiscard]] inline nlohmann::json data_file(const std::string& path) {
    return nlohmann::json::parse(read_text_file(std::string(ORRERY_SOURCE_DIR) + "/topologies/" + path));
}

/// A DGX H100 whose network takes no time, and whose collectives take nothing from their devices.
[[nodiscard]] inline nlohmann::json perfect_cluster() {
    using nlohmann::json;
    const auto figure = [](double value) {
        return json{{"value", value}, {"kind", "fallback"}, {"source", "a perfect network"}};
    };
    json device = data_file("devices/h100-sxm-80gb.json").at("device");
    device["name"] = "perfect-gpu";
    device.erase("collective_kernels");
    for (auto& [key, value] : device["nccl"].items()) {
        if (key.ends_with("_us")) value = figure(1e-9);
        if (key.ends_with("per_s")) value = figure(1e9);
        if (key.ends_with("_share")) value = figure(1);
    }
    device["nccl"]["ring"][0]["share_of_port"] = figure(1);
    json cluster = data_file("presets/dgx-h100.json");
    cluster["name"] = "perfect";
    cluster["device"] = device;
    for (auto& [nodes, value] : cluster["low_latency_gb_per_s"].items()) value = figure(1e9);
    cluster["intra_node"] = {{"name", "perfect-link"},
                             {"kind", "nvlink"},
                             {"bandwidth_gb_per_s_per_direction", figure(1e9)},
                             {"latency_us", figure(0)},
                             {"efficiency", figure(1)}};
    return cluster;
}

}  // namespace orrery::test
