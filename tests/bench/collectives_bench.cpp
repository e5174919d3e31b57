// What it takes to price a 1 GB collective by its links, from 16 to 131,072 GPUs, and how that grows. The cluster and
// its tables of routes are built before. `links` counts the links that get a coefficient, `us` the time that the
// collective was found to take.
#include <benchmark/benchmark.h>

#include <numeric>

#include "sim/network/algorithms/link_loads.h"

namespace orrery {
namespace {

using program::CommKind;
using sim::algorithms::Algorithm;

constexpr double kBytes = 1e9;

void price(benchmark::State& state, Algorithm algorithm, CommKind kind) {
    const std::int64_t gpus = state.range(0);
    const topologies::Cluster cluster(topologies::load_cluster("dgx-h100", gpus));
    std::vector<std::int64_t> devices(static_cast<std::size_t>(gpus));
    std::iota(devices.begin(), devices.end(), 0);
    sim::algorithms::LinkLoads loads(cluster);
    double seconds = loads.of(algorithm, kind, devices).seconds(kBytes);  // the first builds the tables of routes
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

void sizes(benchmark::internal::Benchmark* benchmark) {
    benchmark->RangeMultiplier(8)->Range(16, 131'072)->Arg(4096)->Unit(benchmark::kMillisecond)->Complexity();
}

BENCHMARK_CAPTURE(price, ring_all_reduce, Algorithm::ring, CommKind::all_reduce)->Apply(sizes);
BENCHMARK_CAPTURE(price, double_binary_tree_all_reduce, Algorithm::double_binary_tree, CommKind::all_reduce)
    ->Apply(sizes);
BENCHMARK_CAPTURE(price, hierarchical_all_reduce, Algorithm::hierarchical, CommKind::all_reduce)->Apply(sizes);
BENCHMARK_CAPTURE(price, nvls_all_reduce, Algorithm::nvls, CommKind::all_reduce)->Apply(sizes);
BENCHMARK_CAPTURE(price, collnet_all_reduce, Algorithm::collnet, CommKind::all_reduce)->Apply(sizes);
BENCHMARK_CAPTURE(price, halving_doubling_all_reduce, Algorithm::halving_doubling, CommKind::all_reduce)->Apply(sizes);
BENCHMARK_CAPTURE(price, direct_all_to_all, Algorithm::direct, CommKind::all_to_all)->Apply(sizes);

}  // namespace
}  // namespace orrery
