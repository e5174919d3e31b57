// Helpers of the kernel tests: deterministic inputs, comparisons, and derivatives by central differences in double.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "core/random.h"

namespace orrery::kernels::reference {

using Floats = std::vector<float>;
using Doubles = std::vector<double>;

/// Uniform in (-scale, scale).
inline Floats values(const std::string& name, std::int64_t count, double scale = 1.0) {
    const RandomStream stream(7, name);
    Floats result(static_cast<std::size_t>(count));
    for (std::size_t i = 0; i < result.size(); ++i) {
        result[i] = static_cast<float>((2.0 * stream.uniform(i) - 1.0) * scale);
    }
    return result;
}

inline Doubles wide(const Floats& x) {
    return {x.begin(), x.end()};
}

/// Expects that the largest difference is at most `tolerance` times the largest magnitude of `expected`.
inline void expect_close(const Floats& actual, const Doubles& expected, double tolerance, const std::string& what) {
    ASSERT_EQ(actual.size(), expected.size()) << what;
    double largest = 1e-30;
    for (double value : expected) largest = std::max(largest, std::abs(value));
    for (std::size_t i = 0; i < actual.size(); ++i) {
        ASSERT_NEAR(static_cast<double>(actual[i]), expected[i], tolerance * largest) << what << " at " << i;
    }
}

/// The function to differentiate, from all inputs (concatenated) to all outputs.
using Forward = std::function<Doubles(const Doubles&)>;

/// Compares `gradient` with d(sum of upstream * forward(x)) / dx at about `most` coordinates spread over x.
inline void expect_gradient(const Forward& forward, const Doubles& x, const Doubles& upstream, const Floats& gradient,
                            double tolerance, const std::string& what, std::size_t most = 120) {
    ASSERT_EQ(gradient.size(), x.size()) << what;
    double largest = 1e-30;
    for (float value : gradient) largest = std::max(largest, std::abs(static_cast<double>(value)));
    const std::size_t stride = std::max<std::size_t>(1, x.size() / most);
    for (std::size_t i = 0; i < x.size(); i += stride) {
        constexpr double kStep = 1e-5;
        Doubles moved = x;
        moved[i] = x[i] + kStep;
        const Doubles up = forward(moved);
        moved[i] = x[i] - kStep;
        const Doubles down = forward(moved);
        ASSERT_EQ(up.size(), upstream.size()) << what;
        double slope = 0.0;
        for (std::size_t j = 0; j < up.size(); ++j) slope += upstream[j] * (up[j] - down[j]);
        slope /= 2.0 * kStep;
        ASSERT_NEAR(static_cast<double>(gradient[i]), slope, tolerance * largest) << what << " at " << i;
    }
}

}  // namespace orrery::kernels::reference
