// Compares our collectives (progress thread, own message plans) with MPI's, alternating in the same run, so that both
// see the same machine state:
//   mpirun -np 2 --oversubscribe --bind-to none build/release/transport_bench [OPTION VALUE]…
// with --max-mib (default 64), --repetitions (maximum, default 301), --only KIND and --set NAME=VALUE (a member of
// ProgressTuning). Prints a table for each kind; bytes are the message size S of program::CommKind, busbw is as in
// nccl-tests. The blocks of an all-to-all with counts add up to about S. The last result is the speed of a computation
// while an all-reduce is in flight. The time of an operation on a rank runs from post() to the return of wait(); tables
// show the median over repetitions of the slowest rank.
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
using exec::Operation;
using exec::ProgressEngine;
using program::CommKind;
using program::Stream;

double median(std::vector<double> values) {
    std::nth_element(values.begin(), values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2), values.end());
    return values[values.size() / 2];
}

/// Microseconds of the slowest rank. The progress engine is idle, so the main thread may call MPI.
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

/// One kind of collective: our operation, the same through MPI, and busbw / algbw.
struct Contest {
    const char* name;
    double bus_factor;
    Operation operation;           // its `elements` are filled in later
    std::function<void(int)> mpi;  // elements
};

/// Limits of the tables.
struct Extent {
    std::int64_t largest = std::int64_t{64} << 20;  // bytes
    int most_repetitions = 301;
    [[nodiscard]] int repetitions(std::int64_t bytes) const {
        const auto fitting = std::clamp<std::int64_t>((std::int64_t{32} << 20) / bytes, 9, 301);
        return static_cast<int>(std::min<std::int64_t>(fitting, most_repetitions));
    }
};

void table(exec::Transport& transport, ProgressEngine& engine, const Contest& contest, const Extent& extent) {
    const int n = transport.world_size();
    if (transport.rank() == 0) {
        std::printf("%d ranks on %d cores; %s of fp32; busbw = %.3g S/t\n", n, transport.cores(), contest.name,
                    contest.bus_factor);
        std::printf("%10s %12s %12s %10s %10s %7s\n", "bytes", "ours us", "MPI us", "ours GB/s", "MPI GB/s", "ratio");
    }
    for (std::int64_t elements = n; elements * 4 <= extent.largest; elements *= 4) {
        const std::int64_t bytes = elements * 4;
        const int repetitions = extent.repetitions(bytes);
        Operation operation = contest.operation;
        operation.elements = elements;
        std::vector<double> ours, theirs;
        for (int i = 0; i < repetitions; ++i) {
            ours.push_back(slowest_us([&] { engine.wait(Stream::tp, engine.post(Stream::tp, operation)); }));
            theirs.push_back(slowest_us([&] { contest.mpi(static_cast<int>(elements)); }));
        }
        if (transport.rank() != 0) continue;
        const double factor = contest.bus_factor * static_cast<double>(bytes) / 1e3;
        const double a = median(ours);
        const double b = median(theirs);
        std::printf("%10lld %12.1f %12.1f %10.3f %10.3f %7.2f\n", static_cast<long long>(bytes), a, b, factor / a,
                    factor / b, a / b);
    }
}

void tables(exec::Transport& transport, ProgressEngine& engine, exec::GroupHandle world, const Extent& extent,
            const std::string& only) {
    const int n = transport.world_size();
    const int me = transport.rank();
    std::vector<float> in(static_cast<std::size_t>(extent.largest / 4), 0.0F);
    std::vector<float> out(in.size(), 0.0F);
    const double shared = (n - 1.0) / n;
    const auto operation = [&](CommKind kind) {
        return Operation{.kind = kind, .in = in.data(), .out = out.data(), .group = world};
    };
    Operation in_place = operation(CommKind::all_reduce);
    in_place.out = in.data();
    const int right = (me + 1) % n;
    const int left = (me + n - 1) % n;
    const MPI_Comm comm = MPI_COMM_WORLD;
    const std::vector<Contest> contests = {
        {"all-reduce in place", 2 * shared, in_place,
         [&](int e) { MPI_Allreduce(MPI_IN_PLACE, in.data(), e, MPI_FLOAT, MPI_SUM, comm); }},
        {"all-gather", shared, operation(CommKind::all_gather),
         [&](int e) { MPI_Allgather(in.data(), e / n, MPI_FLOAT, out.data(), e / n, MPI_FLOAT, comm); }},
        {"reduce-scatter", shared, operation(CommKind::reduce_scatter),
         [&](int e) { MPI_Reduce_scatter_block(in.data(), out.data(), e / n, MPI_FLOAT, MPI_SUM, comm); }},
        {"broadcast", 1, operation(CommKind::broadcast), [&](int e) { MPI_Bcast(out.data(), e, MPI_FLOAT, 0, comm); }},
        {"reduce", 1, operation(CommKind::reduce),
         [&](int e) { MPI_Reduce(in.data(), out.data(), e, MPI_FLOAT, MPI_SUM, 0, comm); }},
        {"scatter", shared, operation(CommKind::scatter),
         [&](int e) { MPI_Scatter(in.data(), e / n, MPI_FLOAT, out.data(), e / n, MPI_FLOAT, 0, comm); }},
        {"gather", shared, operation(CommKind::gather),
         [&](int e) { MPI_Gather(in.data(), e / n, MPI_FLOAT, out.data(), e / n, MPI_FLOAT, 0, comm); }},
        {"exchange", 1, operation(CommKind::exchange),
         [&](int e) {
             MPI_Sendrecv(in.data(), e, MPI_FLOAT, right, 0, out.data(), e, MPI_FLOAT, left, 0, comm,
                          MPI_STATUS_IGNORE);
         }},
        {"all-to-all", shared, operation(CommKind::all_to_all),
         [&](int e) { MPI_Alltoall(in.data(), e / n, MPI_FLOAT, out.data(), e / n, MPI_FLOAT, comm); }},
    };
    for (const Contest& contest : contests) {
        if (only.empty() || only == contest.name) table(transport, engine, contest, extent);
    }
}

/// All-to-all with counts: each pair exchanges a half, one or one and a half blocks.
void counts_table(exec::Transport& transport, ProgressEngine& engine, exec::GroupHandle world, const Extent& extent) {
    const int n = transport.world_size();
    const int me = transport.rank();
    const auto size = static_cast<std::size_t>(n);
    if (me == 0)
        std::printf("all-to-all with counts of fp32\n%10s %12s %12s %7s\n", "bytes", "ours us", "MPI us", "ratio");
    for (std::int64_t block = 2; block * n * 4 <= extent.largest; block *= 4) {
        std::vector<std::int64_t> send, receive;
        std::vector<int> mpi_send, mpi_receive, send_at, receive_at;
        std::int64_t out_total = 0;
        std::int64_t in_total = 0;
        for (int other = 0; other < n; ++other) {
            send.push_back((1 + (2 * me + other) % 3) * block / 2);
            receive.push_back((1 + (2 * other + me) % 3) * block / 2);
            mpi_send.push_back(static_cast<int>(send.back()));
            mpi_receive.push_back(static_cast<int>(receive.back()));
            send_at.push_back(static_cast<int>(in_total));
            receive_at.push_back(static_cast<int>(out_total));
            in_total += send.back();
            out_total += receive.back();
        }
        std::vector<float> in(static_cast<std::size_t>(in_total), 0.0F);
        std::vector<float> out(static_cast<std::size_t>(out_total), 0.0F);
        const Operation operation{.kind = CommKind::all_to_all,
                                  .in = in.data(),
                                  .out = out.data(),
                                  .group = world,
                                  .counts = {send.data(), receive.data(), in_total, out_total}};
        const std::int64_t bytes = block * static_cast<std::int64_t>(size) * 4;
        const int repetitions = extent.repetitions(bytes);
        std::vector<double> ours, theirs;
        for (int i = 0; i < repetitions; ++i) {
            ours.push_back(slowest_us([&] { engine.wait(Stream::tp, engine.post(Stream::tp, operation)); }));
            theirs.push_back(slowest_us([&] {
                MPI_Alltoallv(in.data(), mpi_send.data(), send_at.data(), MPI_FLOAT, out.data(), mpi_receive.data(),
                              receive_at.data(), MPI_FLOAT, MPI_COMM_WORLD);
            }));
        }
        if (me != 0) continue;
        const double a = median(ours);
        const double b = median(theirs);
        std::printf("%10lld %12.1f %12.1f %7.2f\n", static_cast<long long>(bytes), a, b, a / b);
    }
}

void overlap_table(exec::Transport& transport, ProgressEngine& engine, exec::GroupHandle world, const Extent& extent) {
    constexpr std::int64_t kElements = 4 << 20;
    const int repetitions = extent.repetitions(kElements * 4);
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
    constexpr int kParts = 100;  // the computation polls the all-reduce between parts
    for (int i = 0; i < repetitions; ++i) {
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
        "16 MiB all-reduce alone %.0f us, computation alone %.0f us, both at once %.0f us (sum %.0f), "
        "all-reduce complete after %.0f us%s\n",
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
        Extent extent;
        std::string only;
        exec::ProgressTuning tuning;
        for (int i = 1; i + 1 < argc; i += 2) {
            if (std::string(argv[i]) == "--max-mib") extent.largest = std::int64_t{std::atoi(argv[i + 1])} << 20;
            if (std::string(argv[i]) == "--repetitions") extent.most_repetitions = std::max(1, std::atoi(argv[i + 1]));
            if (std::string(argv[i]) == "--only") only = argv[i + 1];
            if (std::string(argv[i]) == "--set") tune(tuning, argv[i + 1]);
        }
        std::vector<int> all;
        for (int r = 0; r < transport.world_size(); ++r) all.push_back(r);
        const exec::GroupHandle world = transport.create_group(all);
        ProgressEngine engine(transport, tuning);
        tables(transport, engine, world, extent, only);
        if (only.empty()) counts_table(transport, engine, world, extent);
        if (only.empty()) overlap_table(transport, engine, world, extent);
    } catch (const std::exception& error) {
        transport.abort(kExitJobFailed, error.what());
    }
    return kExitDone;
}
