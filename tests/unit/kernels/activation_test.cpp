#include <bit>
#include <limits>

#include "kernels/kernels.h"
#include "tests/unit/kernels/reference.h"

namespace orrery::kernels {
namespace {

using reference::Doubles;
using reference::Floats;
using reference::wide;

TEST(Exponential, StaysWithinTwoUnitsInTheLastPlace) {
    Floats x;
    for (float value = -86.8F; value < 88.7F; value += 0.00317F) x.push_back(value);
    for (float value = 1e-30F; value < 1.0F; value *= 1.7F) {
        x.push_back(value);
        x.push_back(-value);
    }
    Floats y(x.size());
    exponential(static_cast<std::int64_t>(x.size()), x.data(), y.data());
    double worst = 0.0;
    for (std::size_t i = 0; i < x.size(); ++i) {
        const double exact = std::exp(static_cast<double>(x[i]));
        const auto rounded = static_cast<float>(exact);
        const double unit = static_cast<double>(std::nextafter(rounded, std::numeric_limits<float>::infinity())) -
                            static_cast<double>(rounded);
        worst = std::max(worst, std::abs(static_cast<double>(y[i]) - exact) / unit);
    }
    EXPECT_LE(worst, 2.0);
    EXPECT_GT(worst, 0.0);
}

TEST(Exponential, Extremes) {
    constexpr float kInfinity = std::numeric_limits<float>::infinity();
    const Floats x{0.0F, -kInfinity, kInfinity, -1000.0F, -86.95F, 88.73F, 1e30F, std::nanf(""), -0.0F};
    Floats y(x.size());
    exponential(static_cast<std::int64_t>(x.size()), x.data(), y.data());
    EXPECT_EQ(y[0], 1.0F);
    EXPECT_EQ(y[1], 0.0F);
    EXPECT_EQ(y[2], kInfinity);
    EXPECT_EQ(y[3], 0.0F);
    EXPECT_EQ(y[4], 0.0F);
    EXPECT_EQ(y[5], kInfinity);
    EXPECT_EQ(y[6], kInfinity);
    EXPECT_TRUE(std::isnan(y[7]));
    EXPECT_EQ(y[8], 1.0F);
}

Doubles gelu(const Doubles& x) {
    Doubles y;
    for (double v : x) y.push_back(0.5 * v * (1.0 + std::tanh(std::sqrt(2.0 / M_PI) * (v + 0.044715 * v * v * v))));
    return y;
}

TEST(Gelu, ForwardAndBackward) {
    Floats x = reference::values("x", 1003, 8.0);
    for (float value : {0.0F, 40.0F, -40.0F, 1e-20F, 1000.0F, -1000.0F}) x.push_back(value);
    const auto elements = static_cast<std::int64_t>(x.size());
    Floats y(x.size());
    gelu_forward(elements, x.data(), y.data());
    const Doubles expected = gelu(wide(x));
    for (std::size_t i = 0; i < x.size(); ++i) {
        ASSERT_NEAR(static_cast<double>(y[i]), expected[i], 1e-6 * (std::abs(expected[i]) + 1e-2)) << x[i];
    }
    const Floats dy = reference::values("dy", elements);
    Floats dx(x.size());
    gelu_backward(elements, dy.data(), x.data(), dx.data());
    reference::expect_gradient([](const Doubles& at) { return gelu(at); }, wide(x), wide(dy), dx, 1e-6, "dx", 10000);
    Floats in_place = dy;
    gelu_backward(elements, in_place.data(), x.data(), in_place.data());
    EXPECT_EQ(in_place, dx);
}

Doubles swiglu(const Doubles& gate_up, std::size_t rows, std::size_t n) {
    Doubles y(rows * n);
    for (std::size_t r = 0; r < rows; ++r) {
        for (std::size_t i = 0; i < n; ++i) {
            const double gate = gate_up[r * 2 * n + i];
            y[r * n + i] = gate / (1.0 + std::exp(-gate)) * gate_up[r * 2 * n + n + i];
        }
    }
    return y;
}

TEST(Swiglu, ForwardAndBackward) {
    constexpr std::int64_t kRows = 3;
    constexpr std::int64_t kWidth = 37;
    const Floats gate_up = reference::values("gate_up", kRows * 2 * kWidth, 6.0);
    Floats y(static_cast<std::size_t>(kRows * kWidth));
    swiglu_forward(kRows, kWidth, gate_up.data(), y.data());
    reference::expect_close(y, swiglu(wide(gate_up), kRows, kWidth), 1e-6, "y");
    const Floats dy = reference::values("dy", kRows * kWidth);
    Floats dgate_up(gate_up.size());
    swiglu_backward(kRows, kWidth, dy.data(), gate_up.data(), dgate_up.data());
    reference::expect_gradient([](const Doubles& at) { return swiglu(at, kRows, kWidth); }, wide(gate_up), wide(dy),
                               dgate_up, 1e-6, "dgate_up", 10000);
}

TEST(Relu, ForwardAndBackward) {
    const Floats x{-2.0F, -0.0F, 0.0F, 3.0F, std::nanf(""), 1e-30F};
    Floats y(x.size());
    relu_forward(6, x.data(), y.data());
    EXPECT_EQ(y[0], 0.0F);
    EXPECT_EQ(y[1], 0.0F);
    EXPECT_EQ(y[3], 3.0F);
    EXPECT_TRUE(std::isnan(y[4]));
    EXPECT_EQ(y[5], 1e-30F);
    Floats dx(x.size(), 5.0F);
    relu_backward(6, dx.data(), x.data(), dx.data());
    EXPECT_EQ(dx, (Floats{0.0F, 0.0F, 0.0F, 5.0F, 0.0F, 5.0F}));
}

/// The steps work on halves of the same wider rows.
TEST(Swiglu, StepsMatchTheFusedKernel) {
    constexpr std::int64_t kRows = 3, kWidth = 37;
    const Floats gate_up = reference::values("gate_up", kRows * 2 * kWidth, 6.0);
    const Floats dy = reference::values("dy", kRows * kWidth);
    Floats expected(dy.size()), expected_gradient(gate_up.size());
    swiglu_forward(kRows, kWidth, gate_up.data(), expected.data());
    swiglu_backward(kRows, kWidth, dy.data(), gate_up.data(), expected_gradient.data());

    const ConstRows gate{gate_up.data(), 2 * kWidth}, up{gate_up.data() + kWidth, 2 * kWidth};
    Floats activated(dy.size()), y(dy.size());
    silu_forward(kRows, kWidth, gate, {activated.data(), kWidth});
    multiply_forward(kRows, kWidth, {activated.data(), kWidth}, up, {y.data(), kWidth});
    EXPECT_EQ(y, expected);
    Floats gradient(gate_up.size()), dactivated = dy;
    const Rows dgate{gradient.data(), 2 * kWidth}, dup{gradient.data() + kWidth, 2 * kWidth};
    const Rows in_place{dactivated.data(), kWidth};
    multiply_backward(kRows, kWidth, in_place, {activated.data(), kWidth}, up, in_place, dup);
    silu_backward(kRows, kWidth, in_place, gate, dgate);
    reference::expect_close(gradient, wide(expected_gradient), 1e-6, "dgate_up");
    silu_backward(kRows, kWidth, in_place, gate, in_place);
    for (std::int64_t r = 0; r < kRows; ++r) {
        for (std::int64_t i = 0; i < kWidth; ++i) {
            EXPECT_EQ(dactivated[static_cast<std::size_t>(r * kWidth + i)], dgate.data[r * 2 * kWidth + i]);
        }
    }
}

TEST(SigmoidScale, ForwardAndBackward) {
    constexpr std::int64_t kRows = 4, kWidth = 21;
    const Floats x = reference::values("x", kRows * kWidth);
    const Floats logits{-3.0F, 0.0F, 0.7F, 40.0F};
    Floats y(x.size());
    sigmoid_scale_forward(kRows, kWidth, x.data(), logits.data(), y.data());
    const auto naive = [&](const Doubles& all) {
        Doubles result;
        for (std::size_t i = 0; i < x.size(); ++i) {
            result.push_back(all[i] / (1.0 + std::exp(-all[x.size() + i / kWidth])));
        }
        return result;
    };
    Doubles inputs = wide(x);
    inputs.insert(inputs.end(), logits.begin(), logits.end());
    reference::expect_close(y, naive(inputs), 1e-6, "y");
    const Floats dy = reference::values("dy", kRows * kWidth);
    Floats gradients(inputs.size());
    sigmoid_scale_backward(kRows, kWidth, dy.data(), x.data(), logits.data(), gradients.data(),
                           gradients.data() + x.size());
    reference::expect_gradient(naive, inputs, wide(dy), gradients, 1e-6, "gradients", 10000);
    Floats in_place = dy, dlogits(kRows);
    sigmoid_scale_backward(kRows, kWidth, in_place.data(), x.data(), logits.data(), in_place.data(), dlogits.data());
    EXPECT_TRUE(std::equal(in_place.begin(), in_place.end(), gradients.begin()));
}

}  // namespace
}  // namespace orrery::kernels
