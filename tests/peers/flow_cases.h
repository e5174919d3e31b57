// The cases in which the flow engine is compared, on the platform of fat_tree.h. A flow's weight is 1 / latency, as in
// SimGrid's model. Each case returns the simulated picoseconds.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "sim/network/flow_engine.h"
#include "tests/peers/fat_tree.h"
#include "tests/peers/ring_order.h"

namespace orrery::peers {

inline std::int64_t latency_of(const std::vector<std::int32_t>& route) {
    return kLinkLatency_ps * static_cast<std::int64_t>(route.size());
}

inline std::int32_t add_route(sim::FlowEngine& engine, const std::vector<std::int32_t>& route) {
    std::vector<sim::PathLink> path;
    for (const std::int32_t link : route) path.push_back({link, 1});
    return engine.add_path(path);
}

/// A ring all-reduce as one flow per rank and step.
inline std::int64_t ring(const FatTree& tree, std::int64_t bytes) {
    sim::FlowEngine engine(tree.links());
    RingOrder order(tree.hosts, bytes);
    std::vector<sim::Flow> flows;
    for (std::int32_t host = 0; host < tree.hosts; ++host) {
        const std::vector<std::int32_t> route = tree.route(host, (host + 1) % tree.hosts);
        flows.push_back({.path = add_route(engine, route), .bytes = order.chunk(), .latency_ps = latency_of(route)});
    }
    const auto start = [&](std::int64_t flow) {
        sim::Flow started = flows[static_cast<std::size_t>(flow % order.hosts())];
        started.tag = flow;
        engine.start(started, engine.now_ps());
    };
    for (std::int64_t host = 0; host < order.hosts(); ++host) start(host);
    engine.run([&](const sim::FlowEnd& end) { order.ended(end.tag, start); });
    return engine.now_ps();
}

/// The same ring as a single flow: every link of the ring carries one chunk per step.
inline std::int64_t collective(const FatTree& tree, std::int64_t bytes) {
    sim::FlowEngine engine(tree.links());
    const RingOrder order(tree.hosts, bytes);
    std::vector<sim::PathLink> path;
    std::int64_t slowest_ps = 0;
    for (std::int32_t host = 0; host < tree.hosts; ++host) {
        const std::vector<std::int32_t> route = tree.route(host, (host + 1) % tree.hosts);
        for (const std::int32_t link : route) path.push_back({link, static_cast<double>(order.steps())});
        slowest_ps = std::max(slowest_ps, latency_of(route));
    }
    engine.start({.path = engine.add_path(path), .bytes = order.chunk(), .latency_ps = order.steps() * slowest_ps}, 0);
    engine.run();
    return engine.now_ps();
}

/// A flow from every host to every other, all at once.
inline std::int64_t all_to_all(const FatTree& tree, std::int64_t bytes) {
    sim::FlowEngine engine(tree.links());
    for (std::int32_t from = 0; from < tree.hosts; ++from) {
        for (std::int32_t to = 0; to < tree.hosts; ++to) {
            if (from == to) continue;
            const std::vector<std::int32_t> route = tree.route(from, to);
            engine.start({.path = add_route(engine, route),
                          .bytes = bytes / tree.hosts,
                          .latency_ps = latency_of(route),
                          .weight = route.size() == 2 ? 2 : 1},
                         0);
        }
    }
    engine.run();
    return engine.now_ps();
}

}  // namespace orrery::peers
