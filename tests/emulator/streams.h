// Helpers for tests of the emulated device: RAII over streams, events and memory, and kernels that tests queue.
#pragma once

#include <cuda_runtime.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <vector>

#include "tests/emulator/device.h"

namespace emulated {

#define EXPECT_CUDA(call) EXPECT_EQ(call, cudaSuccess)

class Stream {
  public:
    Stream() { EXPECT_CUDA(cudaStreamCreateWithPriority(&stream_, cudaStreamNonBlocking, 0)); }
    ~Stream() { cudaStreamDestroy(stream_); }
    Stream(const Stream&) = delete;
    Stream& operator=(const Stream&) = delete;
    operator cudaStream_t() const { return stream_; }
    void finish() const { EXPECT_CUDA(cudaStreamSynchronize(stream_)); }

  private:
    cudaStream_t stream_ = nullptr;
};

class Event {
  public:
    Event() { EXPECT_CUDA(cudaEventCreate(&event_)); }
    ~Event() { cudaEventDestroy(event_); }
    Event(const Event&) = delete;
    Event& operator=(const Event&) = delete;
    operator cudaEvent_t() const { return event_; }

  private:
    cudaEvent_t event_ = nullptr;
};

/// Floats in device memory.
class Floats {
  public:
    explicit Floats(std::size_t count) : count_(count) {
        void* memory = nullptr;
        EXPECT_CUDA(cudaMalloc(&memory, count * sizeof(float)));
        data_ = static_cast<float*>(memory);
    }
    ~Floats() { cudaFree(data_); }
    Floats(const Floats&) = delete;
    Floats& operator=(const Floats&) = delete;
    [[nodiscard]] float* data() const { return data_; }
    /// Waits for the stream and copies all of them.
    [[nodiscard]] std::vector<float> read(cudaStream_t stream) const {
        std::vector<float> values(count_);
        EXPECT_CUDA(cudaMemcpyAsync(values.data(), data_, count_ * sizeof(float), cudaMemcpyDefault, stream));
        return values;
    }

  private:
    std::size_t count_;
    float* data_ = nullptr;
};

template <typename... Parameters>
cudaError_t launch(cudaStream_t stream, dim3 grid, dim3 block, void (*kernel)(Parameters...),
                   std::type_identity_t<Parameters>... arguments) {
    cudaLaunchConfig_t config{};
    config.gridDim = grid;
    config.blockDim = block;
    config.stream = stream;
    return cudaLaunchKernelEx(&config, kernel, arguments...);
}

/// Repeats a test with several seeds, and with each policy at least once.
template <typename Body>
void for_seeds(const Body& body) {
    for (std::int64_t seed = 0; seed < 6; ++seed) {
        SCOPED_TRACE("seed " + std::to_string(seed));
        Device::instance().set_seed(seed);
        body();
    }
}

}  // namespace emulated
