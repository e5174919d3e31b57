// The transport in a world of one rank, and the detection of launchers. Tests that need several ranks are in tests/mpi.
#include <gtest/gtest.h>

#include <chrono>
#include <cmath>
#include <cstdlib>
#include <future>
#include <limits>
#include <thread>
#include <vector>

#include "core/error.h"
#include "core/float16.h"
#include "exec/launch.h"
#include "exec/transport/mpi_state.h"
#include "exec/transport/progress.h"
#include "exec/transport/reduce.h"
#include "exec/transport/transport.h"
#include "tests/unit/exec/transport_world.h"

namespace {

using namespace orrery;
using exec::GroupHandle;
using exec::Operation;
using exec::ProgressEngine;
using program::CommKind;
using program::ReduceOp;
using program::Stream;

TEST(TransportAlone, WorldOfOne) {
    exec::Transport& transport = exec::world_of_this_process();
    EXPECT_EQ(transport.rank(), 0);
    EXPECT_EQ(transport.world_size(), 1);
    EXPECT_EQ(transport.ranks_on_host(), 1);
    EXPECT_GE(transport.cores(), 1);
    transport.barrier();
    EXPECT_EQ(transport.gather("abc"), std::vector<std::string>{"abc"});
    EXPECT_EQ(transport.broadcast("abc"), "abc");
}

TEST(TransportAlone, GroupsAreChecked) {
    exec::Transport& transport = exec::world_of_this_process();
    const GroupHandle group = transport.create_group({0});
    EXPECT_EQ(transport.members(group), std::vector<int>{0});
    EXPECT_THROW((void)transport.create_group({}), BugError);
    EXPECT_THROW((void)transport.create_group({0, 0}), BugError);
    EXPECT_THROW((void)transport.create_group({1}), BugError);
    EXPECT_THROW((void)transport.create_group({0, 1}), BugError);
    EXPECT_THROW((void)transport.members(GroupHandle{}), BugError);
}

TEST(TransportAlone, CollectivesOfOneMemberCopyAndSendNothing) {
    exec::Transport& transport = exec::world_of_this_process();
    const GroupHandle group = transport.create_group({0});
    ProgressEngine engine(transport);
    const std::vector<float> in = {1, 2, 3};
    const CommKind kinds[] = {CommKind::all_reduce, CommKind::all_gather, CommKind::reduce_scatter,
                              CommKind::broadcast,  CommKind::reduce,     CommKind::scatter,
                              CommKind::gather,     CommKind::exchange,   CommKind::all_to_all};
    for (const CommKind kind : kinds) {
        std::vector<float> out(3, 0.0F);
        exec::OperationTimes times;
        const Operation operation{
            .kind = kind, .elements = 3, .in = in.data(), .out = out.data(), .group = group, .times = &times};
        engine.wait(Stream::tp, engine.post(Stream::tp, operation));
        EXPECT_EQ(out, in);
        EXPECT_GT(times.ready_ns, 0);
        EXPECT_GE(times.end_ns, times.ready_ns);
    }
    std::vector<float> sums = {10, 20, 30};
    const Operation accumulate{.kind = CommKind::reduce_scatter,
                               .elements = 3,
                               .in = in.data(),
                               .out = sums.data(),
                               .group = group,
                               .accumulates = true};
    engine.wait(Stream::tp, engine.post(Stream::tp, accumulate));
    EXPECT_EQ(sums, (std::vector<float>{11, 22, 33}));
    EXPECT_EQ(engine.completed(Stream::tp), 10);
    EXPECT_EQ(engine.bytes_sent(Stream::tp), 0);
    EXPECT_EQ(engine.bytes_received(Stream::tp), 0);
}

TEST(TransportAlone, SequencesAndDependencies) {
    exec::Transport& transport = exec::world_of_this_process();
    const GroupHandle group = transport.create_group({0});
    ProgressEngine engine(transport);
    std::vector<double> a = {5}, b = {0}, c = {0};
    Operation first{.kind = CommKind::all_reduce,
                    .dtype = DType::fp64,
                    .elements = 1,
                    .in = a.data(),
                    .out = b.data(),
                    .group = group};
    EXPECT_EQ(engine.completed(Stream::dp), 0);
    engine.wait(Stream::dp, 0);
    EXPECT_EQ(engine.post(Stream::tp, first), 1);
    EXPECT_EQ(engine.post(Stream::tp, first), 2);
    Operation second = first;
    second.in = b.data();
    second.out = c.data();
    second.after[Stream::tp] = 2;
    EXPECT_EQ(engine.post(Stream::dp, second), 1);
    EXPECT_EQ(engine.posted(Stream::tp), 2);
    engine.wait_all();
    EXPECT_EQ(engine.completed(Stream::tp), 2);
    EXPECT_EQ(engine.completed(Stream::dp), 1);
    EXPECT_EQ(c[0], 5.0);
}

TEST(TransportAlone, ManyOperationsPostedAheadAllComplete) {
    exec::Transport& transport = exec::world_of_this_process();
    const GroupHandle group = transport.create_group({0});
    std::vector<float> data(10, 1.0F);
    {
        ProgressEngine engine(transport);
        for (int i = 0; i < 5000; ++i) {
            const Stream stream = i % 2 == 0 ? Stream::tp : Stream::dp;
            engine.post(
                stream,
                {.kind = CommKind::all_reduce, .elements = 10, .in = data.data(), .out = data.data(), .group = group});
        }
        engine.wait(Stream::dp, 2500);
        EXPECT_EQ(engine.completed(Stream::dp), 2500);
    }  // the destructor completes the rest
    EXPECT_EQ(data, std::vector<float>(10, 1.0F));
}

TEST(TransportAlone, CountsAreReadWhenTheOperationStarts) {
    exec::Transport& transport = exec::world_of_this_process();
    const GroupHandle group = transport.create_group({0});
    ProgressEngine engine(transport);
    const std::vector<float> in = {1, 2, 3};
    std::vector<float> out(3, 0.0F);
    const std::int64_t routed = 2;
    std::int64_t count = -1;
    const Operation route{
        .kind = CommKind::exchange, .dtype = DType::int64, .elements = 1, .in = &routed, .out = &count, .group = group};
    Operation move{.kind = CommKind::all_to_all,
                   .in = in.data(),
                   .out = out.data(),
                   .group = group,
                   .counts = {&count, &count, 3, 3}};
    move.after[Stream::tp] = engine.post(Stream::tp, route);
    engine.wait(Stream::ep, engine.post(Stream::ep, move));
    EXPECT_EQ(out, (std::vector<float>{1, 2, 0}));
}

// Another thread holds the MPI lock, as if MPI hung.
TEST(TransportAlone, WaitTimesOutAndPendingOperationsAreDescribed) {
    exec::Transport& transport = exec::world_of_this_process();
    const GroupHandle group = transport.create_group({0});
    ProgressEngine engine(transport);
    float x = 1;
    const Operation operation{.kind = CommKind::all_reduce, .elements = 1, .in = &x, .out = &x, .group = group};
    EXPECT_EQ(engine.describe_pending(), "");
    EXPECT_TRUE(engine.wait(Stream::tp, 0, std::chrono::nanoseconds(0)));
    std::promise<void> held;
    std::promise<void> release;
    std::thread inside([&] {
        const std::lock_guard lock(transport.impl().mpi);
        held.set_value();
        release.get_future().wait();
    });
    held.get_future().wait();
    const std::int64_t sequence = engine.post(Stream::tp, operation);
    EXPECT_FALSE(engine.wait(Stream::tp, sequence, std::chrono::milliseconds(5)));
    EXPECT_FALSE(engine.wait(Stream::tp, sequence, std::chrono::nanoseconds(0)));
    EXPECT_EQ(engine.completed(Stream::tp), 0);
    EXPECT_NE(engine.describe_pending().find("inside MPI"), std::string::npos);
    release.set_value();
    inside.join();
    EXPECT_TRUE(engine.wait(Stream::tp, sequence, std::chrono::nanoseconds::max()));
    EXPECT_TRUE(engine.wait(Stream::tp, sequence, std::chrono::nanoseconds(0)));
    EXPECT_EQ(engine.describe_pending(), "");
    EXPECT_THROW((void)engine.wait(Stream::tp, sequence + 1, std::chrono::nanoseconds(0)), BugError);
}

TEST(TransportAlone, InvalidOperationsAreABug) {
    exec::Transport& transport = exec::world_of_this_process();
    const GroupHandle group = transport.create_group({0});
    ProgressEngine engine(transport);
    float x = 1;
    const Operation good{.kind = CommKind::all_reduce, .elements = 1, .in = &x, .out = &x, .group = group};
    for (const Stream local : {Stream::compute, Stream::host, Stream::copy_out, Stream::copy_in}) {
        EXPECT_THROW(engine.post(local, good), BugError);
    }
    Operation bad = good;
    bad.group = {};
    EXPECT_THROW(engine.post(Stream::tp, bad), BugError);
    bad = good;
    bad.after[Stream::dp] = 1;  // nothing was posted there
    EXPECT_THROW(engine.post(Stream::tp, bad), BugError);
    bad = good;
    bad.root = 1;
    EXPECT_THROW(engine.post(Stream::tp, bad), BugError);
    bad = good;
    bad.accumulates = true;
    EXPECT_THROW(engine.post(Stream::tp, bad), BugError);
    const std::int64_t count = 1;
    bad = good;
    bad.counts = {&count, &count, 1, 1};
    EXPECT_THROW(engine.post(Stream::tp, bad), BugError);
    bad = good;
    bad.kind = CommKind::send;
    bad.peer = 1;
    EXPECT_THROW(engine.post(Stream::tp, bad), BugError);
    EXPECT_THROW(engine.wait(Stream::tp, 1), BugError);
    EXPECT_EQ(engine.posted(Stream::tp), 0);
}

template <typename T>
void check_combine(DType dtype) {
    for (const std::int64_t elements : {0, 1, 15, 16, 17, 1000}) {
        std::vector<T> left, right, sum, max;
        for (std::int64_t i = 0; i < elements; ++i) {
            left.push_back(static_cast<T>(i * 3 % 17));
            right.push_back(static_cast<T>(i * 5 % 13));
            sum.push_back(left.back() + right.back());
            max.push_back(std::max(left.back(), right.back()));
        }
        const auto bytes = [](std::vector<T>& data) { return reinterpret_cast<std::byte*>(data.data()); };
        std::vector<T> out(left.size());
        exec::combine(ReduceOp::sum, dtype, bytes(left), bytes(right), bytes(out), elements);
        EXPECT_EQ(out, sum);
        std::vector<T> over_right = right;
        exec::combine(ReduceOp::max, dtype, bytes(left), bytes(over_right), bytes(over_right), elements);
        EXPECT_EQ(over_right, max);
        exec::combine(ReduceOp::sum, dtype, bytes(left), bytes(right), bytes(left), elements);
        EXPECT_EQ(left, sum);
    }
}

// Combines every 16-bit value with some others and compares with fp32.
TEST(Combine, SixteenBitTypesAreCombinedInFp32) {
    for (const DType dtype : {DType::bf16, DType::fp16}) {
        const auto from = dtype == DType::bf16 ? from_bf16 : from_fp16;
        const auto to = dtype == DType::bf16 ? to_bf16 : to_fp16;
        for (const float other : {0.0F, -0.0F, 1.0F, -3.5F, 1000.0F, 6e-8F, std::numeric_limits<float>::infinity(),
                                  std::numeric_limits<float>::quiet_NaN()}) {
            const std::size_t n = 0x10000;
            std::vector<std::uint16_t> left(n), right(n, to(other)), sum(n), max(n);
            for (std::size_t i = 0; i < n; ++i) left[i] = static_cast<std::uint16_t>(i);
            const auto bytes = [](std::vector<std::uint16_t>& data) {
                return reinterpret_cast<std::byte*>(data.data());
            };
            exec::combine(ReduceOp::sum, dtype, bytes(left), bytes(right), bytes(sum), std::int64_t{n});
            exec::combine(ReduceOp::max, dtype, bytes(left), bytes(right), bytes(max), std::int64_t{n});
            for (std::size_t i = 0; i < n; ++i) {
                const float a = from(left[i]);
                const float b = from(right[i]);
                if (std::isnan(a) || std::isnan(b)) {
                    ASSERT_TRUE(std::isnan(from(sum[i])) && std::isnan(from(max[i]))) << i;
                } else {
                    ASSERT_EQ(std::isnan(a + b), std::isnan(from(sum[i]))) << i;
                    if (!std::isnan(a + b)) {
                        ASSERT_EQ(sum[i], to(a + b)) << i;
                    }
                    ASSERT_EQ(from(max[i]), std::max(a, b)) << i;
                }
            }
        }
    }
}

TEST(Combine, SumAndMaxAlsoInPlace) {
    check_combine<float>(DType::fp32);
    check_combine<double>(DType::fp64);
    check_combine<std::int32_t>(DType::int32);
    check_combine<std::int64_t>(DType::int64);
    EXPECT_FALSE(exec::can_combine(DType::uint8));
    EXPECT_THROW(exec::combine(ReduceOp::sum, DType::fp8, nullptr, nullptr, nullptr, 0), BugError);
}

TEST(Combine, IntegersWrapAroundAndKeepAll64Bits) {
    const std::int64_t left[2] = {std::numeric_limits<std::int64_t>::max(), (std::int64_t{1} << 53) + 1};
    const std::int64_t right[2] = {1, 1};
    std::int64_t out[2] = {};
    exec::combine(ReduceOp::sum, DType::int64, reinterpret_cast<const std::byte*>(left),
                  reinterpret_cast<const std::byte*>(right), reinterpret_cast<std::byte*>(out), 2);
    EXPECT_EQ(out[0], std::numeric_limits<std::int64_t>::min());
    EXPECT_EQ(out[1], (std::int64_t{1} << 53) + 2);
}

template <typename T>
void check_nan_of_max(DType dtype) {
    const T nan = std::numeric_limits<T>::quiet_NaN();
    const T left[2] = {nan, 1};
    const T right[2] = {1, nan};
    T out[2] = {};
    exec::combine(ReduceOp::max, dtype, reinterpret_cast<const std::byte*>(left),
                  reinterpret_cast<const std::byte*>(right), reinterpret_cast<std::byte*>(out), 2);
    EXPECT_TRUE(std::isnan(out[0]) && std::isnan(out[1]));
}

TEST(Combine, NanIsTheLargest) {
    check_nan_of_max<float>(DType::fp32);
    check_nan_of_max<double>(DType::fp64);
}

class LauncherVariables : public ::testing::Test {
  protected:
    LauncherVariables() {
        for (const char* name : kNames) {
            const char* value = std::getenv(name);
            if (value != nullptr) saved_.emplace_back(name, value);
            unsetenv(name);
        }
    }
    ~LauncherVariables() override {
        for (const char* name : kNames) unsetenv(name);
        for (const auto& [name, value] : saved_) setenv(name.c_str(), value.c_str(), 1);
    }
    static constexpr const char* kNames[] = {"OMPI_COMM_WORLD_RANK",
                                             "OMPI_COMM_WORLD_SIZE",
                                             "PMIX_RANK",
                                             "PMI_RANK",
                                             "PMI_SIZE",
                                             "SLURM_PROCID",
                                             "SLURM_NTASKS",
                                             "SLURM_STEP_ID",
                                             "SLURM_STEP_NUM_TASKS",
                                             "PATH"};

  private:
    std::vector<std::pair<std::string, std::string>> saved_;
};

TEST_F(LauncherVariables, LaunchersAreRecognised) {
    EXPECT_FALSE(exec::under_launcher());
    for (const char* name : {"OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK"}) {
        setenv(name, "0", 1);
        EXPECT_TRUE(exec::under_launcher()) << name;
        unsetenv(name);
    }
}

TEST_F(LauncherVariables, SlurmBatchScriptIsNoLauncher) {
    setenv("SLURM_PROCID", "0", 1);
    setenv("SLURM_NTASKS", "4", 1);
    EXPECT_FALSE(exec::under_launcher());  // sbatch: srun has not been called yet
    setenv("SLURM_STEP_ID", "0", 1);
    EXPECT_TRUE(exec::under_launcher());
    setenv("SLURM_STEP_NUM_TASKS", "1", 1);  // a step with one task, in a job for four
    EXPECT_FALSE(exec::under_launcher());
    unsetenv("SLURM_STEP_NUM_TASKS");
    setenv("SLURM_NTASKS", "1", 1);
    EXPECT_FALSE(exec::under_launcher());
}

TEST_F(LauncherVariables, TasksOfSrunNeedPmi) {
    EXPECT_EQ(exec::why_tasks_cannot_meet(), "");
    setenv("SLURM_PROCID", "3", 1);
    setenv("SLURM_STEP_ID", "0", 1);
    setenv("SLURM_STEP_NUM_TASKS", "4", 1);
    EXPECT_NE(exec::why_tasks_cannot_meet().find("got 4 tasks"), std::string::npos);
    EXPECT_EQ(exec::task_number(), 3);
    setenv("PMIX_RANK", "3", 1);
    EXPECT_EQ(exec::why_tasks_cannot_meet(), "");
}

TEST_F(LauncherVariables, MissingMpirunIsReportedWithAdvice) {
    setenv("PATH", "/nonexistent", 1);
    try {
        (void)exec::launch_ranks({.ranks = 2});
        ADD_FAILURE() << "no error without mpirun";
    } catch (const InputError& error) {
        EXPECT_NE(std::string(error.what()).find("mpirun"), std::string::npos);
        EXPECT_NE(std::string(error.what()).find("PATH"), std::string::npos);
    }
}

TEST(Launch, CommandEndsWithTheProgramAndItsArguments) {
    const std::vector<std::string> command =
        exec::mpirun_command("/usr/bin/mpirun", 3, "/bin/orrery", {"run", "a b.json"});
    ASSERT_GE(command.size(), 5U);
    EXPECT_EQ(command.front(), "/usr/bin/mpirun");
    const std::vector<std::string> tail(command.end() - 5, command.end());
    EXPECT_EQ(tail, (std::vector<std::string>{"-np", "3", "/bin/orrery", "run", "a b.json"}));
}

TEST(Launch, SingleCopyAnswerIsStable) {
    EXPECT_EQ(exec::single_copy_allowed(), exec::single_copy_allowed());
}

}  // namespace
