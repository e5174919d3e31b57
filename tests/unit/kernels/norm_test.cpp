#include "kernels/kernels.h"
#include "tests/unit/kernels/reference.h"

namespace orrery::kernels {
namespace {

using reference::Doubles;
using reference::Floats;
using reference::wide;

constexpr double kEpsilon = 1e-5;

/// Inputs x[rows,width], weight[width], bias[width] concatenated, so that one call differentiates all of them.
Doubles layer_norm(const Doubles& all, std::size_t rows, std::size_t width) {
    const double* weight = all.data() + rows * width;
    const double* bias = weight + width;
    Doubles y(rows * width);
    for (std::size_t r = 0; r < rows; ++r) {
        const double* x = all.data() + r * width;
        double mean = 0.0;
        double variance = 0.0;
        for (std::size_t i = 0; i < width; ++i) mean += x[i] / static_cast<double>(width);
        for (std::size_t i = 0; i < width; ++i) variance += (x[i] - mean) * (x[i] - mean) / static_cast<double>(width);
        for (std::size_t i = 0; i < width; ++i) {
            y[r * width + i] = (x[i] - mean) / std::sqrt(variance + kEpsilon) * weight[i] + bias[i];
        }
    }
    return y;
}

void rms_normalise(const double* x, const double* weight, std::size_t width, double* y) {
    double square = 0.0;
    for (std::size_t i = 0; i < width; ++i) square += x[i] * x[i] / static_cast<double>(width);
    for (std::size_t i = 0; i < width; ++i) y[i] = x[i] / std::sqrt(square + kEpsilon) * weight[i];
}

Doubles rms_norm(const Doubles& all, std::size_t rows, std::size_t width) {
    Doubles y(rows * width);
    for (std::size_t r = 0; r < rows; ++r) {
        rms_normalise(all.data() + r * width, all.data() + rows * width, width, y.data() + r * width);
    }
    return y;
}

Doubles head_norm(const Doubles& all, const HeadShape& shape) {
    const auto d = static_cast<std::size_t>(shape.head_dim);
    const auto row_width = static_cast<std::size_t>(shape.row_width());
    const auto rows = static_cast<std::size_t>(shape.rows);
    const double* q_weight = all.data() + rows * row_width;
    const double* k_weight = q_weight + d;
    Doubles y(all.begin(), all.begin() + static_cast<std::ptrdiff_t>(rows * row_width));
    for (std::size_t r = 0; r < rows; ++r) {
        for (std::size_t h = 0; h < static_cast<std::size_t>(shape.heads + shape.kv_heads); ++h) {
            const std::size_t at = r * row_width + h * d;
            rms_normalise(all.data() + at, h < static_cast<std::size_t>(shape.heads) ? q_weight : k_weight, d,
                          y.data() + at);
        }
    }
    return y;
}

Floats joined(std::initializer_list<Floats> parts) {
    Floats all;
    for (const Floats& part : parts) all.insert(all.end(), part.begin(), part.end());
    return all;
}
Floats minus(Floats a, const Floats& b) {
    for (std::size_t i = 0; i < a.size(); ++i) a[i] -= b[i];
    return a;
}

class Norm : public ::testing::TestWithParam<NormShape> {
  protected:
    NormShape shape = GetParam();
    std::size_t rows = static_cast<std::size_t>(shape.rows);
    std::size_t width = static_cast<std::size_t>(shape.width);
    Floats x = reference::values("x", shape.rows* shape.width, 3.0);
    Floats weight = reference::values("weight", shape.width);
    Floats bias = reference::values("bias", shape.width);
    Floats dy = reference::values("dy", shape.rows* shape.width);
    Floats residual = reference::values("residual", shape.rows* shape.width);
};

TEST_P(Norm, LayerNorm) {
    Floats y(x.size());
    Floats stats(2 * rows);
    layer_norm_forward(shape, kEpsilon, x.data(), weight.data(), bias.data(), y.data(), stats.data());
    const Doubles all = wide(joined({x, weight, bias}));
    reference::expect_close(y, layer_norm(all, rows, width), 2e-6, "y");

    const Floats start_weight = reference::values("start.weight", shape.width, 0.01);
    const Floats start_bias = reference::values("start.bias", shape.width, 0.01);
    Floats dx(x.size());
    Floats dweight = start_weight;
    Floats dbias = start_bias;
    layer_norm_backward(shape, dy.data(), x.data(), weight.data(), stats.data(), nullptr, dx.data(), dweight.data(),
                        dbias.data());
    reference::expect_gradient([&](const Doubles& at) { return layer_norm(at, rows, width); }, all, wide(dy),
                               joined({dx, minus(dweight, start_weight), minus(dbias, start_bias)}), 1e-5, "gradient");

    Floats in_place = residual;
    layer_norm_backward(shape, dy.data(), x.data(), weight.data(), stats.data(), in_place.data(), in_place.data(),
                        dweight.data(), dbias.data());
    Doubles expected = wide(residual);
    for (std::size_t i = 0; i < expected.size(); ++i) expected[i] += static_cast<double>(dx[i]);
    reference::expect_close(in_place, expected, 1e-6, "residual in place");
}

TEST_P(Norm, RmsNorm) {
    Floats y(x.size());
    Floats stats(rows);
    rms_norm_forward(shape, kEpsilon, x.data(), weight.data(), y.data(), stats.data());
    const Doubles all = wide(joined({x, weight}));
    reference::expect_close(y, rms_norm(all, rows, width), 1e-6, "y");

    const Floats start = reference::values("start.weight", shape.width, 0.01);
    Floats dx(x.size());
    Floats dweight = start;
    rms_norm_backward(shape, dy.data(), x.data(), weight.data(), stats.data(), nullptr, dx.data(), dweight.data());
    reference::expect_gradient([&](const Doubles& at) { return rms_norm(at, rows, width); }, all, wide(dy),
                               joined({dx, minus(dweight, start)}), 1e-5, "gradient");

    Floats in_place = residual;
    rms_norm_backward(shape, dy.data(), x.data(), weight.data(), stats.data(), in_place.data(), in_place.data(),
                      dweight.data());
    Doubles expected = wide(residual);
    for (std::size_t i = 0; i < expected.size(); ++i) expected[i] += static_cast<double>(dx[i]);
    reference::expect_close(in_place, expected, 1e-6, "residual in place");
}

INSTANTIATE_TEST_SUITE_P(Shapes, Norm,
                         ::testing::Values(NormShape{1, 3}, NormShape{5, 37}, NormShape{70, 24}, NormShape{3, 300}));

// The first columns of wider rows are normalised like contiguous rows; the other columns are copied, also in place.
TEST(NormColumns, OtherColumnsAreCopied) {
    constexpr std::int64_t kRows = 37, kWidth = 6, kStride = 9;
    const NormShape alone{kRows, kWidth}, columns{kRows, kWidth, kStride};
    const Floats x = reference::values("x", kRows * kWidth), dy = reference::values("dy", kRows * kWidth);
    const Floats weight = reference::values("weight", kWidth), bias = reference::values("bias", kWidth);
    const auto beside = [](const Floats& values, float other) {
        Floats rows(static_cast<std::size_t>(kRows * kStride), other);
        copy_columns(kRows, kWidth, {values.data(), kWidth}, {rows.data(), kStride});
        return rows;
    };
    const Floats x_rows = beside(x, 3.0F), dy_rows = beside(dy, 4.0F);
    for (const bool layer : {true, false}) {
        const auto forward = [&](const NormShape& shape, const Floats& in, Floats& out, Floats& stats) {
            if (layer) {
                layer_norm_forward(shape, kEpsilon, in.data(), weight.data(), bias.data(), out.data(), stats.data());
            } else {
                rms_norm_forward(shape, kEpsilon, in.data(), weight.data(), out.data(), stats.data());
            }
        };
        Floats y(x.size()), stats(2 * kRows), y_rows(x_rows.size(), 99.0F), same_stats(2 * kRows);
        forward(alone, x, y, stats);
        forward(columns, x_rows, y_rows, same_stats);
        EXPECT_EQ(y_rows, beside(y, 3.0F));
        EXPECT_EQ(same_stats, stats);

        const auto backward = [&](const NormShape& shape, const float* d, const Floats& in, float* dx, Floats& dw) {
            Floats db(kWidth);
            if (layer) {
                layer_norm_backward(shape, d, in.data(), weight.data(), stats.data(), nullptr, dx, dw.data(),
                                    db.data());
            } else {
                rms_norm_backward(shape, d, in.data(), weight.data(), stats.data(), nullptr, dx, dw.data());
            }
        };
        Floats dx(x.size()), dweight(kWidth), dx_rows(x_rows.size(), 99.0F), same_weight(kWidth), again(kWidth);
        backward(alone, dy.data(), x, dx.data(), dweight);
        backward(columns, dy_rows.data(), x_rows, dx_rows.data(), same_weight);
        EXPECT_EQ(dx_rows, beside(dx, 4.0F));
        EXPECT_EQ(same_weight, dweight);
        Floats in_place = dy_rows;
        backward(columns, in_place.data(), x_rows, in_place.data(), again);
        EXPECT_EQ(in_place, dx_rows);
        EXPECT_EQ(again, dweight);
    }
}

TEST(LayerNorm, KeepsPrecisionFarFromZero) {
    // A mean of 10^4 with a spread of 1: sums in single precision would lose the variance.
    const NormShape shape{1, 512};
    Floats x = reference::values("x", shape.width);
    for (float& value : x) value += 10000.0F;
    const Floats ones(512, 1.0F);
    const Floats zeros(512, 0.0F);
    Floats y(512);
    Floats stats(2);
    layer_norm_forward(shape, kEpsilon, x.data(), ones.data(), zeros.data(), y.data(), stats.data());
    reference::expect_close(y, layer_norm(wide(joined({x, ones, zeros})), 1, 512), 1e-3, "y");
}

TEST(HeadNorm, NormalisesQueriesAndKeysOnly) {
    const HeadShape shape{5, 4, 2, 6};
    const std::int64_t elements = shape.rows * shape.row_width();
    const Floats qkv = reference::values("qkv", elements, 2.0);
    const Floats q_weight = reference::values("q", shape.head_dim);
    const Floats k_weight = reference::values("k", shape.head_dim);
    const Floats dy = reference::values("dy", elements);
    Floats y(qkv.size());
    Floats stats(static_cast<std::size_t>(shape.rows * (shape.heads + shape.kv_heads)));
    head_norm_forward(shape, kEpsilon, qkv.data(), q_weight.data(), k_weight.data(), y.data(), stats.data());
    const Doubles all = wide(joined({qkv, q_weight, k_weight}));
    reference::expect_close(y, head_norm(all, shape), 1e-6, "y");

    Floats dqkv(qkv.size());
    Floats dq(q_weight.size(), 0.5F);
    Floats dk(k_weight.size(), 0.25F);
    head_norm_backward(shape, dy.data(), qkv.data(), q_weight.data(), k_weight.data(), stats.data(), dqkv.data(),
                       dq.data(), dk.data());
    for (float& value : dq) value -= 0.5F;
    for (float& value : dk) value -= 0.25F;
    reference::expect_gradient([&](const Doubles& at) { return head_norm(at, shape); }, all, wide(dy),
                               joined({dqkv, dq, dk}), 1e-5, "gradient", 10000);
}

}  // namespace
}  // namespace orrery::kernels
