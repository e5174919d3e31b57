// Fixture of tests that call kernels on random numbers, other ones in each run.
#pragma once

#include <cuda_runtime.h>

#include <cmath>
#include <cstdlib>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "core/float16.h"
#include "core/random.h"
#include "kernels/cuda/floats.h"
#include "kernels/cuda/stream.h"
#include "tests/gpu/gpu.h"

namespace orrery::exec {

class KernelsOnGpu : public OnGpu {
  protected:
    void SetUp() override {
        OnGpu::SetUp();
        if (IsSkipped() || HasFatalFailure()) return;
        device_ = make_cuda_device(0, world_of_one());
        ASSERT_EQ(cudaStreamCreateWithPriority(&stream_, cudaStreamNonBlocking, 0), cudaSuccess);
    }
    void TearDown() override {
        if (HasFailure()) std::printf("again with the same numbers: ORRERY_TEST_SEED=%u\n", seed_);
        if (stream_ != nullptr) cudaStreamDestroy(stream_);
    }

    /// Uniform in [-1, 1), and exact in the type.
    [[nodiscard]] std::vector<float> numbers(std::int64_t elements, DType type) {
        std::vector<float> values(static_cast<std::size_t>(elements));
        for (float& value : values) {
            value = static_cast<float>(2 * random_.uniform(draws_++) - 1);
            if (type == DType::bf16) value = from_bf16(to_bf16(value));
        }
        return values;
    }
    /// A copy in device memory, rounded to the type.
    [[nodiscard]] kernels::cuda::Floats on_device(const std::vector<float>& values, DType type) {
        std::vector<std::uint16_t> narrow;
        for (const float value : values) narrow.push_back(to_bf16(value));
        const std::int64_t bytes = std::ssize(values) * size_of(type);
        std::byte* const memory = device_->allocate(bytes);
        const void* const from = type == DType::bf16 ? static_cast<const void*>(narrow.data()) : values.data();
        device_->copy(program::Stream::compute, memory, from, bytes);
        device_->synchronize(device_->record(program::Stream::compute));
        return {memory, type};
    }
    /// After everything that is queued.
    [[nodiscard]] std::vector<float> read(kernels::cuda::Floats from, std::int64_t elements) {
        EXPECT_EQ(cudaStreamSynchronize(stream_), cudaSuccess);
        const auto count = static_cast<std::size_t>(elements);
        std::vector<float> values(count);
        std::vector<std::uint16_t> narrow(from.type == DType::bf16 ? count : 0);
        void* const to = narrow.empty() ? static_cast<void*>(values.data()) : narrow.data();
        device_->copy(program::Stream::compute, to, from.data, elements * size_of(from.type));
        device_->synchronize(device_->record(program::Stream::compute));
        for (std::size_t i = 0; i < narrow.size(); ++i) values[i] = from_bf16(narrow[i]);
        return values;
    }
    /// The same of numbers of any other kind.
    template <typename T>
    [[nodiscard]] T* copy_of(const std::vector<T>& values) {
        const std::int64_t bytes = std::ssize(values) * static_cast<std::int64_t>(sizeof(T));
        std::byte* const memory = device_->allocate(bytes);
        device_->copy(program::Stream::compute, memory, values.data(), bytes);
        device_->synchronize(device_->record(program::Stream::compute));
        return reinterpret_cast<T*>(memory);
    }
    template <typename T>
    [[nodiscard]] std::vector<T> words(const T* from, std::size_t count) {
        EXPECT_EQ(cudaStreamSynchronize(stream_), cudaSuccess);
        std::vector<T> values(count);
        device_->copy(program::Stream::compute, values.data(), from, static_cast<std::int64_t>(count * sizeof(T)));
        device_->synchronize(device_->record(program::Stream::compute));
        return values;
    }
    [[nodiscard]] kernels::cuda::StreamHandle stream() const { return {stream_}; }

    std::unique_ptr<Device> device_;
    cudaStream_t stream_ = nullptr;
    std::uint64_t draws_ = 0;

  private:
    static unsigned seed_of_run() {
        const char* const given = std::getenv("ORRERY_TEST_SEED");
        return given != nullptr ? static_cast<unsigned>(std::strtoul(given, nullptr, 10)) : std::random_device()();
    }
    unsigned seed_ = seed_of_run();
    RandomStream random_{seed_, "kernels"};
};

/// A number in double precision, and the sum of the magnitudes of which it is the sum: the error of an implementation
/// in less precision is a small part of that.
struct Exact {
    double value = 0, magnitude = 0;
    double of_factors =
        0;  // the magnitude if the factors, sums themselves, are replaced by the magnitudes of their terms
    void add(double factor, double factor_magnitude, double other) {
        value += factor * other;
        magnitude += std::abs(factor * other);
        of_factors += factor_magnitude * std::abs(other);
    }
};

/// How far results may be from exact ones: parts of the sum of magnitudes, because factors are rounded, of that with
/// the terms of factors, because they are sums in fp32, and of the result, which is rounded to its type.
struct Rounding {
    double of_terms = 0, of_sums = 0, of_result = 0;
};
/// The largest error of rounding to bf16, relatively.
inline constexpr double kRoundingOfBf16 = 0x1p-8;

inline void expect_rounded(const std::vector<float>& got, const std::vector<Exact>& exact, const Rounding& rounding,
                           const std::string& what) {
    ASSERT_EQ(got.size(), exact.size());
    for (std::size_t i = 0; i < got.size(); ++i) {
        const double before =
            rounding.of_terms * exact[i].magnitude + rounding.of_sums * exact[i].of_factors;  // the result is rounded
        const double allowed = before + rounding.of_result * (std::abs(exact[i].value) + before);
        ASSERT_NEAR(static_cast<double>(got[i]), exact[i].value, allowed) << what << ", element " << i;
    }
}

}  // namespace orrery::exec
