// Products of fp32 and bf16 factors, where the fp32 factor is cut some rows or columns at a time.
#include "kernels/cuda/products.h"

#include <vector>

#include "tests/gpu/kernel_fixture.h"

namespace orrery::exec {
namespace {

using kernels::cuda::Floats;
using kernels::cuda::Products;

constexpr std::int64_t kRows = 37, kOut = 45, kIn = 29;
constexpr kernels::LinearShape kShape{kRows, kOut, kIn};

class ProductsOperatorsOnGpu : public KernelsOnGpu {
  protected:
    /// Random numbers in device memory.
    Floats random(std::int64_t elements, DType type) { return on_device(numbers(elements, type), type); }
    [[nodiscard]] Products products(std::int64_t most_cut) {
        return Products(
            {.allocate = [this](std::int64_t bytes) { return device_->allocate(bytes); }, .most_cut = most_cut});
    }
};

void expect_near(const std::vector<float>& a, const std::vector<float>& b, const char* what) {
    ASSERT_EQ(a.size(), b.size());
    for (std::size_t i = 0; i < a.size(); ++i) ASSERT_NEAR(a[i], b[i], 1e-5F) << what << ", element " << i;
}

TEST_F(ProductsOperatorsOnGpu, PartsOfAFactorMakeTheWholeResult) {
    Products whole = products(program::kMostCutElements), parts = products(100);
    const Floats narrow_x = random(kRows * kIn, DType::bf16), wide_dy = random(kRows * kOut, DType::fp32);
    const Floats narrow_weight = random(kOut * kIn, DType::bf16), wide_weight = random(kOut * kIn, DType::fp32);
    std::vector<std::vector<float>> y, dx, dweight;
    for (Products* one : {&whole, &parts}) {
        const Floats result = random(kRows * kOut, DType::fp32);
        one->linear_forward(stream(), kShape, {narrow_x, kIn}, wide_weight, {}, {result, kOut});
        y.push_back(read(result, kRows * kOut));
        const Floats gradient = random(kRows * kIn, DType::fp32);
        one->linear_backward_input(stream(), kShape, {wide_dy, kOut}, narrow_weight, {gradient, kIn});
        dx.push_back(read(gradient, kRows * kIn));
        draws_ = 1'000'000;  // the same gradients, to which the product is added
        const Floats of_weight = random(kOut * kIn, DType::fp32);
        one->linear_backward_weight(stream(), kShape, {wide_dy, kOut}, {narrow_x, kIn}, of_weight, {});
        dweight.push_back(read(of_weight, kOut * kIn));
    }
    expect_near(y[0], y[1], "y");
    expect_near(dx[0], dx[1], "dx");
    expect_near(dweight[0], dweight[1], "dweight");
}

}  // namespace
}  // namespace orrery::exec
