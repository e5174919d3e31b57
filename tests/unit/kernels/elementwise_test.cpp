#include "kernels/kernels.h"
#include "tests/unit/kernels/reference.h"

namespace orrery::kernels {
namespace {

using reference::Doubles;
using reference::Floats;
using reference::wide;

TEST(Elementwise, ResidualAdd) {
    constexpr std::int64_t kRows = 3;
    constexpr std::int64_t kWidth = 19;
    const Floats a = reference::values("a", kRows * kWidth);
    const Floats b = reference::values("b", kRows * kWidth);
    const Floats bias = reference::values("bias", kWidth);
    Floats y(a.size());
    residual_add(kRows, kWidth, a.data(), b.data(), bias.data(), y.data());
    for (std::size_t i = 0; i < y.size(); ++i) EXPECT_EQ(y[i], (a[i] + b[i]) + bias[i % kWidth]);
    Floats in_place = b;
    residual_add(kRows, kWidth, a.data(), in_place.data(), nullptr, in_place.data());
    for (std::size_t i = 0; i < y.size(); ++i) EXPECT_EQ(in_place[i], a[i] + b[i]);
}

TEST(Elementwise, Reductions) {
    for (std::int64_t elements : {0, 1, 15, 16, 1000}) {
        const Floats a = reference::values("a", elements);
        const Floats b = reference::values("b", elements);
        Floats sum = a;
        Floats most = a;
        add(elements, b.data(), sum.data());
        maximum(elements, b.data(), most.data());
        Doubles wide_sum = wide(a);
        Doubles wide_most = wide(a);
        const Doubles wide_b = wide(b);
        add(elements, wide_b.data(), wide_sum.data());
        maximum(elements, wide_b.data(), wide_most.data());
        for (std::size_t i = 0; i < a.size(); ++i) {
            EXPECT_EQ(sum[i], a[i] + b[i]);
            EXPECT_EQ(most[i], std::max(a[i], b[i]));
            EXPECT_EQ(wide_sum[i], static_cast<double>(a[i]) + static_cast<double>(b[i]));
            EXPECT_EQ(wide_most[i], static_cast<double>(std::max(a[i], b[i])));
        }
        Floats target(a.size(), 3.0F);
        copy(elements, a.data(), target.data());
        EXPECT_EQ(target, a);
        fill(elements, 0.5F, target.data());
        EXPECT_EQ(target, Floats(a.size(), 0.5F));
    }
}

}  // namespace
}  // namespace orrery::kernels
