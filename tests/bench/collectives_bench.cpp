// Time to price a 1 GB collective by its link loads, on 64 to 131,072 GPUs: repeatedly on one cluster, and for the
// first time on a new cluster (whose graph is built beforehand). For comparison, the same run measures the slower
// methods: the same sums by routing every transfer of the schedule, and routes from distance tables found by search.
// `links` counts the links with a coefficient; `us` is the predicted time of the collective.
#include <benchmark/benchmark.h>

#include <memory>
#include <numeric>

#include "core/random.h"
#include "sim/network/algorithms/link_loads.h"
#include "tests/unit/network/schedules/schedule.h"

namespace orrery {
namespace {

using program::CommKind;
using sim::algorithms::Algorithm;
using sim::algorithms::LinkLoads;

constexpr double kBytes = 1e9;

std::vector<std::int64_t> first_devices(std::int64_t count) {
    std::vector<std::int64_t> devices(static_cast<std::size_t>(count));
    std::iota(devices.begin(), devices.end(), 0);
    return devices;
}

topologies::Cluster nodes_of_8(std::int64_t gpus) {
    return topologies::Cluster(topologies::load_cluster("dgx-h100", gpus));
}

void price(benchmark::State& state, Algorithm algorithm, CommKind kind) {
    const std::int64_t gpus = state.range(0);
    const topologies::Cluster cluster = nodes_of_8(gpus);
    const std::vector<std::int64_t> devices = first_devices(gpus);
    LinkLoads loads(cluster);
    double seconds = 0;
    std::size_t links = 0;
    for (auto step : state) {
        const sim::algorithms::CollectiveLoads found = loads.of(algorithm, kind, devices);
        seconds = found.seconds(kBytes);
        links = found.links.size();
    }
    state.counters["us"] = seconds * 1e6;
    state.counters["links"] = static_cast<double>(links);
    state.SetComplexityN(gpus);
}

/// Prices with a new cluster and new sums in each iteration.
void price_once(benchmark::State& state, Algorithm algorithm, CommKind kind) {
    const std::vector<std::int64_t> devices = first_devices(state.range(0));
    for (auto step : state) {
        state.PauseTiming();
        auto cluster = std::make_unique<topologies::Cluster>(nodes_of_8(state.range(0)));
        state.ResumeTiming();
        benchmark::DoNotOptimize(links_of(algorithm, kind, devices, *cluster).seconds(kBytes));
        state.PauseTiming();
        cluster.reset();
        state.ResumeTiming();
    }
    state.SetComplexityN(state.range(0));
}

/// Sums link loads by routing each transfer of the schedule.
void price_by_transfers(benchmark::State& state, Algorithm algorithm, CommKind kind) {
    const std::int64_t gpus = state.range(0);
    const topologies::Cluster cluster = nodes_of_8(gpus);
    const auto group = sim::algorithms::Group::of(cluster, first_devices(gpus));
    std::vector<double> loads(static_cast<std::size_t>(cluster.link_count()));
    topologies::Route route;
    for (auto step : state) {
        const auto schedule = make_schedule(algorithm, {kind, static_cast<std::int64_t>(kBytes), 0, {}}, group);
        for (std::int64_t round = 0; round < schedule.rounds(); ++round) {
            for (std::int64_t rank = 0; rank < gpus; ++rank) {
                schedule.sends(round, rank, [&](const sim::algorithms::Transfer& t) {
                    cluster.find_route(t.from, t.to, route);
                    for (const auto& part : route.parts) {
                        loads[static_cast<std::size_t>(part.link)] += static_cast<double>(t.slice.bytes) / part.stripes;
                    }
                });
            }
        }
        benchmark::DoNotOptimize(loads.data());
    }
    state.SetComplexityN(gpus);
}

/// One route between leaves per GPU, to a random node, with new route tables in each iteration.
template <bool by_search>
void first_routes(benchmark::State& state) {
    const topologies::Cluster cluster = nodes_of_8(state.range(0));
    const topologies::Fabric& fabric = cluster.fabric();
    const RandomStream random(1, "partners");
    std::vector<topologies::LinkId> links;
    for (auto step : state) {
        const auto routes = [&] {
            if constexpr (by_search)
                return std::make_unique<topologies::SwitchRoutes>(cluster.graph());
            else
                return std::make_unique<topologies::FabricRoutes>(cluster.graph(), fabric, cluster.fabric_switch(0));
        }();
        for (std::int64_t device = 0; device < cluster.device_count(); ++device) {
            const auto draw = static_cast<std::uint64_t>(device);
            const std::int64_t node = cluster.node_of(device), rail = cluster.rail_of(device);
            const auto other =
                static_cast<std::int64_t>(random.below(draw, static_cast<std::uint64_t>(cluster.spec().nodes)));
            const std::int64_t from = fabric.edge_switch(node, rail), to = fabric.edge_switch(other, rail);
            links.clear();
            if constexpr (by_search) {
                routes->append_route(cluster.fabric_switch(from), cluster.fabric_switch(to), draw, links);
            } else {
                routes->for_each_link(from, to, draw, [&](topologies::LinkId link) { links.push_back(link); });
            }
            benchmark::DoNotOptimize(links.data());
        }
    }
    state.SetComplexityN(state.range(0));
}

void sizes(benchmark::internal::Benchmark* benchmark) {
    benchmark->RangeMultiplier(8)->Range(64, 131'072)->Unit(benchmark::kMillisecond)->Complexity();
}
void few(benchmark::internal::Benchmark* benchmark) {
    benchmark->Arg(64)->Arg(256)->Arg(512)->Unit(benchmark::kMillisecond)->Complexity();
}

BENCHMARK_CAPTURE(price, ring_all_reduce, Algorithm::ring, CommKind::all_reduce)->Apply(sizes);
BENCHMARK_CAPTURE(price, double_binary_tree_all_reduce, Algorithm::double_binary_tree, CommKind::all_reduce)
    ->Apply(sizes);
BENCHMARK_CAPTURE(price, hierarchical_all_reduce, Algorithm::hierarchical, CommKind::all_reduce)->Apply(sizes);
BENCHMARK_CAPTURE(price, nvls_all_reduce, Algorithm::nvls, CommKind::all_reduce)->Apply(sizes);
BENCHMARK_CAPTURE(price, collnet_all_reduce, Algorithm::collnet, CommKind::all_reduce)->Apply(sizes);
BENCHMARK_CAPTURE(price, halving_doubling_all_reduce, Algorithm::halving_doubling, CommKind::all_reduce)->Apply(sizes);
BENCHMARK_CAPTURE(price, direct_all_to_all, Algorithm::direct, CommKind::all_to_all)->Apply(sizes);
BENCHMARK_CAPTURE(price_once, ring_all_reduce, Algorithm::ring, CommKind::all_reduce)->Apply(sizes);
BENCHMARK_CAPTURE(price_once, double_binary_tree_all_reduce, Algorithm::double_binary_tree, CommKind::all_reduce)
    ->Apply(sizes);
BENCHMARK_CAPTURE(price_once, hierarchical_all_reduce, Algorithm::hierarchical, CommKind::all_reduce)->Apply(sizes);
BENCHMARK_CAPTURE(price_once, nvls_all_reduce, Algorithm::nvls, CommKind::all_reduce)->Apply(sizes);
BENCHMARK_CAPTURE(price_once, collnet_all_reduce, Algorithm::collnet, CommKind::all_reduce)->Apply(sizes);
BENCHMARK_CAPTURE(price_by_transfers, ring_all_reduce, Algorithm::ring, CommKind::all_reduce)->Apply(few);
BENCHMARK_CAPTURE(price_by_transfers, halving_doubling_all_reduce, Algorithm::halving_doubling, CommKind::all_reduce)
    ->Apply(few);
BENCHMARK_TEMPLATE(first_routes, false)->Name("first_routes/by_geometry")->Apply(sizes);
BENCHMARK_TEMPLATE(first_routes, true)->Name("first_routes/by_search")->Apply(sizes);

}  // namespace
}  // namespace orrery
