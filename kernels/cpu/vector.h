// Vectorization of the kernels. Functions are compiled for several instruction sets, one of which is chosen at program
// load. Sums use a fixed number of lanes, so that the order of additions does not depend on the choice.
#pragma once

#include <bit>
#include <cstdint>

// The resolver that chooses the instruction set runs before the sanitizers are initialised, so sanitizer builds use the
// default one.
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__) && !defined(__SANITIZE_ADDRESS__) && \
    !defined(__SANITIZE_THREAD__)
#define ORRERY_VECTOR __attribute__((target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default")))
#else
#define ORRERY_VECTOR
#endif
#define ORRERY_INLINE inline __attribute__((always_inline))
// For loops with independent iterations whose output may be the same array as an input.
#if defined(__clang__)
#define ORRERY_INDEPENDENT _Pragma("clang loop vectorize(assume_safety)")
#define ORRERY_KEEP_LOOP
#else
#define ORRERY_INDEPENDENT _Pragma("GCC ivdep")
// For loops over lanes with a comparison: GCC vectorizes the loop, but not its unrolled iterations.
#define ORRERY_KEEP_LOOP _Pragma("GCC unroll 1")
#endif

namespace orrery::kernels {

inline constexpr int kLanes = 16;

/// The sum of term(i) for i in [0, n), accumulated in kLanes partial sums of type `Sum` that are combined pairwise.
template <typename Sum, typename Term>
ORRERY_INLINE Sum lane_sum(std::int64_t n, const Term& term) {
    Sum lanes[kLanes] = {};
    std::int64_t i = 0;
    for (; i + kLanes <= n; i += kLanes) {
        for (int lane = 0; lane < kLanes; ++lane) lanes[lane] += term(i + lane);
    }
    for (int lane = 0; i < n; ++i, ++lane) lanes[lane] += term(i);
    for (int half = kLanes / 2; half > 0; half /= 2) {
        for (int lane = 0; lane < half; ++lane) lanes[lane] += lanes[lane + half];
    }
    return lanes[0];
}

/// Two sums in one pass: first(i) and second(i).
template <typename Sum, typename First, typename Second>
ORRERY_INLINE void lane_sums(std::int64_t n, const First& first, const Second& second, Sum& first_sum,
                             Sum& second_sum) {
    Sum a[kLanes] = {};
    Sum b[kLanes] = {};
    std::int64_t i = 0;
    for (; i + kLanes <= n; i += kLanes) {
        for (int lane = 0; lane < kLanes; ++lane) a[lane] += first(i + lane);
        for (int lane = 0; lane < kLanes; ++lane) b[lane] += second(i + lane);
    }
    for (int lane = 0; i < n; ++i, ++lane) {
        a[lane] += first(i);
        b[lane] += second(i);
    }
    for (int half = kLanes / 2; half > 0; half /= 2) {
        for (int lane = 0; lane < half; ++lane) {
            a[lane] += a[lane + half];
            b[lane] += b[lane + half];
        }
    }
    first_sum = a[0];
    second_sum = b[0];
}

/// The maximum of `start` and x[0, n).
ORRERY_INLINE float lane_max(std::int64_t n, const float* x, float start) {
    float lanes[kLanes];
    for (float& lane : lanes) lane = start;
    std::int64_t i = 0;
    for (; i + kLanes <= n; i += kLanes) {
        ORRERY_KEEP_LOOP
        for (int lane = 0; lane < kLanes; ++lane) lanes[lane] = lanes[lane] < x[i + lane] ? x[i + lane] : lanes[lane];
    }
    for (int lane = 0; i < n; ++i, ++lane) lanes[lane] = lanes[lane] < x[i] ? x[i] : lanes[lane];
    for (int half = kLanes / 2; half > 0; half /= 2) {
        for (int lane = 0; lane < half; ++lane) {
            lanes[lane] = lanes[lane] < lanes[lane + half] ? lanes[lane + half] : lanes[lane];
        }
    }
    return lanes[0];
}

/// e^x. x = n ln 2 + r with |r| <= ln 2 / 2; e^r by a polynomial (Chebyshev interpolation of (e^r - 1 - r) / r^2, error
/// 2e-10 before rounding); 2^n is assembled in the exponent bits, as two factors because 2^128 is not a float. NaN
/// stays NaN.
ORRERY_INLINE float fast_exp(float x) {
    constexpr float kLowest = -86.9F;
    constexpr float kHighest = 88.7228F;
    constexpr float kRound = 12582912.0F;  // 1.5 * 2^23: adding it leaves the nearest integer in the low bits
    const float bounded = x < kLowest ? kLowest : x;
    const float shifted = bounded * 1.44269504F + kRound;
    const float n = shifted - kRound;
    // ln 2 in two parts, the first with so few bits that n times it is exact.
    const float r = (bounded - n * 0.693359375F) + n * 2.12194440e-4F;
    float p = 0.00019890990824673654F;
    p = p * r + 0.0013933649996309251F;
    p = p * r + 0.0083333109254809F;
    p = p * r + 0.041666464925285904F;
    p = p * r + 0.16666666681623232F;
    p = p * r + 0.500000001346581F;
    p = (p * r) * r + r + 1.0F;
    const std::uint32_t exponent = (std::bit_cast<std::uint32_t>(shifted) + 126U) << 23;
    const float y = (p * 2.0F) * std::bit_cast<float>(exponent);
    const float not_low = x < kLowest ? 0.0F : y;
    return x > kHighest ? __builtin_inff() : not_low;
}

}  // namespace orrery::kernels
