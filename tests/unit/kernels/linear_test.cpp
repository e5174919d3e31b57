#include <algorithm>
#include <cmath>

#include "kernels/kernels.h"
#include "tests/unit/kernels/reference.h"

namespace orrery::kernels {
namespace {

using reference::Doubles;
using reference::Floats;
using reference::wide;

struct Product {
    LinearShape shape;
    Floats x, weight, bias, dy;
    explicit Product(LinearShape s)
        : shape(s),
          x(reference::values("x", s.rows * s.k)),
          weight(reference::values("weight", s.n * s.k)),
          bias(reference::values("bias", s.n)),
          dy(reference::values("dy", s.rows * s.n)) {}
};

class Linear : public ::testing::TestWithParam<LinearShape> {
  protected:
    static void SetUpTestSuite() { set_blas_threads(1); }
};

TEST_P(Linear, ForwardIsProductPlusBias) {
    const Product p(GetParam());
    const auto [rows, n, k] = p.shape;
    for (const bool with_bias : {false, true}) {
        Doubles expected(static_cast<std::size_t>(rows * n));
        for (std::int64_t r = 0; r < rows; ++r) {
            for (std::int64_t c = 0; c < n; ++c) {
                double sum = with_bias ? static_cast<double>(p.bias[static_cast<std::size_t>(c)]) : 0.0;
                for (std::int64_t i = 0; i < k; ++i) {
                    sum += static_cast<double>(p.x[static_cast<std::size_t>(r * k + i)]) *
                           static_cast<double>(p.weight[static_cast<std::size_t>(c * k + i)]);
                }
                expected[static_cast<std::size_t>(r * n + c)] = sum;
            }
        }
        Floats y(expected.size(), 99.0F);  // stale content must not leak into the result
        linear_forward(p.shape, p.x.data(), p.weight.data(), with_bias ? p.bias.data() : nullptr, y.data());
        reference::expect_close(y, expected, 1e-6, with_bias ? "with bias" : "without bias");
    }
}

TEST_P(Linear, BackwardInput) {
    const Product p(GetParam());
    const auto [rows, n, k] = p.shape;
    Doubles expected(static_cast<std::size_t>(rows * k), 0.0);
    for (std::int64_t r = 0; r < rows; ++r) {
        for (std::int64_t c = 0; c < n; ++c) {
            for (std::int64_t i = 0; i < k; ++i) {
                expected[static_cast<std::size_t>(r * k + i)] +=
                    static_cast<double>(p.dy[static_cast<std::size_t>(r * n + c)]) *
                    static_cast<double>(p.weight[static_cast<std::size_t>(c * k + i)]);
            }
        }
    }
    Floats dx(expected.size(), 99.0F);
    linear_backward_input(p.shape, p.dy.data(), p.weight.data(), dx.data());
    reference::expect_close(dx, expected, 1e-6, "dx");
}

TEST_P(Linear, BackwardWeightAccumulates) {
    const Product p(GetParam());
    const auto [rows, n, k] = p.shape;
    Floats dweight = reference::values("start", n * k);
    Floats dbias = reference::values("start.bias", n);
    Doubles expected = wide(dweight);
    Doubles expected_bias = wide(dbias);
    for (std::int64_t r = 0; r < rows; ++r) {
        for (std::int64_t c = 0; c < n; ++c) {
            const auto d = static_cast<double>(p.dy[static_cast<std::size_t>(r * n + c)]);
            expected_bias[static_cast<std::size_t>(c)] += d;
            for (std::int64_t i = 0; i < k; ++i) {
                expected[static_cast<std::size_t>(c * k + i)] +=
                    d * static_cast<double>(p.x[static_cast<std::size_t>(r * k + i)]);
            }
        }
    }
    Floats only_bias = dbias;
    Floats without_bias = dweight;
    linear_backward_weight(p.shape, p.dy.data(), p.x.data(), dweight.data(), dbias.data());
    const double tolerance = 1e-6 * std::max(1.0, std::sqrt(static_cast<double>(rows) / 100));  // of long sums
    reference::expect_close(dweight, expected, tolerance, "dweight");
    reference::expect_close(dbias, expected_bias, 1e-6, "dbias");
    bias_backward(rows, n, p.dy.data(), only_bias.data());
    EXPECT_EQ(only_bias, dbias);
    linear_backward_weight(p.shape, p.dy.data(), p.x.data(), without_bias.data(), nullptr);
    EXPECT_EQ(without_bias, dweight);
}

INSTANTIATE_TEST_SUITE_P(Shapes, Linear,
                         ::testing::Values(LinearShape{1, 1, 1}, LinearShape{7, 5, 3}, LinearShape{33, 300, 65},
                                           LinearShape{64, 96, 128}, LinearShape{3, 4500, 2},
                                           LinearShape{2049, 5, 3}));  // cut into blocks

}  // namespace
}  // namespace orrery::kernels
