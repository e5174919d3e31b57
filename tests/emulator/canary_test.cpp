// Each of these programs is wrong in a way that real devices often hide. Each must be caught, by the part of the
// emulated device that is there to catch it.
#include <cuda_pipeline.h>
#include <gtest/gtest.h>
#include <nccl.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <functional>
#include <thread>

#include "tests/emulator/processes.h"
#include "tests/emulator/streams.h"

namespace emulated {
namespace {

constexpr unsigned kThreads = 256;

__global__ void fill_kernel(float* to, float value) {
    to[blockIdx.x * blockDim.x + threadIdx.x] = value;
}
__global__ void fill_backwards_kernel(float* to, float value) {
    to[-static_cast<int>(threadIdx.x)] = value;
}
__global__ void copy_kernel(const float* from, float* to) {
    to[threadIdx.x] = from[threadIdx.x];
}

/// The sum over a block; without its barrier if `forgets`.
__global__ void sum_kernel(bool forgets, const float* from, float* to) {
    __shared__ float shared[kThreads / 32];
    float sum = from[threadIdx.x];
    for (int lanes = 16; lanes > 0; lanes /= 2) sum += __shfl_xor_sync(0xffffffffU, sum, lanes);
    if (threadIdx.x % 32 == 0) shared[threadIdx.x / 32] = sum;
    if (!forgets) __syncthreads();
    sum = 0;
    for (const float of_warp : shared) sum += of_warp;
    to[threadIdx.x] = sum;
}

void sum_in_a_block(bool forgets, std::vector<float>& sums) {
    const Stream stream;
    const Floats in(kThreads), out(kThreads);
    EXPECT_CUDA(launch(stream, 1, kThreads, fill_kernel, in.data(), 1.0F));
    EXPECT_CUDA(launch(stream, 1, kThreads, sum_kernel, forgets, in.data(), out.data()));
    sums = out.read(stream);
}

TEST(Canaries, AMissingBarrierGivesNan) {
    if (kFindsRaces) GTEST_SKIP() << "ThreadSanitizer reports it";
    for_seeds([] {
        std::vector<float> sums;
        sum_in_a_block(false, sums);
        EXPECT_EQ(sums, std::vector<float>(kThreads, 256.0F));
        sum_in_a_block(true, sums);
        EXPECT_TRUE(std::any_of(sums.begin(), sums.end(), [](float sum) { return std::isnan(sum); }));
    });
}

/// A copy by way of shared memory; without the wait for it if `forgets`.
__global__ void copy_by_shared_kernel(bool forgets, const float* from, float* to) {
    alignas(16) __shared__ float shared[kThreads * 4];
    const unsigned first = threadIdx.x * 4;
    __pipeline_memcpy_async(shared + first, from + first, 16);
    __pipeline_commit();
    if (!forgets) __pipeline_wait_prior(0);
    for (unsigned i = first; i < first + 4; ++i) to[i] = shared[i];
}

TEST(Canaries, AnAsynchronousCopyThatIsNotWaitedForGivesNan) {
    for (const bool forgets : {false, true}) {
        const Stream stream;
        const Floats in(kThreads * 4), out(kThreads * 4);
        EXPECT_CUDA(launch(stream, 4, kThreads, fill_kernel, in.data(), 1.0F));
        EXPECT_CUDA(launch(stream, 1, kThreads, copy_by_shared_kernel, forgets, in.data(), out.data()));
        const std::vector<float> got = out.read(stream);
        const auto is_nan = [](float one) { return std::isnan(one); };
        EXPECT_EQ(std::count_if(got.begin(), got.end(), is_nan), forgets ? std::ssize(got) : 0);
    }
}

__global__ void diverging_shuffle_kernel(float* to) {
    if (threadIdx.x == 7) return;
    to[threadIdx.x] = __shfl_xor_sync(0xffffffffU, 1.0F, 1);
}
__global__ void diverging_barrier_kernel(float* to) {
    if (threadIdx.x < 32) __syncthreads();
    to[threadIdx.x] = 1.0F;
}
__global__ void partial_warp_kernel(float* to) {
    to[threadIdx.x] = __shfl_xor_sync(0xffffffffU, 1.0F, 1);
}

/// Runs a kernel in a process of its own.
void run_alone(unsigned threads, void (*kernel)(float*)) {
    const Stream stream;
    const Floats out(64);
    static_cast<void>(launch(stream, 1, threads, kernel, out.data()));
    stream.finish();
}

// ---- in processes of their own: these come first, because a child cannot use a device that its parent has used
// -------

TEST(AsynchronousErrorsDeathTest, StayUntilTheProcessEnds) {
    EXPECT_EQ(in_process([] {
                  setenv("EMULATED_CUDA_FAULT", "2", 1);
                  const Stream stream;
                  const Floats a(32);
                  EXPECT_CUDA(launch(stream, 1, 32, fill_kernel, a.data(), 1.0F));
                  EXPECT_CUDA(launch(stream, 1, 32, fill_kernel, a.data(), 1.0F));  // fails, later
                  EXPECT_CUDA(launch(stream, 1, 32, fill_kernel, a.data(), 1.0F));
                  EXPECT_EQ(cudaStreamSynchronize(stream), cudaErrorLaunchFailure);
                  EXPECT_EQ(cudaGetLastError(), cudaErrorLaunchFailure);
                  EXPECT_EQ(cudaGetLastError(), cudaErrorLaunchFailure);  // sticky
                  void* memory = nullptr;
                  EXPECT_EQ(cudaMalloc(&memory, 4), cudaErrorLaunchFailure);
                  EXPECT_EQ(launch(stream, 1, 32, fill_kernel, a.data(), 1.0F), cudaErrorLaunchFailure);
              }),
              0);
}

TEST(AsynchronousErrorsDeathTest, APointerToPageableMemoryIsAnIllegalAddress) {
    EXPECT_EQ(in_process([] {
                  const Stream stream;
                  std::vector<float> pageable(32);
                  EXPECT_CUDA(launch(stream, 1, 32, fill_kernel, pageable.data(), 1.0F));
                  EXPECT_EQ(cudaStreamSynchronize(stream), cudaErrorIllegalAddress);
              }),
              0);
}

/// How two ranks, as processes, use two communicators.
struct TwoRanks {
    bool swapped = false;          // each rank queues its collectives in another order
    bool one_at_a_time = false;    // EMULATED_CUDA_ONE_COLLECTIVE
    bool shares_resources = true;  // the communicators
    bool same_collectives = true;
};
/// Each rank queues a collective on each communicator, on two streams. Returns the exit codes.
std::vector<int> two_ranks(const TwoRanks& as) {
    ncclUniqueId id;
    EXPECT_EQ(ncclGetUniqueId(&id), ncclSuccess);
    return on_ranks(2, [&](int rank) {
        setenv("EMULATED_CUDA_PATIENCE_S", "2", 1);
        setenv("NCCL_LAUNCH_ORDER_IMPLICIT", "1", 1);
        if (as.one_at_a_time) setenv("EMULATED_CUDA_ONE_COLLECTIVE", "1", 1);
        ncclComm_t comms[2];
        ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
        config.splitShare = as.shares_resources ? 1 : 0;
        EXPECT_EQ(ncclCommInitRankConfig(&comms[0], 2, id, rank, &config), ncclSuccess);
        EXPECT_EQ(ncclCommSplit(comms[0], 0, rank, &comms[1], &config), ncclSuccess);
        const Stream streams[2];
        const Floats data[2]{Floats(32), Floats(32)};
        for (int turn = 0; turn < 2; ++turn) {
            const int c = as.swapped && rank == 1 ? 1 - turn : turn;
            const std::size_t count = as.same_collectives || rank == 0 ? 32 : 16;
            EXPECT_CUDA(launch(streams[c], 1, 32, fill_kernel, data[c].data(), static_cast<float>(rank + c)));
            EXPECT_EQ(ncclAllReduce(data[c].data(), data[c].data(), count, ncclFloat32, ncclSum, comms[c], streams[c]),
                      ncclSuccess);
        }
        for (int c = 0; c < 2; ++c) {
            EXPECT_EQ(data[c].read(streams[c]), std::vector<float>(32, static_cast<float>(1 + 2 * c)));
        }
    });
}

/// Two collectives of one communicator on two streams: NCCL keeps the order in which they were queued.
TEST(CollectivesDeathTest, OfOneCommunicatorKeepTheirOrderOnTwoStreams) {
    ncclUniqueId id;
    EXPECT_EQ(ncclGetUniqueId(&id), ncclSuccess);
    const auto rank_main = [&](int rank) {
        setenv("EMULATED_CUDA_SEED", std::to_string(rank).c_str(), 1);
        ncclComm_t comm = nullptr;
        ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
        EXPECT_EQ(ncclCommInitRankConfig(&comm, 2, id, rank, &config), ncclSuccess);
        const Stream streams[2];
        const Floats data[2]{Floats(32), Floats(64)};
        for (int turn = 0; turn < 20; ++turn) {
            for (unsigned s = 0; s < 2; ++s) {
                EXPECT_CUDA(launch(streams[s], s + 1, 32, fill_kernel, data[s].data(), static_cast<float>(turn)));
                EXPECT_EQ(
                    ncclAllReduce(data[s].data(), data[s].data(), 32 * (s + 1), ncclFloat32, ncclSum, comm, streams[s]),
                    ncclSuccess);
            }
        }
        for (unsigned s = 2; s-- > 0;) EXPECT_EQ(data[s].read(streams[s])[0], 38.0F);
    };
    EXPECT_EQ(on_ranks(2, rank_main), (std::vector<int>{0, 0}));
}

TEST(CollectivesDeathTest, InOneOrderEnd) {
    EXPECT_EQ(two_ranks({.one_at_a_time = true}), (std::vector<int>{0, 0}));
    EXPECT_EQ(two_ranks({}), (std::vector<int>{0, 0}));
}

TEST(CollectivesDeathTest, InDifferentOrdersAreFoundWhereTheyShareResources) {
    EXPECT_EQ(two_ranks({.swapped = true, .one_at_a_time = true}), (std::vector<int>{-SIGABRT, -SIGABRT}));
    EXPECT_EQ(two_ranks({.swapped = true, .one_at_a_time = true, .shares_resources = false}), (std::vector<int>{0, 0}));
}

TEST(CollectivesDeathTest, ThatDifferAreFound) {
    const std::vector<int> codes = two_ranks({.same_collectives = false});
    EXPECT_TRUE(codes[0] == -SIGABRT || codes[1] == -SIGABRT);
}

// ---- in this process
// --------------------------------------------------------------------------------------------------

/// Its tests start the program again rather than fork, because another test of the process may have used the device.
class CanariesDeathTest : public testing::Test {
  protected:
    void SetUp() override { GTEST_FLAG_SET(death_test_style, "threadsafe"); }
};

TEST_F(CanariesDeathTest, ThreadsThatDoNotMeetEndTheProcess) {
    EXPECT_DEATH(run_alone(32, diverging_shuffle_kernel), "a shuffle that 31 of the warp's lanes reach");
    EXPECT_DEATH(run_alone(64, diverging_barrier_kernel),
                 "a barrier that 32 of the block's threads reach, while 32 have");
    EXPECT_DEATH(run_alone(16, partial_warp_kernel), "a shuffle with lanes that the warp does not have");
}

/// Two streams without an event between them: the consumer may run before the producer, or the next producer before the
/// consumer. Returns what the consumer saw.
float unordered(bool next_producer) {
    const Stream producer, consumer;
    const Floats a(32), b(32);
    const Event filled;
    // The first run of a kernel is ordered for ThreadSanitizer.
    EXPECT_CUDA(launch(producer, 1, 32, fill_kernel, b.data(), 0.0F));
    EXPECT_CUDA(launch(producer, 1, 32, copy_kernel, b.data(), a.data()));
    producer.finish();
    EXPECT_CUDA(launch(producer, 1, 32, fill_kernel, a.data(), 1.0F));
    if (next_producer) {
        EXPECT_CUDA(cudaEventRecord(filled, producer));
        EXPECT_CUDA(cudaStreamWaitEvent(consumer, filled, 0));
    }
    EXPECT_CUDA(launch(consumer, 1, 32, copy_kernel, a.data(), b.data()));
    if (next_producer) {
        EXPECT_CUDA(launch(producer, 1, 32, fill_kernel, a.data(), 2.0F));
        producer.finish();
    }
    return b.read(consumer)[0];
}

TEST(Canaries, AMissingEventIsSeenByOneOfThreeSeeds) {
    if (kFindsRaces) GTEST_SKIP() << "ThreadSanitizer reports it";
    for (const bool next_producer : {false, true}) {
        int wrong = 0;
        for (const int seed : {0, 1, 2}) {
            Device::instance().set_seed(seed);
            wrong += unordered(next_producer) == 1.0F ? 0 : 1;
        }
        EXPECT_GT(wrong, 0) << next_producer;
    }
}

#if defined(EMULATED_FINDS_RACES)
/// Whatever the order was: each seed is enough.
TEST_F(CanariesDeathTest, MissingBarriersAndEventsAreReported) {
    constexpr int kReported = 66;  // ThreadSanitizer's exit code
    for (const int seed : {0, 1, 2}) {
        const auto with_seed = [seed](const std::function<void()>& body) {
            Device::instance().set_seed(seed);
            body();
            std::exit(0);
        };
        std::vector<float> sums;
        EXPECT_EXIT(with_seed([&] { sum_in_a_block(true, sums); }), testing::ExitedWithCode(kReported), "data race");
        EXPECT_EXIT(with_seed([&] { sum_in_a_block(false, sums); }), testing::ExitedWithCode(0), "");
        EXPECT_EXIT(with_seed([] { unordered(false); }), testing::ExitedWithCode(kReported), "data race");
        EXPECT_EXIT(with_seed([] { unordered(true); }), testing::ExitedWithCode(kReported), "data race");
    }
}
#endif

TEST(Canaries, UnwrittenMemoryIsNan) {
    const Stream stream;
    const Floats unwritten(32), out(32);
    EXPECT_CUDA(launch(stream, 1, 32, copy_kernel, unwritten.data(), out.data()));
    for (const float value : out.read(stream)) EXPECT_TRUE(std::isnan(value));
}

TEST_F(CanariesDeathTest, HostCodeCannotTouchDeviceMemory) {
    const Stream stream;
    const Floats a(32);
    EXPECT_CUDA(launch(stream, 1, 32, fill_kernel, a.data(), 1.0F));
    stream.finish();
    const volatile float* const touched = a.data();
    EXPECT_DEATH(static_cast<void>(*touched), "host code touched device memory");
    EXPECT_DEATH(a.data()[3] = 1.0F, "host code touched device memory");
    // Nor if it has found by asking that the device has done its work.
    const Event done;
    EXPECT_CUDA(launch(stream, 1, 32, fill_kernel, a.data(), 2.0F));
    EXPECT_CUDA(cudaEventRecord(done, stream));
    while (cudaEventQuery(done) == cudaErrorNotReady) {
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(20));  // until the device rests
    EXPECT_DEATH(static_cast<void>(*touched), "host code touched device memory");
}

TEST_F(CanariesDeathTest, KernelsCannotLeaveTheirBlock) {
    EXPECT_DEATH(
        {
            const Stream stream;
            const Floats a(64);
            static_cast<void>(launch(stream, 1, 64, fill_kernel, a.data() + 1, 1.0F));
            stream.finish();
        },
        "device code touched memory outside of its blocks");
    for (const std::int64_t floats : {std::int64_t{64}, std::int64_t{1} << 18U}) {
        const auto fill = [&](float* (*end_of)(float*)) {
            const Stream stream;
            const Floats a(floats);
            EXPECT_CUDA(launch(stream, 1, 64, fill_backwards_kernel, end_of(a.data()), 1.0F));
            stream.finish();
        };
        fill([](float* a) { return a + 63; });
        EXPECT_DEATH(fill([](float* a) { return a + 62; }), "device code wrote in front of a block") << floats;
    }
}

}  // namespace
}  // namespace emulated
