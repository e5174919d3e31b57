// A non-blocking fat tree of two switch levels with D-mod-k routes: the platform on which flow engines are compared.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "sim/network/flow_engine.h"

namespace orrery::peers {

inline constexpr double kLinkBytesPerSecond = 12.5e9;
inline constexpr std::int64_t kLinkLatency_ps = 1'000'000;

/// Each leaf has as many hosts as there are spines, and one link to every spine. A route to another leaf crosses spine
/// number (destination mod number of spines).
struct FatTree {
    std::int32_t hosts = 0;
    std::int32_t hosts_of_leaf = 0;  // also the number of spines

    /// `count`: a power of two, at least 4. There are at least as many leaves as hosts per leaf.
    explicit FatTree(std::int32_t count) : hosts(count), hosts_of_leaf(1) {
        while (4 * hosts_of_leaf * hosts_of_leaf <= hosts) hosts_of_leaf *= 2;
    }
    [[nodiscard]] std::int32_t leaves() const { return hosts / hosts_of_leaf; }
    [[nodiscard]] std::int32_t leaf_of(std::int32_t host) const { return host / hosts_of_leaf; }
    [[nodiscard]] std::int32_t link_count() const { return 4 * hosts; }
    /// Links are numbered: up links of the hosts, their down links, up links of the leaves, their down links.
    [[nodiscard]] std::vector<std::int32_t> route(std::int32_t from, std::int32_t to) const {
        if (leaf_of(from) == leaf_of(to)) return {from, hosts + to};
        const std::int32_t spine = to % hosts_of_leaf;
        return {from, 2 * hosts + leaf_of(from) * hosts_of_leaf + spine,
                3 * hosts + leaf_of(to) * hosts_of_leaf + spine, hosts + to};
    }
    [[nodiscard]] std::vector<sim::FlowLink> links() const {
        std::vector<sim::FlowLink> result;
        for (std::int32_t link = 0; link < link_count(); ++link) {
            std::string name = "link ";
            name += std::to_string(link);
            result.push_back({name, kLinkBytesPerSecond});
        }
        return result;
    }
};

/// Default message size of the benchmarks: 1 GiB.
inline constexpr std::int64_t kMessageBytes = std::int64_t{1} << 30;

}  // namespace orrery::peers
