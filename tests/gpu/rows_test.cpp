// The kernels that work row by row against double precision, for rows of any width, other numbers in each run.
#include <numbers>

#include "kernels/cuda/kernels.h"
#include "tests/gpu/kernel_fixture.h"

namespace orrery::exec {
namespace {

namespace k = kernels::cuda;
using k::Floats;

constexpr std::int64_t kRows = 37;
constexpr double kEpsilon = 1e-5;
constexpr double kOfFp32 = 2e-6;  // of sums in double or a few terms in fp32

double square(double x) {
    return x * x;
}

class RowsOnGpu : public KernelsOnGpu, public testing::WithParamInterface<std::tuple<int, DType>> {
  protected:
    [[nodiscard]] std::vector<float> matrix(std::int64_t columns) { return numbers(kRows * columns, type_); }
    [[nodiscard]] std::vector<float> row() { return numbers(width_, type_); }
    [[nodiscard]] Floats put(const std::vector<float>& values) { return on_device(values, type_); }
    [[nodiscard]] std::vector<float> get(Floats from, std::size_t elements) {
        return read(from, static_cast<std::int64_t>(elements));
    }
    [[nodiscard]] double at(const std::vector<float>& values, std::int64_t i) const {
        return static_cast<double>(values[static_cast<std::size_t>(i)]);
    }
    /// Of results that are sums in fp32 or double, rounded to the type once.
    void expect(Floats got, const std::vector<Exact>& exact, const std::string& what) {
        const double of_result = kOfFp32 + (got.type == DType::bf16 ? kRoundingOfBf16 : 0);
        expect_rounded(get(got, exact.size()), exact, {.of_sums = kOfFp32, .of_result = of_result}, what);
    }
    /// A number whose terms have these magnitudes.
    static Exact exact(double value, double magnitude) { return {value, 0, magnitude + std::abs(value)}; }

    const std::int64_t width_ = std::get<0>(GetParam());
    const DType type_ = std::get<1>(GetParam());
};

TEST_P(RowsOnGpu, LayerNorm) {
    const auto x = matrix(width_), dy = matrix(width_), residual = matrix(width_);
    const auto weight = row(), bias = row(), dweight = row(), dbias = row();
    const kernels::NormShape shape{.rows = kRows, .width = width_};
    const Floats on_x = put(x), on_weight = put(weight), y = put(matrix(width_));
    const Floats stats = on_device(numbers(2 * kRows, DType::fp32), DType::fp32);
    auto* const stats_data = static_cast<float*>(stats.data);
    k::layer_norm_forward(stream(), shape, kEpsilon, on_x, on_weight, put(bias), y, stats_data);
    const Floats dx = put(matrix(width_)), got_dweight = put(dweight), got_dbias = put(dbias);
    k::layer_norm_backward(stream(), shape, put(dy), on_x, on_weight, stats_data, put(residual), dx, got_dweight,
                           got_dbias);
    std::vector<Exact> exact_y, exact_dx, exact_dweight, exact_dbias;
    for (std::int64_t i = 0; i < width_; ++i) {
        exact_dweight.push_back(exact(at(dweight, i), 0));
        exact_dbias.push_back(exact(at(dbias, i), 0));
    }
    for (std::int64_t r = 0; r < kRows; ++r) {
        double mean = 0, variance = 0;
        for (std::int64_t i = 0; i < width_; ++i) mean += at(x, r * width_ + i) / static_cast<double>(width_);
        for (std::int64_t i = 0; i < width_; ++i) variance += square(at(x, r * width_ + i) - mean);
        const double inverse = 1 / std::sqrt(variance / static_cast<double>(width_) + kEpsilon);
        double g_mean = 0, along = 0;
        for (std::int64_t i = 0; i < width_; ++i) {
            const double normal = (at(x, r * width_ + i) - mean) * inverse, g = at(dy, r * width_ + i) * at(weight, i);
            g_mean += g / static_cast<double>(width_);
            along += g * normal / static_cast<double>(width_);
            const auto column = static_cast<std::size_t>(i);
            exact_dweight[column].add(at(dy, r * width_ + i) * inverse, 2 * inverse, at(x, r * width_ + i) - mean);
            exact_dweight[column].of_factors += 2 * inverse;  // the difference of two numbers of up to 1
            exact_dbias[column].add(at(dy, r * width_ + i), 1, 1);
        }
        for (std::int64_t i = 0; i < width_; ++i) {
            const double normal = (at(x, r * width_ + i) - mean) * inverse;
            const double g = at(dy, r * width_ + i) * at(weight, i);
            exact_y.push_back(exact(normal * at(weight, i) + at(bias, i), 2 * inverse + std::abs(at(bias, i))));
            exact_dx.push_back(exact(at(residual, r * width_ + i) + inverse * (g - g_mean - normal * along),
                                     1 + inverse * (2 + std::abs(along) * (std::abs(normal) + 2 * inverse))));
        }
    }
    expect(y, exact_y, "y");
    expect(dx, exact_dx, "dx");
    expect(got_dweight, exact_dweight, "dweight");
    expect(got_dbias, exact_dbias, "dbias");
}

TEST_P(RowsOnGpu, RmsNormOfWiderRows) {
    const std::int64_t stride = width_ + 4;
    const auto x = matrix(stride), dy = matrix(stride);
    const auto weight = row(), dweight = row();
    const kernels::NormShape shape{.rows = kRows, .width = width_, .stride = stride};
    const Floats on_x = put(x), on_weight = put(weight), y = put(matrix(stride));
    const Floats stats = on_device(numbers(kRows, DType::fp32), DType::fp32);
    auto* const stats_data = static_cast<float*>(stats.data);
    k::rms_norm_forward(stream(), shape, kEpsilon, on_x, on_weight, y, stats_data);
    const Floats dx = put(matrix(stride)), got_dweight = put(dweight);
    k::rms_norm_backward(stream(), shape, put(dy), on_x, on_weight, stats_data, {}, dx, got_dweight);
    std::vector<Exact> exact_y, exact_dx, exact_dweight;
    for (std::int64_t i = 0; i < width_; ++i) exact_dweight.push_back(exact(at(dweight, i), 0));
    for (std::int64_t r = 0; r < kRows; ++r) {
        const auto of = [&](const std::vector<float>& values, std::int64_t i) { return at(values, r * stride + i); };
        double mean = 0, along = 0;
        for (std::int64_t i = 0; i < width_; ++i) mean += square(of(x, i)) / static_cast<double>(width_);
        const double inverse = 1 / std::sqrt(mean + kEpsilon);
        for (std::int64_t i = 0; i < width_; ++i) {
            along += of(dy, i) * at(weight, i) * of(x, i) / static_cast<double>(width_);
            exact_dweight[static_cast<std::size_t>(i)].add(of(dy, i) * inverse, inverse, of(x, i));
        }
        for (std::int64_t i = 0; i < stride; ++i) {
            if (i >= width_) {
                exact_y.push_back(exact(of(x, i), 0));
                exact_dx.push_back(exact(of(dy, i), 0));
                continue;
            }
            exact_y.push_back(exact(of(x, i) * inverse * at(weight, i), 0));
            const double through = of(x, i) * along * inverse * inverse * inverse;
            exact_dx.push_back(exact(of(dy, i) * at(weight, i) * inverse - through, inverse + std::abs(through)));
        }
    }
    expect(y, exact_y, "y");
    expect(dx, exact_dx, "dx");
    expect(got_dweight, exact_dweight, "dweight");
}

/// The same bits as by two kernels.
TEST_P(RowsOnGpu, NormOfASum) {
    const auto x = matrix(width_), rows = matrix(width_);
    const kernels::NormShape shape{.rows = kRows, .width = width_};
    const Floats on_x = put(x), on_rows = put(rows), weight = put(row()), shift = put(row()), row_bias = put(row());
    const auto stats = [&] {
        return static_cast<float*>(on_device(numbers(2 * kRows, DType::fp32), DType::fp32).data);
    };
    for (const Floats& bias : {row_bias, Floats{}}) {
        const Floats sum = put(x), y = put(x), sum_alone = put(x), y_alone = put(x);
        const auto expect_same = [&](const char* what) {
            EXPECT_EQ(get(sum, x.size()), get(sum_alone, x.size())) << what;
            EXPECT_EQ(get(y, x.size()), get(y_alone, x.size())) << what;
        };
        k::residual_add(stream(), kRows, width_, on_x, on_rows, bias, {}, sum_alone);
        float* const own_stats = stats();
        k::layer_norm_forward(stream(), shape, kEpsilon, sum_alone, weight, shift, y_alone, own_stats);
        k::layer_norm_forward(stream(), shape, kEpsilon, on_x, weight, shift, y, own_stats, {on_rows, bias, sum});
        expect_same("layer norm");
        k::rms_norm_forward(stream(), shape, kEpsilon, sum_alone, weight, y_alone, own_stats);
        k::rms_norm_forward(stream(), shape, kEpsilon, on_x, weight, y, own_stats, {on_rows, bias, sum});
        expect_same("RMS norm");
    }
}

TEST_P(RowsOnGpu, Gelu) {
    const auto x = matrix(width_), dy = matrix(width_);
    const Floats on_x = put(x), y = put(x), dx = put(x);
    k::gelu_forward(stream(), {.most = kRows}, width_, on_x, y);
    k::gelu_backward(stream(), {.most = kRows}, width_, put(dy), on_x, dx);
    std::vector<Exact> exact_y, exact_dx;
    for (std::int64_t i = 0; i < kRows * width_; ++i) {
        const double value = at(x, i), root = std::sqrt(2 / std::numbers::pi);
        const double slope = root * (1 + 3 * 0.044715 * square(value));
        const double tangent = std::tanh(root * (value + 0.044715 * value * square(value)));
        exact_y.push_back(exact(0.5 * value * (1 + tangent), 0));
        const double derivative = 0.5 * (1 + tangent) + 0.5 * value * (1 - square(tangent)) * slope;
        exact_dx.push_back(exact(at(dy, i) * derivative, std::abs(at(dy, i))));
    }
    expect(y, exact_y, "y");
    expect(dx, exact_dx, "dx");
}

TEST_P(RowsOnGpu, Swiglu) {
    const auto gate_up = matrix(2 * width_), dy = matrix(width_);
    const Floats on_gate_up = put(gate_up), y = put(dy), dgate_up = put(gate_up);
    k::swiglu_forward(stream(), {.most = kRows}, width_, on_gate_up, y);
    k::swiglu_backward(stream(), {.most = kRows}, width_, put(dy), on_gate_up, dgate_up);
    std::vector<Exact> exact_y, exact_gate;
    for (std::int64_t r = 0; r < kRows; ++r) {
        std::vector<Exact> ups;
        for (std::int64_t i = 0; i < width_; ++i) {
            const double gate = at(gate_up, r * 2 * width_ + i), up = at(gate_up, r * 2 * width_ + width_ + i);
            const double share = 1 / (1 + std::exp(-gate)), gradient = at(dy, r * width_ + i);
            exact_y.push_back(exact(gate * share * up, 0));
            exact_gate.push_back(exact(gradient * up * (share + gate * share * (1 - share)), std::abs(gradient * up)));
            ups.push_back(exact(gradient * gate * share, 0));
        }
        exact_gate.insert(exact_gate.end(), ups.begin(), ups.end());  // the row's second half
    }
    expect(y, exact_y, "y");
    expect(dgate_up, exact_gate, "dgate_up");
}

TEST_P(RowsOnGpu, Relu) {
    const auto x = matrix(width_), dy = matrix(width_);
    const Floats on_x = put(x), y = put(x), dx = put(x);
    k::relu_forward(stream(), {.most = kRows}, width_, on_x, y);
    k::relu_backward(stream(), {.most = kRows}, width_, put(dy), on_x, dx);
    const auto got_y = get(y, x.size()), got_dx = get(dx, x.size());
    for (std::size_t i = 0; i < x.size(); ++i) {
        ASSERT_EQ(got_y[i], std::max(x[i], 0.0F)) << i;
        ASSERT_EQ(got_dx[i], x[i] > 0 ? dy[i] : 0.0F) << i;
    }
}

TEST_P(RowsOnGpu, Biases) {
    const auto a = matrix(width_), b = matrix(width_), bias = row(), second = row(), dbias = row();
    const Floats y = put(a), set = put(a), got_dbias = put(dbias);
    k::residual_add(stream(), kRows, width_, put(a), put(b), put(bias), put(second), y);
    k::set_bias(stream(), kRows, width_, put(bias), {set, width_});
    k::bias_backward(stream(), kRows, width_, {put(b), width_}, got_dbias);
    std::vector<Exact> exact_y, exact_dbias;
    const auto got_set = get(set, a.size());
    for (std::int64_t i = 0; i < width_; ++i) exact_dbias.push_back(exact(at(dbias, i), 0));
    for (std::int64_t i = 0; i < kRows * width_; ++i) {
        const std::int64_t column = i % width_;
        exact_y.push_back(exact(at(a, i) + at(b, i) + at(bias, column) + at(second, column), 4));
        exact_dbias[static_cast<std::size_t>(column)].add(at(b, i), 1, 1);
        ASSERT_EQ(got_set[static_cast<std::size_t>(i)], bias[static_cast<std::size_t>(column)]) << i;
    }
    expect(y, exact_y, "y");
    expect(got_dbias, exact_dbias, "dbias");
}

TEST_P(RowsOnGpu, Embeddings) {
    constexpr std::int64_t kTokens = 11, kFirst = 3, kMicroBatch = 2;
    const auto weight = numbers(kTokens * width_, type_), dy = matrix(width_),
               dweight = numbers(kTokens * width_, type_);
    std::vector<std::int32_t> tokens;
    for (std::int64_t r = 0; r < kRows; ++r) tokens.push_back(static_cast<std::int32_t>(r * r % 17));
    const std::int32_t* const token_data = copy_of(tokens);
    const kernels::EmbeddingShape shape{.rows = kRows, .width = width_, .vocab_start = kFirst, .vocab_rows = kTokens};
    const Floats y = put(dy), got_dweight = put(dweight);
    k::embedding_forward(stream(), shape, token_data, put(weight), y);
    k::embedding_backward(stream(), shape, put(dy), token_data, got_dweight, device_->allocate(k::sort_bytes(kRows)));
    const auto positions = numbers((kRows / kMicroBatch + 2) * width_, type_);
    const Floats with_positions = put(dy);
    k::position_forward(stream(), {.rows = kRows, .width = width_, .micro_batch = kMicroBatch, .first_position = 1},
                        put(dy), put(positions), with_positions);
    std::vector<Exact> exact_y, exact_dweight, exact_positions;
    for (std::int64_t i = 0; i < kTokens * width_; ++i) exact_dweight.push_back(exact(at(dweight, i), 0));
    for (std::int64_t i = 0; i < kRows * width_; ++i) {
        const std::int64_t place = tokens[static_cast<std::size_t>(i / width_)] - kFirst, column = i % width_;
        const bool here = place >= 0 && place < kTokens;
        exact_y.push_back(exact(here ? at(weight, place * width_ + column) : 0.0, 0));
        if (here) exact_dweight[static_cast<std::size_t>(place * width_ + column)].add(at(dy, i), 1, 1);
        exact_positions.push_back(
            exact(at(dy, i) + at(positions, (1 + i / width_ / kMicroBatch) * width_ + column), 2));
    }
    expect(y, exact_y, "y");
    expect(got_dweight, exact_dweight, "dweight");
    expect(with_positions, exact_positions, "with positions");
}

INSTANTIATE_TEST_SUITE_P(Widths, RowsOnGpu,
                         testing::Combine(testing::Values(1, 7, 36, 260, 1100),
                                          testing::Values(DType::fp32, DType::bf16)),
                         [](const auto& one) {
                             return std::to_string(std::get<0>(one.param)) + "_" +
                                    std::string(name_of(std::get<1>(one.param)));
                         });

}  // namespace
}  // namespace orrery::exec
