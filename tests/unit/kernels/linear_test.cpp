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
        Floats y(expected.size(), 99.0F);  // old contents, which must not affect the result
        linear_forward(p.shape, {p.x.data(), k}, p.weight.data(), with_bias ? p.bias.data() : nullptr, {y.data(), n});
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
    linear_backward_input(p.shape, {p.dy.data(), n}, p.weight.data(), {dx.data(), k});
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
    linear_backward_weight(p.shape, {p.dy.data(), n}, {p.x.data(), k}, dweight.data(), dbias.data());
    const double tolerance = 1e-6 * std::max(1.0, std::sqrt(static_cast<double>(rows) / 100));  // grows with long sums
    reference::expect_close(dweight, expected, tolerance, "dweight");
    reference::expect_close(dbias, expected_bias, 1e-6, "dbias");
    bias_backward(rows, n, {p.dy.data(), n}, only_bias.data());
    EXPECT_EQ(only_bias, dbias);
    linear_backward_weight(p.shape, {p.dy.data(), n}, {p.x.data(), k}, without_bias.data(), nullptr);
    EXPECT_EQ(without_bias, dweight);
}

// Inputs and outputs that are columns of wider rows.
TEST(LinearColumns, MatchContiguousRowsAndTouchNoOtherColumns) {
    const LinearShape shape{7, 5, 3};
    const Product p(shape);
    constexpr std::int64_t kXWidth = 8, kYWidth = 11, kAt = 4;  // y from column 4 on, x from column 0 on
    const auto spread = [&](const Floats& values, std::int64_t n, std::int64_t width, std::int64_t at) {
        Floats wide_rows(static_cast<std::size_t>(shape.rows * width), 99.0F);
        copy_columns(shape.rows, n, {values.data(), n}, {wide_rows.data() + at, width});
        return wide_rows;
    };
    Floats y(static_cast<std::size_t>(shape.rows * shape.n)), dx(p.x.size()), dweight(p.weight.size()), dbias(5);
    linear_forward(shape, {p.x.data(), 3}, p.weight.data(), p.bias.data(), {y.data(), 5});
    linear_backward_input(shape, {p.dy.data(), 5}, p.weight.data(), {dx.data(), 3});
    linear_backward_weight(shape, {p.dy.data(), 5}, {p.x.data(), 3}, dweight.data(), dbias.data());

    const Floats x_rows = spread(p.x, shape.k, kXWidth, 0), dy_rows = spread(p.dy, shape.n, kYWidth, kAt);
    Floats y_rows(static_cast<std::size_t>(shape.rows * kYWidth), 99.0F);
    Floats dx_rows(static_cast<std::size_t>(shape.rows * kXWidth), 99.0F), dw(dweight.size()), db(dbias.size());
    linear_forward(shape, {x_rows.data(), kXWidth}, p.weight.data(), p.bias.data(), {y_rows.data() + kAt, kYWidth});
    linear_backward_input(shape, {dy_rows.data() + kAt, kYWidth}, p.weight.data(), {dx_rows.data(), kXWidth});
    linear_backward_weight(shape, {dy_rows.data() + kAt, kYWidth}, {x_rows.data(), kXWidth}, dw.data(), db.data());
    reference::expect_close(y_rows, wide(spread(y, shape.n, kYWidth, kAt)), 1e-6, "y");
    reference::expect_close(dx_rows, wide(spread(dx, shape.k, kXWidth, 0)), 1e-6, "dx");
    reference::expect_close(dw, wide(dweight), 1e-6, "dweight");
    reference::expect_close(db, wide(dbias), 1e-6, "dbias");
}

INSTANTIATE_TEST_SUITE_P(Shapes, Linear,
                         ::testing::Values(LinearShape{1, 1, 1}, LinearShape{7, 5, 3}, LinearShape{33, 300, 65},
                                           LinearShape{64, 96, 128}, LinearShape{3, 4500, 2},
                                           LinearShape{2049, 5, 3}));  // more rows than kRowsAtOnce

}  // namespace
}  // namespace orrery::kernels
