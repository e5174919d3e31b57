// Products of fp32 and bf16 factors, where the fp32 factor is cut some rows or columns at a time.
#include "kernels/cuda/products.h"

#include <cuda_runtime.h>

#include <memory>
#include <vector>

#include "core/float16.h"
#include "core/random.h"
#include "tests/gpu/gpu.h"

namespace orrery::exec {
namespace {

using kernels::cuda::Floats;
using kernels::cuda::Products;

constexpr std::int64_t kRows = 37, kOut = 45, kIn = 29;
constexpr kernels::LinearShape kShape{kRows, kOut, kIn};

class ProductsOperatorsOnGpu : public OnGpu {
  protected:
    void SetUp() override {
        OnGpu::SetUp();
        if (IsSkipped() || HasFatalFailure()) return;
        device_ = make_cuda_device(0, world_of_one());
        ASSERT_EQ(cudaStreamCreateWithPriority(&stream_, cudaStreamNonBlocking, 0), cudaSuccess);
    }
    void TearDown() override {
        if (stream_ != nullptr) cudaStreamDestroy(stream_);
    }

    /// Random numbers in device memory.
    Floats numbers(std::int64_t elements, DType type) {
        std::vector<float> wide;
        std::vector<std::uint16_t> narrow;
        for (std::int64_t i = 0; i < elements; ++i) {
            wide.push_back(static_cast<float>(2 * random_.uniform(draws_++) - 1));
            narrow.push_back(to_bf16(wide.back()));
        }
        std::byte* const memory = device_->allocate(elements * size_of(type));
        const void* const from = type == DType::bf16 ? static_cast<const void*>(narrow.data()) : wide.data();
        device_->copy(program::Stream::compute, memory, from, elements * size_of(type));
        device_->synchronize(device_->record(program::Stream::compute));
        return {memory, type};
    }
    /// Those of an fp32 result, after everything that is queued.
    std::vector<float> read(Floats from, std::int64_t elements) {
        EXPECT_EQ(cudaStreamSynchronize(stream_), cudaSuccess);
        std::vector<float> values(static_cast<std::size_t>(elements));
        device_->copy(program::Stream::compute, values.data(), from.data, elements * size_of(DType::fp32));
        device_->synchronize(device_->record(program::Stream::compute));
        return values;
    }
    [[nodiscard]] Products products(std::int64_t most_cut) {
        return Products(
            {.allocate = [this](std::int64_t bytes) { return device_->allocate(bytes); }, .most_cut = most_cut});
    }
    [[nodiscard]] kernels::cuda::StreamHandle stream() const { return {stream_}; }

    std::unique_ptr<Device> device_;
    cudaStream_t stream_ = nullptr;
    RandomStream random_{3, "products"};
    std::uint64_t draws_ = 0;
};

void expect_near(const std::vector<float>& a, const std::vector<float>& b, const char* what) {
    ASSERT_EQ(a.size(), b.size());
    for (std::size_t i = 0; i < a.size(); ++i) ASSERT_NEAR(a[i], b[i], 1e-5F) << what << ", element " << i;
}

TEST_F(ProductsOperatorsOnGpu, PartsOfAFactorMakeTheWholeResult) {
    Products whole = products(program::kMostCutElements), parts = products(100);
    const Floats narrow_x = numbers(kRows * kIn, DType::bf16), wide_dy = numbers(kRows * kOut, DType::fp32);
    const Floats narrow_weight = numbers(kOut * kIn, DType::bf16), wide_weight = numbers(kOut * kIn, DType::fp32);
    std::vector<std::vector<float>> y, dx, dweight;
    for (Products* one : {&whole, &parts}) {
        const Floats result = numbers(kRows * kOut, DType::fp32);
        one->linear_forward(stream(), kShape, {narrow_x, kIn}, wide_weight, {}, {result, kOut});
        y.push_back(read(result, kRows * kOut));
        const Floats gradient = numbers(kRows * kIn, DType::fp32);
        one->linear_backward_input(stream(), kShape, {wide_dy, kOut}, narrow_weight, {gradient, kIn});
        dx.push_back(read(gradient, kRows * kIn));
        draws_ = 1'000'000;  // the same gradients, to which the product is added
        const Floats of_weight = numbers(kOut * kIn, DType::fp32);
        one->linear_backward_weight(stream(), kShape, {wide_dy, kOut}, {narrow_x, kIn}, of_weight, {});
        dweight.push_back(read(of_weight, kOut * kIn));
    }
    expect_near(y[0], y[1], "y");
    expect_near(dx[0], dx[1], "dx");
    expect_near(dweight[0], dweight[1], "dweight");
}

}  // namespace
}  // namespace orrery::exec
