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
        return Products({.allocate = [this](std::int64_t bytes) { return device_->allocate(bytes); },
                         .workspace_bytes = 1 << 16,
                         .most_cut = most_cut});
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

/// cuBLASLt has an algorithm for some sizes, and cuBLAS adds to rows of biases for the others.
TEST_F(ProductsOperatorsOnGpu, BiasesAreAdded) {
    constexpr std::int64_t kPadding = 8;
    Products products = this->products(program::kMostCutElements);
    products.prepare(stream(), 0);
    for (const DType type : {DType::fp32, DType::bf16}) {
        for (const kernels::LinearShape& shape : {kernels::LinearShape{37, 48, 40}, kernels::LinearShape{37, 45, 29}}) {
            const auto x = numbers(shape.rows * (shape.k + kPadding), type), weight = numbers(shape.n * shape.k, type);
            const auto bias = numbers(shape.n, type), before = numbers(shape.rows * (shape.n + kPadding), type);
            const Floats y = on_device(before, type);
            for (int again = 0; again < 2; ++again) {  // the second time with the algorithm of the first
                products.linear_forward(stream(), shape, {on_device(x, type), shape.k + kPadding},
                                        on_device(weight, type), on_device(bias, type), {y, shape.n + kPadding});
            }
            std::vector<Exact> exact;
            for (std::int64_t row = 0; row < shape.rows; ++row) {
                for (std::int64_t column = 0; column < shape.n + kPadding; ++column) {
                    if (column >= shape.n) {
                        exact.push_back({static_cast<double>(before[exact.size()])});
                        continue;
                    }
                    Exact one{static_cast<double>(bias[static_cast<std::size_t>(column)])};
                    for (std::int64_t i = 0; i < shape.k; ++i) {
                        one.add(static_cast<double>(x[static_cast<std::size_t>(row * (shape.k + kPadding) + i)]), 1,
                                static_cast<double>(weight[static_cast<std::size_t>(column * shape.k + i)]));
                    }
                    exact.push_back(one);
                }
            }
            const double of_type = type == DType::bf16 ? kRoundingOfBf16 : 0;
            expect_rounded(read(y, std::ssize(exact)), exact, {.of_sums = 1e-6, .of_result = of_type + 1e-6}, "y");
        }
    }
}

}  // namespace
}  // namespace orrery::exec
