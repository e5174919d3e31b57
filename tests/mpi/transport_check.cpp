// Checks of the transport that need several ranks; run under mpirun (tests/mpi/CMakeLists.txt). Exit code 0: all
// passed.
//
//   transport_check               runs the checks
//   transport_check --fail        every rank throws while operations are in flight: the job must end with exit code 1
//   transport_check --bad-counts  every rank posts an all-to-all with a negative count: exit code 1
//   transport_check --relaunch N  starts itself under mpirun with exec/launch.h, then runs the checks
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "core/error.h"
#include "core/random.h"
#include "exec/clock.h"
#include "exec/launch.h"
#include "exec/transport/progress.h"
#include "exec/transport/transport.h"
#include "tests/mpi/transport_checks.h"

namespace {

using namespace orrery;
using namespace orrery::exec;
using program::CommKind;

template <typename T>
void all_reduce(Transport& transport, ProgressEngine& engine, GroupHandle world, ReduceOp op, std::int64_t elements,
                bool in_place) {
    const std::vector<int>& ranks = transport.members(world);
    const std::int64_t n = transport.world_size();
    std::vector<T> in = filled<T>(transport.rank(), elements);
    std::vector<T> out(in_place ? 0 : in.size(), T{-7777});
    T* result = in_place ? in.data() : out.data();
    const Volume before = volume(engine, Stream::tp);
    OperationTimes times;
    engine.wait(Stream::tp, engine.post(Stream::tp, {.kind = CommKind::all_reduce,
                                                     .reduce = op,
                                                     .dtype = dtype_of<T>(),
                                                     .elements = elements,
                                                     .in = in.data(),
                                                     .out = result,
                                                     .group = world,
                                                     .times = &times}));
    const std::string where = std::to_string(elements) + " elements";
    for (std::int64_t i = 0; i < elements; ++i) {
        EXPECT(result[i] == expected<T>(op, ranks, i), where + " at " + std::to_string(i));
    }
    if (!in_place) EXPECT(in == filled<T>(transport.rank(), elements), where + ": the input changed");
    EXPECT(times.ready_ns > 0 && times.ready_ns <= times.begin_ns && times.begin_ns <= times.end_ns, where);
    const Volume after = volume(engine, Stream::tp);
    const auto bytes = elements * static_cast<std::int64_t>(sizeof(T));
    if (elements % n == 0) {
        EXPECT(after.sent - before.sent == 2 * (n - 1) * bytes / n, where + ": bytes sent");
        EXPECT(after.received - before.received == 2 * (n - 1) * bytes / n, where + ": bytes received");
    }
    const std::int64_t total = total_over_ranks(transport, after.sent - before.sent);
    if (transport.rank() == 0) EXPECT(total == 2 * (n - 1) * bytes, where + ": bytes of all ranks");
}

template <typename T>
void gather_and_scatter(Transport& transport, ProgressEngine& engine, GroupHandle world, std::int64_t block,
                        bool in_place) {
    const std::vector<int>& ranks = transport.members(world);
    const std::int64_t n = transport.world_size();
    const int me = transport.rank();
    const std::int64_t elements = block * n;
    const std::string where = std::to_string(block) + " elements a rank";
    const Volume before = volume(engine, Stream::dp);

    std::vector<T> all(static_cast<std::size_t>(elements), T{-7777});
    std::vector<T> own = filled<T>(me, block);
    if (in_place) std::copy(own.begin(), own.end(), all.begin() + me * block);
    const T* in = in_place ? all.data() + me * block : own.data();
    engine.post(Stream::dp, {.kind = CommKind::all_gather,
                             .dtype = dtype_of<T>(),
                             .elements = elements,
                             .in = in,
                             .out = all.data(),
                             .group = world});

    std::vector<T> parts = filled<T>(me, elements);
    std::vector<T> reduced(static_cast<std::size_t>(block), T{-7777});
    T* out = in_place ? parts.data() + me * block : reduced.data();
    engine.post(Stream::dp, {.kind = CommKind::reduce_scatter,
                             .dtype = dtype_of<T>(),
                             .elements = elements,
                             .in = parts.data(),
                             .out = out,
                             .group = world});
    engine.wait(Stream::dp, engine.posted(Stream::dp));

    for (std::int64_t i = 0; i < elements; ++i) {
        EXPECT(all[static_cast<std::size_t>(i)] == value<T>(static_cast<int>(i / block), i % block), where);
        const bool replaced = in_place && i / block == me;
        if (!replaced) EXPECT(parts[static_cast<std::size_t>(i)] == value<T>(me, i), where + ": the input changed");
    }
    for (std::int64_t i = 0; i < block; ++i) {
        EXPECT(out[i] == expected<T>(ReduceOp::sum, ranks, me * block + i), where + " at " + std::to_string(i));
    }
    const auto bytes = elements * static_cast<std::int64_t>(sizeof(T));
    EXPECT(volume(engine, Stream::dp).sent - before.sent == 2 * (n - 1) * bytes / n, where + ": bytes sent");
}

void sizes(Transport& transport, ProgressEngine& engine, GroupHandle world) {
    const std::int64_t n = transport.world_size();
    for (const std::int64_t elements : {0L, 1L, 7L, 1000L, 2048L, 2049L, 100003L, 100000 * n, 4L << 20}) {
        for (const bool in_place : {false, true}) {
            const bool large = elements > 1000000;
            if (!large || in_place) all_reduce<float>(transport, engine, world, ReduceOp::sum, elements, in_place);
            if (!large || !in_place) all_reduce<float>(transport, engine, world, ReduceOp::max, elements, in_place);
            if (!large) all_reduce<double>(transport, engine, world, ReduceOp::sum, elements, in_place);
        }
    }
    for (const std::int64_t block : {0L, 1L, 7L, 1000L, 100003L, (4L << 20) / n}) {
        for (const bool in_place : {false, true}) {
            gather_and_scatter<float>(transport, engine, world, block, in_place);
            gather_and_scatter<double>(transport, engine, world, block / 2, in_place);
        }
    }
}

// Sums of values that do not add exactly must still be bitwise equal on all members and when repeated.
void same_bits(Transport& transport, ProgressEngine& engine, GroupHandle world) {
    for (const std::int64_t elements : {5L, 1500L, 50000L, 700001L}) {
        const RandomStream random(42, "rank " + std::to_string(transport.rank()));
        std::vector<float> in(static_cast<std::size_t>(elements));
        for (std::size_t i = 0; i < in.size(); ++i) in[i] = static_cast<float>(random.uniform(i) - 0.5);
        std::vector<std::string> results;
        for (int repeat = 0; repeat < 2; ++repeat) {
            std::string bits(in.size() * sizeof(float), '\0');
            engine.wait(Stream::tp, engine.post(Stream::tp, {.kind = CommKind::all_reduce,
                                                             .elements = elements,
                                                             .in = in.data(),
                                                             .out = bits.data(),
                                                             .group = world}));
            results.push_back(bits);
        }
        EXPECT(results[0] == results[1], std::to_string(elements) + " elements: not repeatable");
        const std::string first = transport.broadcast(results[0]);
        EXPECT(results[0] == first, std::to_string(elements) + " elements: differs from rank 0");
    }
}

// Each operation reads the output of the previous one on another stream, so they must run one after the other.
void dependencies(Transport& transport, ProgressEngine& engine, GroupHandle world) {
    const std::int64_t elements = 60000;
    const auto n = static_cast<double>(transport.world_size());
    std::vector<double> data(static_cast<std::size_t>(elements), 1.0);
    std::array<OperationTimes, 6> times;
    const Stream order[6] = {Stream::tp, Stream::dp, Stream::pp_recv_forward, Stream::tp, Stream::pp_recv_backward,
                             Stream::dp};
    Operation operation{.kind = CommKind::all_reduce,
                        .dtype = DType::fp64,
                        .elements = elements,
                        .in = data.data(),
                        .out = data.data(),
                        .group = world};
    double result = 1.0;
    for (std::size_t i = 0; i < 6; ++i) {
        operation.times = &times[i];
        const std::int64_t sequence = engine.post(order[i], operation);
        operation.after = {};
        operation.after[order[i]] = sequence;
        result *= n;
    }
    engine.wait_all();
    for (const double element : data) EXPECT(element == result, std::to_string(element));
    for (std::size_t i = 1; i < 6; ++i)
        EXPECT(times[i].ready_ns >= times[i - 1].end_ns, "operation " + std::to_string(i));
}

struct Job {
    Stream stream{};
    Operation operation;
    std::vector<float> in, out, wanted;
};

/// Sets this rank's input and expected output of an operation.
void fill(Job& job, CommKind kind, int root, const std::vector<int>& ranks, int rank, std::int64_t block) {
    const auto n = static_cast<std::int64_t>(ranks.size());
    const std::int64_t me = std::find(ranks.begin(), ranks.end(), rank) - ranks.begin();
    const int left = ranks[static_cast<std::size_t>((me + n - 1) % n)];
    const int source = ranks[static_cast<std::size_t>(root)];
    const bool is_root = me == root;
    const ReduceOp op = job.operation.reduce;
    // Element i of an input is value(rank, i). Outputs are made of its elements [first, first + count).
    std::int64_t in = n * block;
    std::int64_t first = 0;
    std::int64_t count = n * block;
    const auto reduced = [&] {
        for (std::int64_t i = first; i < first + count; ++i) job.wanted.push_back(expected<float>(op, ranks, i));
    };
    const auto from = [&](int member_rank) {
        for (std::int64_t i = first; i < first + count; ++i) job.wanted.push_back(value<float>(member_rank, i));
    };
    switch (kind) {
        case CommKind::all_reduce:
            reduced();
            break;
        case CommKind::reduce:
            if (is_root) reduced();
            break;
        case CommKind::reduce_scatter:
            first = me * block;
            count = block;
            reduced();
            break;
        case CommKind::broadcast:
            from(source);
            break;
        case CommKind::scatter:
            first = me * block;
            count = block;
            from(source);
            break;
        case CommKind::exchange:
            from(left);
            break;
        case CommKind::all_to_all:
            first = me * block;
            count = block;
            for (const int member : ranks) from(member);
            break;
        case CommKind::all_gather:
        case CommKind::gather:
            in = block;
            count = block;
            for (const int member : ranks) {
                if (kind == CommKind::all_gather || is_root) from(member);
            }
            break;
        case CommKind::send:
        case CommKind::recv:
            break;
    }
    job.operation.kind = kind;
    job.operation.elements = n * block;
    job.operation.root = root;
    job.in = filled<float>(rank, in);
    job.out.resize(job.wanted.size());
}

// This rank's operations of a random program. All ranks draw the same program; each keeps the operations it takes part
// in.
std::vector<Job> draw_jobs(const RandomStream& random, const Transport& transport,
                           const std::vector<std::vector<int>>& sets, const std::vector<GroupHandle>& handles) {
    const int me = transport.rank();
    const int n = transport.world_size();
    std::vector<Job> jobs;
    for (std::uint64_t i = 0; i < 24; ++i) {
        const auto draw = [&](std::uint64_t slot, std::int64_t bound) {
            return static_cast<std::int64_t>(random.below(i * 8 + slot, static_cast<std::uint64_t>(bound)));
        };
        const std::int64_t elements = (std::int64_t{1} << draw(0, 15)) + draw(1, 3);  // of a message or a block
        Job job;
        if (draw(2, 4) == 0) {  // a transfer to the next rank
            const int from = static_cast<int>(draw(3, n - 1));
            if (me != from && me != from + 1) continue;
            const bool forward = draw(4, 2) == 0;
            const bool sends = (me == from) == forward;
            job.stream = forward ? (sends ? Stream::pp_send_forward : Stream::pp_recv_forward)
                                 : (sends ? Stream::pp_send_backward : Stream::pp_recv_backward);
            job.operation.kind = sends ? CommKind::send : CommKind::recv;
            job.operation.peer = me == from ? from + 1 : from;
            job.operation.elements = elements;
            if (sends) job.in = filled<float>(me, elements);
            if (!sends)
                job.out.resize(static_cast<std::size_t>(elements)),
                    job.wanted = filled<float>(job.operation.peer, elements);
        } else {
            const auto set = static_cast<std::size_t>(draw(3, static_cast<std::int64_t>(sets.size())));
            const auto kind = static_cast<CommKind>(draw(5, static_cast<std::int64_t>(CommKind::exchange) + 1));
            const auto root = static_cast<int>(draw(6, static_cast<std::int64_t>(sets[set].size())));
            if (!handles[set].valid()) continue;
            job.stream = draw(4, 2) == 0 ? Stream::tp : Stream::dp;
            job.operation.reduce = draw(7, 2) == 0 ? ReduceOp::sum : ReduceOp::max;
            job.operation.group = handles[set];
            fill(job, kind, root, sets[set], me, elements);
        }
        jobs.push_back(std::move(job));
    }
    for (Job& job : jobs) {
        job.operation.in = job.in.data();
        job.operation.out = job.out.data();
    }
    return jobs;
}

// Every rank interleaves its streams in a random order of its own, with pauses, and sometimes makes an operation depend
// on operations of other streams that it has posted and that precede it in the program.
void interleavings(Transport& transport, ProgressEngine& engine, const std::vector<std::vector<int>>& sets,
                   const std::vector<GroupHandle>& handles) {
    for (int round = 0; round < 200; ++round) {
        const RandomStream shared(static_cast<std::uint64_t>(round), "program");
        const RandomStream own(static_cast<std::uint64_t>(round), "rank " + std::to_string(transport.rank()));
        std::vector<Job> jobs = draw_jobs(shared, transport, sets, handles);
        std::vector<bool> posted(jobs.size(), false);
        std::vector<std::int64_t> sequence(jobs.size(), 0);
        std::uint64_t draws = 0;
        for (std::size_t left = jobs.size(); left > 0;) {
            const std::size_t pick = own.below(draws++, jobs.size());
            bool next_on_stream = !posted[pick];
            for (std::size_t j = 0; j < pick; ++j) {
                if (!posted[j] && jobs[j].stream == jobs[pick].stream) next_on_stream = false;
            }
            if (!next_on_stream) continue;
            for (std::size_t j = 0; j < pick; ++j) {
                if (posted[j] && jobs[j].stream != jobs[pick].stream && own.below(draws++, 4) == 0) {
                    std::int64_t& after = jobs[pick].operation.after[jobs[j].stream];
                    after = std::max(after, sequence[j]);
                }
            }
            sequence[pick] = engine.post(jobs[pick].stream, jobs[pick].operation);
            posted[pick] = true;
            --left;
            if (own.below(draws++, 8) == 0) usleep(static_cast<useconds_t>(own.below(draws++, 200)));
        }
        engine.wait_all();
        for (const Job& job : jobs) EXPECT(job.out == job.wanted, "round " + std::to_string(round));
    }
}

// The compute thread calls neither wait() nor MPI, so only the progress thread can complete the operation.
void overlap(Transport& transport, ProgressEngine& engine, GroupHandle world) {
    const std::int64_t elements = 3000000;
    std::vector<float> data = filled<float>(transport.rank(), elements);
    const std::int64_t sequence = engine.post(
        Stream::dp,
        {.kind = CommKind::all_reduce, .elements = elements, .in = data.data(), .out = data.data(), .group = world});
    double work = 1.0;
    std::int64_t rounds = 0;
    for (; engine.completed(Stream::dp) < sequence; ++rounds) {
        for (int i = 0; i < 1000; ++i) work = work * 1.0000001 + 1e-9;
    }
    EXPECT(rounds > 0 && work > 1.0, "the operation was over before it could overlap");
    for (std::int64_t i = 0; i < elements; ++i) {
        EXPECT(data[static_cast<std::size_t>(i)] == expected<float>(ReduceOp::sum, transport.members(world), i),
               "result");
    }
}

void host_exchanges(Transport& transport, ProgressEngine& engine, GroupHandle world) {
    std::vector<float> data(500000, 1.0F);
    const Operation operation{.kind = CommKind::all_reduce,
                              .elements = static_cast<std::int64_t>(data.size()),
                              .in = data.data(),
                              .out = data.data(),
                              .group = world};
    // Rank 0 posts last, so that the others enter the exchange with their operation in flight.
    if (transport.rank() > 0) engine.post(Stream::tp, operation);
    const std::vector<std::string> parts =
        transport.gather(std::string(static_cast<std::size_t>(transport.rank()) * 3, 'x'));
    if (transport.rank() == 0) {
        EXPECT(parts.size() == static_cast<std::size_t>(transport.world_size()), "parts");
        for (std::size_t r = 0; r < parts.size(); ++r) EXPECT(parts[r] == std::string(3 * r, 'x'), "part");
    } else {
        EXPECT(parts.empty(), "parts");
    }
    EXPECT(transport.broadcast(transport.rank() == 0 ? "hello" : "ignored") == "hello", "broadcast");
    transport.barrier();
    if (transport.rank() == 0) engine.post(Stream::tp, operation);
    engine.wait_all();
    EXPECT(data.front() == static_cast<float>(transport.world_size()), "sum");
}

/// All ranks are on one machine, so the offset of their clocks is 0 and must be within the measured bounds.
void clock_offsets(Transport& transport) {
    const exec::ClockOffset offset = exec::measure_clock_offset(transport);
    EXPECT(offset.low_ns <= 0 && offset.high_ns >= 0, "bounds");
    EXPECT(exec::clock_offset_ns(transport) == 0, "offset on one machine");
}

/// A group's blocks are in the order in which its ranks were given.
void order_of_members(Transport& transport, ProgressEngine& engine, GroupHandle reversed) {
    const int n = transport.world_size();
    const auto mine = static_cast<float>(transport.rank());
    std::vector<float> all(static_cast<std::size_t>(n), -1.0F);
    engine.wait(
        Stream::dp,
        engine.post(Stream::dp,
                    {.kind = CommKind::all_gather, .elements = n, .in = &mine, .out = all.data(), .group = reversed}));
    for (int i = 0; i < n; ++i) {
        EXPECT(all[static_cast<std::size_t>(i)] == static_cast<float>(n - 1 - i), "block " + std::to_string(i));
    }
    std::vector<float> sums(static_cast<std::size_t>(n));
    for (int i = 0; i < n; ++i) sums[static_cast<std::size_t>(i)] = static_cast<float>(i);
    float own = -1.0F;
    engine.wait(
        Stream::dp,
        engine.post(
            Stream::dp,
            {.kind = CommKind::reduce_scatter, .elements = n, .in = sums.data(), .out = &own, .group = reversed}));
    EXPECT(own == static_cast<float>(n * (n - 1 - transport.rank())), "sum of the own block");
}

void checks(Transport& transport) {
    const int n = transport.world_size();
    std::vector<std::vector<int>> sets;
    std::vector<int> all, even, odd;
    for (int r = 0; r < n; ++r) {
        all.push_back(r);
        (r % 2 == 0 ? even : odd).push_back(r);
    }
    sets = {all, even, odd, {0, n - 1}};
    for (int r = 0; r + 1 < n; ++r) sets.push_back({r, r + 1});
    std::vector<GroupHandle> handles;
    for (const std::vector<int>& set : sets) {
        const bool member = std::find(set.begin(), set.end(), transport.rank()) != set.end();
        handles.push_back(member ? transport.create_group(set) : GroupHandle{});
    }
    const GroupHandle reversed = transport.create_group(std::vector<int>(all.rbegin(), all.rend()));
    clock_offsets(transport);
    ProgressEngine engine(transport);
    order_of_members(transport, engine, reversed);
    sizes(transport, engine, handles[0]);
    same_bits(transport, engine, handles[0]);
    dependencies(transport, engine, handles[0]);
    interleavings(transport, engine, sets, handles);
    overlap(transport, engine, handles[0]);
    host_exchanges(transport, engine, handles[0]);
    check_kinds(transport, engine, handles[0], reversed);
    check_pending(transport, engine, handles[0]);
}

void fail_under_way(Transport& transport) {
    std::vector<int> all;
    for (int r = 0; r < transport.world_size(); ++r) all.push_back(r);
    const GroupHandle world = transport.create_group(all);
    ProgressEngine engine(transport);
    std::vector<float> data(1000000, 1.0F);
    if (transport.rank() > 0) {  // rank 0 never joins
        engine.post(
            Stream::tp,
            {.kind = CommKind::all_reduce, .elements = 1000000, .in = data.data(), .out = data.data(), .group = world});
        usleep(20000);
    }
    throw JobError("thrown on purpose");
}

void post_bad_counts(Transport& transport) {
    std::vector<int> all;
    for (int r = 0; r < transport.world_size(); ++r) all.push_back(r);
    const GroupHandle world = transport.create_group(all);
    ProgressEngine engine(transport);
    const std::vector<std::int64_t> counts(all.size(), -1);
    engine.wait(Stream::ep, engine.post(Stream::ep, {.kind = CommKind::all_to_all,
                                                     .group = world,
                                                     .counts = {counts.data(), counts.data(), 0, 0}}));
}

}  // namespace

int main(int argc, char** argv) {
    const std::string mode = argc > 1 ? argv[1] : "";
    try {
        if (mode == "--relaunch" && !exec::under_launcher()) {
            return exec::launch_ranks({.ranks = std::atoi(argv[2]), .arguments = {"--relaunch", argv[2]}});
        }
    } catch (const std::exception& error) {
        std::fprintf(stderr, "%s\n", error.what());
        return kExitJobFailed;
    }
    Transport transport;
    try {
        if (mode == "--relaunch") {
            EXPECT(transport.world_size() == std::atoi(argv[2]), "ranks");
        }
        if (mode == "--fail") fail_under_way(transport);
        if (mode == "--bad-counts") post_bad_counts(transport);
        checks(transport);
    } catch (const std::exception& error) {
        transport.abort(kExitJobFailed, "rank " + std::to_string(transport.rank()) + ": " + error.what());
    }
    return kExitDone;
}
