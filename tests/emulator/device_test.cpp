// The emulated device keeps CUDA's promises, and no others.
#include <gtest/gtest.h>

#include <cmath>
#include <numeric>

#include "tests/emulator/streams.h"

namespace emulated {
namespace {

__global__ void fill_kernel(float* to, float value) {
    to[blockIdx.x * blockDim.x + threadIdx.x] = value;
}
__global__ void add_kernel(const float* from, float* to) {
    const unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    to[i] = from[i] + 1;
}

/// Each thread writes the sum over its block, each of whose warps sums by shuffles.
__global__ void sums_kernel(const float* from, float* to) {
    __shared__ float shared[8];
    float sum = from[blockIdx.x * blockDim.x + threadIdx.x];
    for (int lanes = 16; lanes > 0; lanes /= 2) sum += __shfl_xor_sync(0xffffffffU, sum, lanes);
    if (threadIdx.x % 32 == 0) shared[threadIdx.x / 32] = sum;
    __syncthreads();
    sum = 0;
    for (unsigned warp = 0; warp < blockDim.x / 32; ++warp) sum += shared[warp];
    to[blockIdx.x * blockDim.x + threadIdx.x] = sum;
}

__global__ void any_kernel(int limit, float* to) {
    const bool is_low = static_cast<int>(threadIdx.x) < limit;
    const int any = __syncthreads_or(is_low ? 1 : 0);
    to[threadIdx.x] = static_cast<float>(any);
}

__global__ void index_kernel(float* to) {
    const unsigned block = blockIdx.x + gridDim.x * (blockIdx.y + gridDim.y * blockIdx.z);
    const unsigned thread = threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z);
    const unsigned at = block * blockDim.x * blockDim.y * blockDim.z + thread;
    to[at] = static_cast<float>(at);
}

TEST(Grid, EveryThreadOfEveryBlockRunsOnce) {
    for_seeds([] {
        const Stream stream;
        const Floats out(2 * 3 * 2 * 4 * 2 * 3);
        EXPECT_CUDA(launch(stream, dim3(2, 3, 2), dim3(4, 2, 3), index_kernel, out.data()));
        std::vector<float> expected(2 * 3 * 2 * 4 * 2 * 3);
        std::iota(expected.begin(), expected.end(), 0.0F);
        EXPECT_EQ(out.read(stream), expected);
    });
}

TEST(Grid, ShufflesAndBarriersMeet) {
    for_seeds([] {
        const Stream stream;
        const Floats in(512), out(512);
        EXPECT_CUDA(launch(stream, 2, 256, fill_kernel, in.data(), 0.5F));
        EXPECT_CUDA(launch(stream, 2, 256, sums_kernel, in.data(), out.data()));
        EXPECT_EQ(out.read(stream), std::vector<float>(512, 128.0F));
    });
}

TEST(Grid, BarriersReduceAPredicate) {
    const Stream stream;
    const Floats out(64);
    EXPECT_CUDA(launch(stream, 1, 64, any_kernel, 1, out.data()));
    EXPECT_EQ(out.read(stream), std::vector<float>(64, 1.0F));
    EXPECT_CUDA(launch(stream, 1, 64, any_kernel, 0, out.data()));
    EXPECT_EQ(out.read(stream), std::vector<float>(64, 0.0F));
}

TEST(Grid, ShapesThatNoDeviceRunsAreRefused) {
    const Stream stream;
    const Floats out(1);
    EXPECT_EQ(launch(stream, 0, 32, fill_kernel, out.data(), 1.0F), cudaErrorInvalidConfiguration);
    EXPECT_EQ(launch(stream, 1, 1025, fill_kernel, out.data(), 1.0F), cudaErrorInvalidConfiguration);
    EXPECT_EQ(launch(stream, dim3(1, 70'000), 32, fill_kernel, out.data(), 1.0F), cudaErrorInvalidConfiguration);
    EXPECT_EQ(cudaGetLastError(), cudaErrorInvalidConfiguration);
    EXPECT_EQ(cudaGetLastError(), cudaSuccess);  // not sticky
}

TEST(Streams, KeepTheirOrderAndWaitForEvents) {
    for_seeds([] {
        const Stream first, second;
        const Event filled;
        const Floats a(32), b(32);
        EXPECT_CUDA(launch(first, 1, 32, fill_kernel, a.data(), 0.0F));
        EXPECT_CUDA(launch(first, 1, 32, fill_kernel, a.data(), 4.0F));
        EXPECT_CUDA(cudaEventRecord(filled, first));
        EXPECT_CUDA(cudaStreamWaitEvent(second, filled, 0));
        EXPECT_CUDA(cudaEventRecord(filled, second));  // recorded again: the wait above keeps its point
        EXPECT_CUDA(launch(second, 1, 32, add_kernel, a.data(), b.data()));
        EXPECT_EQ(b.read(second), std::vector<float>(32, 5.0F));
    });
}

TEST(Streams, NothingRunsBeforeSomebodyWaits) {
    const Stream stream;
    const Event done;
    const Floats a(32);
    EXPECT_CUDA(launch(stream, 1, 32, fill_kernel, a.data(), 4.0F));
    EXPECT_CUDA(cudaEventRecord(done, stream));
    EXPECT_EQ(cudaEventQuery(done), cudaErrorNotReady);
    EXPECT_CUDA(cudaMemsetAsync(a.data(), 0, sizeof(float), stream));  // an event that is not ready is no failure
    while (cudaEventQuery(done) == cudaErrorNotReady) {
    }
    EXPECT_CUDA(cudaEventQuery(done));
    static_cast<void>(cudaGetLastError());
}

TEST(Streams, AnEventThatWasNeverRecordedIsComplete) {
    const Stream stream;
    const Event never;
    EXPECT_CUDA(cudaEventQuery(never));
    EXPECT_CUDA(cudaEventSynchronize(never));
    EXPECT_CUDA(cudaStreamWaitEvent(stream, never, 0));
    float milliseconds = 0;
    EXPECT_EQ(cudaEventElapsedTime(&milliseconds, never, never), cudaErrorInvalidResourceHandle);
}

TEST(Copies, FromPageableMemoryTakeTheValuesOfTheCall) {
    for_seeds([] {
        const Stream stream;
        const Floats a(4);
        std::vector<float> values(4, 1.0F);
        EXPECT_CUDA(cudaMemcpyAsync(a.data(), values.data(), 16, cudaMemcpyDefault, stream));
        values.assign(4, 2.0F);
        EXPECT_EQ(a.read(stream), std::vector<float>(4, 1.0F));
    });
}

TEST(Copies, FromPinnedMemoryTakeTheValuesOfTheirTurn) {
    if (kFindsRaces) GTEST_SKIP() << "a race on purpose";
    Device::instance().set_seed(0);
    const Stream stream;
    const Floats a(4);
    void* memory = nullptr;
    EXPECT_CUDA(cudaMallocHost(&memory, 16));
    auto* const pinned = static_cast<float*>(memory);
    EXPECT_TRUE(std::isnan(pinned[0]));
    std::fill_n(pinned, 4, 1.0F);
    EXPECT_CUDA(cudaMemcpyAsync(a.data(), pinned, 16, cudaMemcpyDefault, stream));
    std::fill_n(pinned, 4, 2.0F);
    EXPECT_EQ(a.read(stream), std::vector<float>(4, 2.0F));
    EXPECT_CUDA(cudaFreeHost(memory));
}

TEST(Copies, BeyondABlockAreRefused) {
    const Stream stream;
    const Floats a(64);
    std::vector<float> values(128);
    EXPECT_EQ(cudaMemcpyAsync(a.data(), values.data(), 512, cudaMemcpyDefault, stream), cudaErrorInvalidValue);
    EXPECT_EQ(cudaMemsetAsync(a.data() + 32, 0, 256, stream), cudaErrorInvalidValue);
    EXPECT_EQ(cudaMemsetAsync(values.data(), 0, 4, stream), cudaErrorInvalidValue);
    static_cast<void>(cudaGetLastError());
}

TEST(DeviceMemory, IsFullOfNanAndCounted) {
    const Stream stream;
    std::size_t before = 0, between = 0, after = 0, total = 0;
    EXPECT_CUDA(cudaMemGetInfo(&before, &total));
    {
        const Floats a(64);
        EXPECT_CUDA(cudaMemGetInfo(&between, &total));
        for (const float value : a.read(stream)) EXPECT_TRUE(std::isnan(value));
    }
    EXPECT_CUDA(cudaMemGetInfo(&after, &total));
    EXPECT_EQ(before - between, 256U);
    EXPECT_EQ(after, before);
    EXPECT_LT(before, total);  // the context
}

TEST(DeviceMemory, EndsAndCanBeEmpty) {
    void* memory = &memory;
    EXPECT_CUDA(cudaMalloc(&memory, 0));
    EXPECT_EQ(memory, nullptr);
    EXPECT_CUDA(cudaFree(nullptr));
    EXPECT_EQ(cudaMalloc(&memory, std::size_t{1} << 40U), cudaErrorMemoryAllocation);
    EXPECT_EQ(cudaGetLastError(), cudaErrorMemoryAllocation);
    EXPECT_EQ(cudaFree(&memory), cudaErrorInvalidValue);
    static_cast<void>(cudaGetLastError());
}

}  // namespace
}  // namespace emulated
