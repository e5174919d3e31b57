// Time and memory of a cluster's graph by size, and the time of a path query. Sizes grow eightfold; the fitted growth
// is printed at the end of each family.
#include <benchmark/benchmark.h>
#include <malloc.h>

#include <algorithm>
#include <cstdint>

#include "core/random.h"
#include "topologies/bisection.h"
#include "topologies/cluster.h"

namespace orrery::topologies {
namespace {

/// Nodes of 8 H100 behind 4 NVSwitches, on three tiers of 128-port switches.
ClusterSpec rails(std::int64_t devices) {
    ClusterSpec spec = load_cluster("dgx-h100", devices);
    spec.fabric_shape.radix = 128;
    return spec;
}

ClusterSpec fat_tree(std::int64_t devices) {
    ClusterSpec spec = load_cluster("dgx-h100", devices);
    spec.fabric = FabricKind::fat_tree;
    spec.fabric_shape = {.radix = 128, .levels = 3};
    return spec;
}

/// Marks one in a hundred links between leaf and spine as failed.
ClusterSpec with_failures(ClusterSpec spec) {
    const Cluster whole(spec);
    const RandomStream random(1, "failed");
    for (LinkId id = 0; id < whole.link_count(); ++id) {
        const Link& link = whole.link(id);
        if (link.kind != LinkKind::trunk || link.from > link.to) continue;
        if (random.below(static_cast<std::uint64_t>(id), 100) > 0) continue;
        spec.overrides.push_back({whole.graph().name(link.from) + " - " + whole.graph().name(link.to), -1, -1, 0});
    }
    return spec;
}

double heap_mb() {
    return static_cast<double>(mallinfo2().uordblks + mallinfo2().hblkhd) / 1e6;
}

void build(benchmark::State& state, const ClusterSpec& spec) {
    double megabytes = 0;
    for (auto _ : state) {
        const double before = heap_mb();
        const Cluster cluster(spec);
        megabytes = heap_mb() - before;
        benchmark::DoNotOptimize(cluster.link_count());
    }
    const Cluster cluster(spec);
    state.counters["MB"] = megabytes;
    state.counters["links"] = cluster.link_count();
    state.SetComplexityN(spec.device_count());
}

void paths(benchmark::State& state, const ClusterSpec& spec) {
    const Cluster cluster(spec);
    const RandomStream random(2, "pairs");
    const auto devices = static_cast<std::uint64_t>(cluster.device_count());
    // With failed links, the first query for a destination searches for its distances; do that before timing.
    const Fabric& fabric = cluster.fabric();
    for (std::int64_t edge = 0; !spec.overrides.empty() && edge < std::max(fabric.leaves(), fabric.routers()); ++edge) {
        const VertexId to = cluster.fabric_switch(edge);
        benchmark::DoNotOptimize(cluster.fabric_routes().searched().distance(to, to));
    }
    std::uint64_t draw = 0;
    for (auto _ : state) {
        const auto a = static_cast<std::int64_t>(random.below(draw, devices));
        const auto b = static_cast<std::int64_t>(random.below(draw + 1, devices));
        draw += 2;
        benchmark::DoNotOptimize(cluster.path(a, b));
    }
    state.counters["paths/s"] =
        benchmark::Counter(static_cast<double>(state.iterations()), benchmark::Counter::kIsRate);
    state.counters["tables_MB"] = static_cast<double>(cluster.fabric_routes().searched().bytes()) / 1e6;
    state.SetComplexityN(spec.device_count());
}

void build_rails(benchmark::State& state) {
    build(state, rails(state.range(0)));
}
void build_fat_tree(benchmark::State& state) {
    build(state, fat_tree(state.range(0)));
}
void paths_rails(benchmark::State& state) {
    paths(state, rails(state.range(0)));
}
void paths_fat_tree(benchmark::State& state) {
    paths(state, fat_tree(state.range(0)));
}
void paths_around_failures(benchmark::State& state) {
    paths(state, with_failures(rails(state.range(0))));
}
void bisection_closed_form(benchmark::State& state) {
    const Cluster cluster(rails(state.range(0)));
    for (auto _ : state) benchmark::DoNotOptimize(bisection_bandwidth(cluster));
}
void bisection_minimum_cut(benchmark::State& state) {
    const Cluster cluster(with_failures(rails(state.range(0))));
    for (auto _ : state) benchmark::DoNotOptimize(bisection_bandwidth(cluster));
}

void sizes(benchmark::internal::Benchmark* family) {
    family->RangeMultiplier(8)->Range(256, 131072)->Complexity()->Unit(benchmark::kMillisecond);
}
BENCHMARK(build_rails)->Apply(sizes);
BENCHMARK(build_fat_tree)->Apply(sizes);
BENCHMARK(paths_rails)->RangeMultiplier(8)->Range(256, 131072)->Complexity();
BENCHMARK(paths_fat_tree)->RangeMultiplier(8)->Range(256, 131072)->Complexity();
BENCHMARK(paths_around_failures)->RangeMultiplier(8)->Range(256, 131072)->Complexity();
BENCHMARK(bisection_closed_form)->RangeMultiplier(8)->Range(256, 131072);
BENCHMARK(bisection_minimum_cut)->RangeMultiplier(8)->Range(256, 131072)->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace orrery::topologies
