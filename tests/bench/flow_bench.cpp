// The flow engine: throughput and growth of its cost, and the same work in SimGrid if libsimgrid-dev is installed.
// Counter "events": starts and ends of flows per second.
#include <benchmark/benchmark.h>

#include <algorithm>
#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "core/random.h"
#include "sim/network/flow_engine.h"
#include "tests/peers/flow_cases.h"
#include "tests/peers/run_worker.h"

namespace orrery {
namespace {

using peers::FatTree;

void count_events(benchmark::State& state, std::int64_t flows) {
    state.counters["events"] =
        benchmark::Counter(2.0 * static_cast<double>(flows), benchmark::Counter::kIsIterationInvariantRate);
}

// ---- rings and all-to-alls on a fat tree
// ------------------------------------------------------------------------------

void ring(benchmark::State& state) {
    const FatTree tree(static_cast<std::int32_t>(state.range(0)));
    for (auto _ : state) benchmark::DoNotOptimize(peers::ring(tree, peers::kMessageBytes));
    const std::int64_t flows = 2 * (state.range(0) - 1) * state.range(0);
    count_events(state, flows);
    state.SetComplexityN(flows);
}
BENCHMARK(ring)
    ->Name("ring all-reduce on a fat tree as point-to-point flows, by hosts")
    ->RangeMultiplier(2)
    ->Range(64, 1024)
    ->Unit(benchmark::kMillisecond)
    ->Complexity(benchmark::oN);

void collective(benchmark::State& state) {
    const FatTree tree(static_cast<std::int32_t>(state.range(0)));
    for (auto _ : state) benchmark::DoNotOptimize(peers::collective(tree, peers::kMessageBytes));
    state.SetComplexityN(state.range(0));
}
BENCHMARK(collective)
    ->Name("ring all-reduce on a fat tree as one collective, by hosts")
    ->RangeMultiplier(4)
    ->Range(64, 16'384)
    ->Unit(benchmark::kMillisecond)
    ->Complexity(benchmark::oN);

void all_to_all(benchmark::State& state) {
    const FatTree tree(static_cast<std::int32_t>(state.range(0)));
    for (auto _ : state) benchmark::DoNotOptimize(peers::all_to_all(tree, peers::kMessageBytes));
    const std::int64_t flows = state.range(0) * (state.range(0) - 1);
    count_events(state, flows);
    state.counters["flows"] = static_cast<double>(flows);
    state.SetComplexityN(flows);
}
BENCHMARK(all_to_all)
    ->Name("all-to-all on a fat tree, all flows at once, by hosts")
    ->RangeMultiplier(2)
    ->Range(64, 512)
    ->Unit(benchmark::kMillisecond)
    ->Complexity(benchmark::oN);

// ---- flows that follow each other
// -------------------------------------------------------------------------------------

/// A constant number of concurrent flows over random paths: each flow that ends is followed by another.
struct Traffic {
    std::int64_t at_once = 0;
    std::int64_t links = 0;
    std::int64_t hops = 0;
    std::int64_t follow = 0;  // total number of flows
};

struct TrafficResult {
    double mean_neighbours = 0;  // number of flows sharing a link with a flow, over the initial flows
    double least_neighbours = 0;
};

class TrafficRun {
  public:
    explicit TrafficRun(const Traffic& traffic) : traffic_(traffic), engine_(links(traffic.links)) {
        for (std::int64_t i = 0; i < traffic.at_once * 4; ++i) {
            std::set<std::int32_t> chosen;
            while (static_cast<std::int64_t>(chosen.size()) < traffic.hops) {
                chosen.insert(static_cast<std::int32_t>(below(traffic.links)));
            }
            paths_.emplace_back(chosen.begin(), chosen.end());
            peers::add_route(engine_, paths_.back());
        }
    }
    void run() {
        for (std::int64_t i = 0; i < traffic_.at_once; ++i) start(static_cast<std::int32_t>(i));
        engine_.run([this](const sim::FlowEnd&) {
            if (started_ < traffic_.follow) start(static_cast<std::int32_t>(below(traffic_.at_once * 4)));
        });
    }
    [[nodiscard]] TrafficResult neighbours() const {
        std::vector<std::vector<std::int64_t>> users(static_cast<std::size_t>(traffic_.links));
        for (std::int64_t flow = 0; flow < traffic_.at_once; ++flow) {
            for (const std::int32_t link : paths_[static_cast<std::size_t>(flow)]) {
                users[static_cast<std::size_t>(link)].push_back(flow);
            }
        }
        TrafficResult result{0, static_cast<double>(traffic_.at_once)};
        for (std::int64_t flow = 0; flow < traffic_.at_once; ++flow) {
            std::set<std::int64_t> others;
            for (const std::int32_t link : paths_[static_cast<std::size_t>(flow)]) {
                others.insert(users[static_cast<std::size_t>(link)].begin(),
                              users[static_cast<std::size_t>(link)].end());
            }
            const auto count = static_cast<double>(others.size()) - 1;
            result.mean_neighbours += count / static_cast<double>(traffic_.at_once);
            result.least_neighbours = std::min(result.least_neighbours, count);
        }
        return result;
    }

  private:
    static std::vector<sim::FlowLink> links(std::int64_t count) {
        return std::vector<sim::FlowLink>(static_cast<std::size_t>(count), {"link", peers::kLinkBytesPerSecond});
    }
    std::int64_t below(std::int64_t bound) {
        return static_cast<std::int64_t>(random_.below(draws_++, static_cast<std::uint64_t>(bound)));
    }
    void start(std::int32_t path) {
        ++started_;
        engine_.start({.tag = started_, .path = path, .bytes = 1'000'000 + below(9'000'000), .latency_ps = 1'000'000},
                      engine_.now_ps());
    }

    Traffic traffic_;
    sim::FlowEngine engine_;
    RandomStream random_{1, "traffic"};
    std::uint64_t draws_ = 0;
    std::vector<std::vector<std::int32_t>> paths_;
    std::int64_t started_ = 0;
};

void run_traffic(benchmark::State& state, const Traffic& traffic) {
    for (auto _ : state) {
        state.PauseTiming();
        TrafficRun run(traffic);
        const TrafficResult neighbours = run.neighbours();
        state.ResumeTiming();
        run.run();
        state.counters["neighbours"] = neighbours.mean_neighbours;
        state.counters["fewest"] = neighbours.least_neighbours;
    }
    count_events(state, traffic.follow);
}

/// With 8 links per flow, a flow shares links with about two others.
void few_neighbours(benchmark::State& state) {
    run_traffic(state, {state.range(0), 8 * state.range(0), 4, 20 * state.range(0)});
    state.SetComplexityN(state.range(0));
}
BENCHMARK(few_neighbours)
    ->Name("random flows of 4 links with few neighbours, by flows at once")
    ->RangeMultiplier(10)
    ->Range(100, 10'000)
    ->Unit(benchmark::kMillisecond)
    ->Complexity(benchmark::oN);

/// With as many links as flows, four flows cross each link, and a flow shares links with about 16 others.
void many_neighbours(benchmark::State& state) {
    run_traffic(state, {state.range(0), state.range(0), 4, 20 * state.range(0)});
    state.SetComplexityN(state.range(0));
}
BENCHMARK(many_neighbours)
    ->Name("random flows of 4 links with many neighbours, by flows at once")
    ->Arg(250)
    ->Arg(1000)
    ->Arg(4000)
    ->Unit(benchmark::kMillisecond)
    ->Complexity(benchmark::oN);

// ---- comparison with SimGrid
// ---------------------------------------------------------------------------------------------------

/// The fastest of five runs, to exclude noise from other processes; a single run above 256 hosts.
peers::WorkerResult run_best(const std::string& program, const std::string& work, std::int64_t hosts) {
    peers::WorkerResult best = peers::run_worker(program, work + " " + std::to_string(hosts));
    for (int again = 0; again < 4 && hosts <= 256; ++again) {
        const peers::WorkerResult result = peers::run_worker(program, work + " " + std::to_string(hosts));
        if (result.cpu_s < best.cpu_s) best = result;
    }
    return best;
}

/// Runs each simulator in its own process and reports CPU seconds from the start of main, including platform and
/// routes, and peak memory. SimGrid uses the faster of the two implementations of the ring.
void beside_simgrid(benchmark::State& state) {
    if (std::string(SIMGRID_WORKER).empty()) {
        state.SkipWithError("libsimgrid-dev is not installed: nothing to compare with");
        return;
    }
    const std::int64_t hosts = state.range(0);
    for (auto _ : state) {
        const peers::WorkerResult callbacks = run_best(SIMGRID_WORKER, "ring-of-callbacks", hosts);
        const peers::WorkerResult actors = run_best(SIMGRID_WORKER, "ring-of-actors", hosts);
        const peers::WorkerResult& theirs = callbacks.cpu_s < actors.cpu_s ? callbacks : actors;
        const peers::WorkerResult flows = run_best(FLOW_WORKER, "ring", hosts);
        const peers::WorkerResult whole = run_best(FLOW_WORKER, "collective", hosts);
        state.SetIterationTime(flows.cpu_s);
        state.counters["simgrid_ms"] = 1e3 * theirs.cpu_s;
        state.counters["times_as_flows"] = theirs.cpu_s / flows.cpu_s;
        state.counters["times_as_collective"] = theirs.cpu_s / whole.cpu_s;
        state.counters["simulated"] = flows.simulated_ps / theirs.simulated_ps;
        state.counters["simulated_collective"] = whole.simulated_ps / theirs.simulated_ps;
        state.counters["memory"] = std::max(flows.peak_kib, whole.peak_kib) / theirs.peak_kib;
        state.counters["simgrid_mib"] = theirs.peak_kib / 1024;
    }
}
BENCHMARK(beside_simgrid)
    ->Name("ring all-reduce on a fat tree compared with SimGrid, by hosts")
    ->RangeMultiplier(4)
    ->Range(64, 1024)
    ->Unit(benchmark::kMillisecond)
    ->UseManualTime()
    ->Iterations(1);

void all_to_all_beside_simgrid(benchmark::State& state) {
    if (std::string(SIMGRID_WORKER).empty()) {
        state.SkipWithError("libsimgrid-dev is not installed: nothing to compare with");
        return;
    }
    const std::string work = "all-to-all " + std::to_string(state.range(0));
    for (auto _ : state) {
        const peers::WorkerResult theirs = peers::run_worker(SIMGRID_WORKER, work);
        const peers::WorkerResult ours = peers::run_worker(FLOW_WORKER, work);
        state.SetIterationTime(ours.cpu_s);
        state.counters["simgrid_ms"] = 1e3 * theirs.cpu_s;
        state.counters["times"] = theirs.cpu_s / ours.cpu_s;
        state.counters["simulated"] = ours.simulated_ps / theirs.simulated_ps;
        state.counters["memory"] = ours.peak_kib / theirs.peak_kib;
    }
}
BENCHMARK(all_to_all_beside_simgrid)
    ->Name("all-to-all on a fat tree compared with SimGrid, by hosts")
    ->RangeMultiplier(2)
    ->Range(64, 128)
    ->Unit(benchmark::kMillisecond)
    ->UseManualTime()
    ->Iterations(1);

}  // namespace
}  // namespace orrery
