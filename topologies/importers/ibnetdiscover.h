// Output of `ibnetdiscover`: every switch and channel adapter of an InfiniBand fabric with the cable on each port.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "topologies/importers/fabric_description.h"

namespace orrery::topologies {

struct IbDevice {
    std::string guid;  // "S-2c5eab0300b87b40" or "H-…"
    std::string name;  // description in the file: "MF0;leaf-1:MQM9701/U1", "node7 mlx5_5"
    bool is_switch = false;
    std::int64_t ports = 0;
};

/// A cable, listed once. If the file lists both ends, `a` comes before `b` in the file.
struct IbCable {
    std::int64_t a = 0, a_port = 0, b = 0, b_port = 0;  // indices into devices
    std::int64_t lanes = 0;
    std::string rate;  // "NDR"
    double gb_per_s_per_direction = 0;
};

struct IbFabric {
    std::vector<IbDevice> devices;
    std::vector<IbCable> cables;
    Notes notes;
};

/// Data rate of one lane: SDR 2, DDR 4, QDR 8, FDR10 10, FDR 13.64, EDR 25, HDR 50, NDR 100, XDR 200 Gb/s. 0: unknown.
[[nodiscard]] double ib_lane_gbit_per_s(std::string_view rate);
/// The host of a channel adapter, from its description ("node7 HCA-6", "node7 mlx5_5"). "" for default descriptions,
/// which name the product, and for the aggregation nodes (SHARP) inside switches.
[[nodiscard]] std::string ib_host(const IbDevice& device);
[[nodiscard]] bool is_aggregation_node(const IbDevice& device);

/// Throws InputError naming file, line, value and what is allowed. If both ends of a cable are listed, they must agree.
[[nodiscard]] IbFabric ibnetdiscover_from_text(const std::string& text, const std::string& file);

/// Switches with their hosts and the cables between them. Switches may be cabled in any way: their tier is their
/// distance from the hosts.
[[nodiscard]] FabricDescription fabric_of(const IbFabric& ib);

}  // namespace orrery::topologies
