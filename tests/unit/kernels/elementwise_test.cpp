#include <bit>

#include "core/float16.h"
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

TEST(Elementwise, BiasAdd) {
    const Floats x{1.0F, 2.0F, 3.0F, 4.0F, 5.0F, 6.0F};
    const Floats bias{10.0F, 20.0F, 30.0F};
    Floats y = x;
    bias_add(2, 3, y.data(), bias.data(), y.data());
    EXPECT_EQ(y, (Floats{11.0F, 22.0F, 33.0F, 14.0F, 25.0F, 36.0F}));
    bias_add(0, 3, nullptr, bias.data(), nullptr);
}

/// The vectorized casts must round and treat NaN like the scalar functions.
TEST(Elementwise, CastToAndFromBf16) {
    Floats x = reference::values("x", 1000, 1e3);
    for (const std::uint32_t bits : {0x7f800001U, 0xff800000U, 0x7f7fffffU, 0x3f808000U, 0x3f818000U, 0x80000000U}) {
        x.push_back(std::bit_cast<float>(bits));
    }
    std::vector<std::uint16_t> half(x.size());
    cast_to_bf16(static_cast<std::int64_t>(x.size()), x.data(), half.data());
    Floats back(x.size());
    cast_from_bf16(static_cast<std::int64_t>(x.size()), half.data(), back.data());
    for (std::size_t i = 0; i < x.size(); ++i) {
        EXPECT_EQ(half[i], to_bf16(x[i])) << x[i];
        EXPECT_EQ(std::bit_cast<std::uint32_t>(back[i]), static_cast<std::uint32_t>(half[i]) << 16);
    }
}

}  // namespace
}  // namespace orrery::kernels
