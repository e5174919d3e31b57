// Our all-reduce (progress thread, own collectives) beside MPI_Allreduce, in the same run and alternating, so that both
// see the same machine:
//   mpirun -np 2 --oversubscribe --bind-to none build/release/transport_bench [--max-mib 64] [--set NAME=VALUE]…
// Then what is left of a computation's speed while an all-reduce is under way.
// A rank's time of one operation runs from post() to the return of wait(); the table shows the median over repetitions
// of the slowest rank.
#define OMPI_SKIP_MPICXX 1
#include <mpi.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "core/error.h"
#include "exec/transport/progress.h"
#include "exec/transport/transport.h"

namespace {

using namespace orrery;
using exec::now_ns;
using exec::ProgressEngine;
using program::CommKind;
using program::Stream;

double median(std::vector<double> values) {
    std::nth_element(values.begin(), values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2), values.end());
    return values[values.size() / 2];
}

/// Microseconds of the slowest rank. The engine is idle, so the main thread may call MPI.
double slowest_us(const std::function<void()>& operation) {
    MPI_Barrier(MPI_COMM_WORLD);
    const std::int64_t begin = now_ns();
    operation();
    double us = static_cast<double>(now_ns() - begin) / 1e3;
    MPI_Allreduce(MPI_IN_PLACE, &us, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
    return us;
}

/// Work that stays in the L1 cache and that the compiler cannot skip.
double compute(int rounds) {
    std::vector<double> x(1024, 1.0);
    for (int r = 0; r < rounds; ++r) {
        for (double& element : x) element = element * 0.999999 + 1e-6;
    }
    return x[17];
}

void all_reduce_table(exec::Transport& transport, ProgressEngine& engine, exec::GroupHandle world,
                      std::int64_t largest) {
    const int n = transport.world_size();
    std::vector<float> data(static_cast<std::size_t>(largest / 4), 0.0F);
    if (transport.rank() == 0) {
        std::printf("%d ranks on %d cores; all-reduce of fp32, in place; busbw = 2(n-1)/n S/t\n", n, transport.cores());
        std::printf("%10s %12s %12s %10s %10s %7s\n", "bytes", "ours us", "MPI us", "ours GB/s", "MPI GB/s", "ratio");
    }
    for (std::int64_t bytes = 4; bytes <= largest; bytes *= 4) {
        const int repetitions = static_cast<int>(std::clamp<std::int64_t>((std::int64_t{32} << 20) / bytes, 9, 301));
        std::vector<double> ours, theirs;
        for (int i = 0; i < repetitions; ++i) {
            ours.push_back(slowest_us([&] {
                engine.wait(Stream::tp, engine.post(Stream::tp, {.kind = CommKind::all_reduce,
                                                                 .elements = bytes / 4,
                                                                 .in = data.data(),
                                                                 .out = data.data(),
                                                                 .group = world}));
            }));
            theirs.push_back(slowest_us([&] {
                MPI_Allreduce(MPI_IN_PLACE, data.data(), static_cast<int>(bytes / 4), MPI_FLOAT, MPI_SUM,
                              MPI_COMM_WORLD);
            }));
        }
        if (transport.rank() != 0) continue;
        const double factor = 2.0 * (n - 1) / n * static_cast<double>(bytes) / 1e3;
        const double a = median(ours);
        const double b = median(theirs);
        std::printf("%10lld %12.1f %12.1f %10.3f %10.3f %7.2f\n", static_cast<long long>(bytes), a, b, factor / a,
                    factor / b, a / b);
    }
}

void overlap_table(exec::Transport& transport, ProgressEngine& engine, exec::GroupHandle world) {
    constexpr std::int64_t kElements = 4 << 20;
    constexpr int kRepetitions = 9;
    std::vector<float> data(kElements, 0.0F);
    double sink = 0;
    const auto post = [&] {
        return engine.post(Stream::dp, {.kind = CommKind::all_reduce,
                                        .elements = kElements,
                                        .in = data.data(),
                                        .out = data.data(),
                                        .group = world});
    };
    std::vector<double> alone, computing, both, communicating;
    constexpr int kRounds = 100000;
    constexpr int kParts = 100;  // between two looks at the all-reduce
    for (int i = 0; i < kRepetitions; ++i) {
        alone.push_back(slowest_us([&] { engine.wait(Stream::dp, post()); }));
        computing.push_back(slowest_us([&] {
            for (int part = 0; part < kParts; ++part) sink += compute(kRounds / kParts);
        }));
        double done_us = 0;
        both.push_back(slowest_us([&] {
            const std::int64_t begin = now_ns();
            const std::int64_t sequence = post();
            for (int part = 0; part < kParts; ++part) {
                sink += compute(kRounds / kParts);
                if (done_us == 0 && engine.completed(Stream::dp) >= sequence)
                    done_us = static_cast<double>(now_ns() - begin) / 1e3;
            }
            engine.wait(Stream::dp, sequence);
            if (done_us == 0) done_us = static_cast<double>(now_ns() - begin) / 1e3;
        }));
        communicating.push_back(done_us);
    }
    if (transport.rank() != 0) return;
    std::printf(
        "16 MiB all-reduce alone %.0f us, computation alone %.0f us, both at once %.0f us (one after the other %.0f), "
        "the all-reduce then done after %.0f us%s\n",
        median(alone), median(computing), median(both), median(alone) + median(computing), median(communicating),
        std::isfinite(sink) ? "" : "!");
}

void tune(exec::ProgressTuning& tuning, const std::string& setting) {
    const std::map<std::string, int*> known = {
        {"polls_before_sleep", &tuning.polls_before_sleep},
        {"shortest_sleep_us", &tuning.shortest_sleep_us},
        {"longest_sleep_us", &tuning.longest_sleep_us},
        {"polls_per_yield", &tuning.polls_per_yield},
        {"crowded_yields_before_sleep", &tuning.crowded_yields_before_sleep},
        {"crowded_sleep_us", &tuning.crowded_sleep_us},
        {"wait_spin_us", &tuning.wait_spin_us},
    };
    const std::size_t equals = setting.find('=');
    const auto found = known.find(setting.substr(0, equals));
    if (equals == std::string::npos || found == known.end()) throw InputError("--set: unknown setting " + setting);
    *found->second = std::atoi(setting.c_str() + equals + 1);
}

}  // namespace

int main(int argc, char** argv) {
    exec::Transport transport;
    try {
        std::int64_t largest = std::int64_t{64} << 20;
        exec::ProgressTuning tuning;
        for (int i = 1; i + 1 < argc; i += 2) {
            if (std::string(argv[i]) == "--max-mib") largest = std::int64_t{std::atoi(argv[i + 1])} << 20;
            if (std::string(argv[i]) == "--set") tune(tuning, argv[i + 1]);
        }
        std::vector<int> all;
        for (int r = 0; r < transport.world_size(); ++r) all.push_back(r);
        const exec::GroupHandle world = transport.create_group(all);
        ProgressEngine engine(transport, tuning);
        all_reduce_table(transport, engine, world, largest);
        overlap_table(transport, engine, world);
    } catch (const std::exception& error) {
        transport.abort(kExitJobFailed, error.what());
    }
    return kExitDone;
}
