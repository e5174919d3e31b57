// The kernels of experts, of the loss, of positions and of updates against double precision, on other numbers in each
// run and for sizes that are no multiples of blocks.
#include "kernels/cuda/kernels.h"

#include "tests/gpu/kernel_fixture.h"

namespace orrery::exec {
namespace {

namespace k = kernels::cuda;
using k::Floats;

constexpr double kOfFp32 = 4e-6;  // of sums of some tens of terms

class KernelsOfTrainingOnGpu : public KernelsOnGpu, public testing::WithParamInterface<DType> {
  protected:
    [[nodiscard]] std::vector<float> random(std::int64_t elements) { return numbers(elements, type_); }
    [[nodiscard]] Floats put(const std::vector<float>& values) { return on_device(values, type_); }
    void expect(Floats got, const std::vector<Exact>& exact, double of_sums, const std::string& what) {
        const double of_type = got.type == DType::bf16 ? kRoundingOfBf16 : 0;
        expect_rounded(read(got, std::ssize(exact)), exact, {.of_sums = of_sums, .of_result = of_type + of_sums}, what);
    }
    static Exact exact(double value, double magnitude = 0) { return {value, 0, magnitude}; }
    static double at(const std::vector<float>& values, std::int64_t i) {
        return static_cast<double>(values[static_cast<std::size_t>(i)]);
    }
    const DType type_ = GetParam();
};

/// Rows of three experts, the second of which has none, from two sources.
TEST_P(KernelsOfTrainingOnGpu, ExpertProducts) {
    constexpr std::int64_t kOut = 71, kIn = 45, kGroups = 3, kMost = 150;
    const std::vector<std::int64_t> counts{50, 0, 3, 17, 0, 60};  // [source][group]
    const std::vector<std::int64_t> rows{67, 0, 63};
    constexpr std::int64_t kRows = 130;
    const k::ReceivedLinearShape shape{
        .sources = 2, .groups = kGroups, .n = kOut, .k = kIn, .most_rows = kMost, .counts = copy_of(counts)};
    const auto x = random(kMost * kIn), dy = random(kMost * kOut), weight = random(kGroups * kOut * kIn),
               dweight = random(kGroups * kOut * kIn);
    const Floats on_x = put(x), on_dy = put(dy), on_weight = put(weight);
    const Floats y = put(dy), dx = put(x), got_dweight = put(dweight);
    k::expert_linear_forward(stream(), shape, on_x, on_weight, y);
    k::expert_linear_backward_input(stream(), shape, on_dy, on_weight, dx);
    k::expert_linear_backward_weight(stream(), shape, on_dy, on_x, got_dweight);
    std::vector<Exact> exact_y(kRows * kOut), exact_dx(kRows * kIn), exact_dweight;
    for (const float value : dweight) exact_dweight.push_back(exact(static_cast<double>(value)));
    std::int64_t row = 0;
    for (std::int64_t group = 0; group < kGroups; ++group) {
        for (std::int64_t i = 0; i < rows[static_cast<std::size_t>(group)]; ++i, ++row) {
            for (std::int64_t out = 0; out < kOut; ++out) {
                for (std::int64_t in = 0; in < kIn; ++in) {
                    const std::int64_t place = (group * kOut + out) * kIn + in;
                    exact_y[static_cast<std::size_t>(row * kOut + out)].add(at(x, row * kIn + in), 1,
                                                                            at(weight, place));
                    exact_dx[static_cast<std::size_t>(row * kIn + in)].add(at(dy, row * kOut + out), 1,
                                                                           at(weight, place));
                    exact_dweight[static_cast<std::size_t>(place)].add(at(dy, row * kOut + out), 1,
                                                                       at(x, row * kIn + in));
                }
            }
        }
    }
    // Rows that nobody received are not written.
    for (std::int64_t i = kRows * kOut; i < kMost * kOut; ++i) exact_y.push_back(exact(at(dy, i)));
    for (std::int64_t i = kRows * kIn; i < kMost * kIn; ++i) exact_dx.push_back(exact(at(x, i)));
    expect(y, exact_y, kOfFp32, "y");
    expect(dx, exact_dx, kOfFp32, "dx");
    expect(got_dweight, exact_dweight, kOfFp32, "dweight");
}

/// The second of three shards of a vocabulary, with padding.
TEST_P(KernelsOfTrainingOnGpu, CrossEntropy) {
    constexpr std::int64_t kRows = 41, kColumns = 301;
    const kernels::VocabShard shape{.rows = kRows, .n = kColumns, .valid = 290, .start = 300};
    std::vector<float> logits = random(kRows * kColumns);
    for (float& logit : logits) logit *= 8;  // exact in bf16, too
    std::vector<std::int32_t> targets;
    for (std::int32_t r = 0; r < kRows; ++r) targets.push_back(280 + 13 * r);
    const std::int32_t* const on_targets = copy_of(targets);
    const Floats gradient = put(logits);
    float* const row_max = copy_of(std::vector<float>(kRows));
    float* const sums = copy_of(std::vector<float>(2 * kRows));
    float* const lse = copy_of(std::vector<float>(kRows));
    double* const loss = copy_of(std::vector<double>{0.5});
    k::cross_entropy_max(stream(), shape, gradient, row_max);
    k::cross_entropy_sum(stream(), shape, gradient, row_max, on_targets, sums, {});
    k::cross_entropy_loss(stream(), kRows, row_max, sums, lse, loss);
    constexpr float kScale = 0.25F;
    k::cross_entropy_backward(stream(), shape, kScale, lse, on_targets, gradient);
    double exact_loss = 0.5;
    std::vector<Exact> exact_gradient;
    const std::vector<float> got_lse = words(lse, kRows);
    for (std::int64_t r = 0; r < kRows; ++r) {
        double sum = 0;
        for (std::int64_t i = 0; i < shape.valid; ++i) sum += std::exp(at(logits, r * kColumns + i));
        const double exact_lse = std::log(sum);
        ASSERT_NEAR(at(got_lse, r), exact_lse, 1e-5) << r;
        const std::int64_t target = targets[static_cast<std::size_t>(r)] - shape.start;
        const bool here = target >= 0 && target < shape.valid;
        exact_loss += exact_lse;
        if (here) {
            exact_loss -= at(logits, r * kColumns + target);
        } else {  // as if the shard had the target, with the highest logit
            exact_loss -= at(words(row_max, kRows), r);
        }
        for (std::int64_t i = 0; i < kColumns; ++i) {
            const double probability = i < shape.valid ? std::exp(at(logits, r * kColumns + i) - exact_lse) : 0;
            exact_gradient.push_back(
                exact((probability - (here && i == target ? 1 : 0)) * static_cast<double>(kScale), probability));
        }
    }
    EXPECT_NEAR(words(loss, 1)[0], exact_loss, 1e-4);
    expect(gradient, exact_gradient, 1e-5, "gradient");
}

/// One pass over the logits finds what two do: in rows that are read in fours and others, whose largest logit comes
/// early or late, with logits of minus infinity, and in a shard that is all padding.
TEST_P(KernelsOfTrainingOnGpu, OnlineSoftmax) {
    constexpr std::int64_t kRows = 23;
    for (const std::int64_t columns : {1301, 1304}) {
        for (const std::int64_t valid : {columns - 11, std::int64_t{3}, std::int64_t{0}}) {
            const kernels::VocabShard shape{.rows = kRows, .n = columns, .valid = valid, .start = 300};
            std::vector<float> logits = random(kRows * columns);
            std::vector<std::int32_t> targets;
            for (std::int64_t r = 0; r < kRows; ++r) {
                for (std::int64_t i = 0; i < columns; ++i) {
                    const auto trend = static_cast<float>((r - kRows / 2) * i) * 0.01F;
                    logits[static_cast<std::size_t>(r * columns + i)] = i % 7 == 5 ? -INFINITY : trend;
                }
                targets.push_back(static_cast<std::int32_t>(297 + 61 * r));
            }
            const Floats on_logits = put(logits);
            const std::int32_t* const on_targets = copy_of(targets);
            float* const row_max = copy_of(std::vector<float>(kRows));
            float* const sums = copy_of(std::vector<float>(2 * kRows));
            k::cross_entropy_max(stream(), shape, on_logits, row_max);
            k::cross_entropy_sum(stream(), shape, on_logits, row_max, on_targets, sums, {});
            const std::vector<float> maxima = words(row_max, kRows), expected = words(sums, 2 * kRows);
            k::cross_entropy_online(stream(), shape, on_logits, on_targets, row_max, sums);
            EXPECT_EQ(words(row_max, kRows), maxima) << valid;
            const std::vector<float> got = words(sums, 2 * kRows);
            for (std::int64_t i = 0; i < 2 * kRows; ++i) {
                if (std::isinf(at(expected, i)) && at(expected, i) == at(got, i)) continue;
                EXPECT_NEAR(at(got, i), at(expected, i), 1e-6 * std::abs(at(expected, i))) << valid << ", " << i;
            }
        }
    }
}

/// Of two runs of positions and two samples; a part of each head is kept.
TEST_P(KernelsOfTrainingOnGpu, Rotation) {
    constexpr std::int64_t kWidth = 10, kPositions = 60;
    const std::vector<kernels::PositionRun> runs{{3, 9}, {40, 11}};
    const kernels::HeadShape shape{.rows = 40, .heads = 3, .kv_heads = 1, .head_dim = 14};
    std::vector<float> cosines, sines;
    for (std::int64_t i = 0; i < kPositions * kWidth / 2; ++i) {
        const double angle =
            static_cast<double>(i / (kWidth / 2)) * std::pow(1e4, -static_cast<double>(i % (kWidth / 2)) / 5);
        cosines.push_back(static_cast<float>(std::cos(angle)));
        sines.push_back(static_cast<float>(std::sin(angle)));
    }
    const kernels::Rotation rotation{
        .positions = runs, .micro_batch = 2, .width = kWidth, .cosines = copy_of(cosines), .sines = copy_of(sines)};
    const auto qkv = random(shape.rows * shape.row_width());
    for (const bool inverse : {false, true}) {
        const Floats got = put(qkv);
        k::rotate(stream(), shape, rotation, inverse, got);
        std::vector<Exact> expected;
        for (std::int64_t i = 0; i < std::ssize(qkv); ++i) {
            const std::int64_t row = i / shape.row_width(), column = i % shape.row_width();
            const std::int64_t head = column / shape.head_dim, element = column % shape.head_dim;
            if (head >= shape.heads + shape.kv_heads || element >= kWidth) {
                expected.push_back(exact(at(qkv, i)));
                continue;
            }
            const std::int64_t index = row / 2, position = index < 9 ? 3 + index : 40 + index - 9;
            const std::int64_t pair = position * (kWidth / 2) + element % (kWidth / 2);
            const bool is_first = element < kWidth / 2;
            const double other = at(qkv, is_first ? i + kWidth / 2 : i - kWidth / 2);
            const double sign = is_first != inverse ? -1 : 1;
            expected.push_back(exact(at(qkv, i) * at(cosines, pair) + sign * other * at(sines, pair), 2));
        }
        expect(got, expected, kOfFp32, inverse ? "inverse" : "rotated");
    }
}

/// With master weights if the parameters are in bf16, and clipped.
TEST_P(KernelsOfTrainingOnGpu, Adamw) {
    constexpr std::int64_t kElements = 1003, kFirst = 5;
    const k::FlatRange range{.parameter = kFirst, .gradient = 0, .state = 0, .elements = kElements, .decays = true};
    const kernels::AdamW options{
        .learning_rate = 1e-2, .beta1 = 0.9, .beta2 = 0.99, .epsilon = 1e-8, .weight_decay = 0.1, .step = 3};
    const auto parameters = random(kFirst + kElements), gradient = random(kElements);
    const auto m = numbers(kElements, DType::fp32);
    std::vector<float> v = numbers(kElements, DType::fp32), master(parameters.begin() + kFirst, parameters.end());
    for (float& one : v) one = one * one;
    const Floats on_parameters = put(parameters), on_m = on_device(m, DType::fp32), on_v = on_device(v, DType::fp32);
    const bool has_master = type_ == DType::bf16;
    float* const on_master = has_master ? copy_of(master) : nullptr;
    const double* const norm = copy_of(std::vector<double>{16.0, 0});
    const Floats on_gradient = put(gradient);
    k::adamw(stream(), std::span(&range, 1), options, {norm, 2.0},
             {.parameters = on_parameters, .gradient = on_gradient, .m = on_m, .v = on_v, .master = on_master});
    std::vector<Exact> exact_parameters, exact_m, exact_v;
    for (std::int64_t i = 0; i < kFirst; ++i) exact_parameters.push_back(exact(at(parameters, i)));
    for (std::int64_t i = 0; i < kElements; ++i) {
        const double g = at(gradient, i) * (2.0 / (4.0 + 1e-6));
        const double new_m = 0.9 * at(m, i) + 0.1 * g, new_v = 0.99 * at(v, i) + 0.01 * g * g;
        const double step = new_m / (1 - std::pow(0.9, 3)) / (std::sqrt(new_v / (1 - std::pow(0.99, 3))) + 1e-8);
        exact_m.push_back(exact(new_m, 1));
        exact_v.push_back(exact(new_v, 1));
        exact_parameters.push_back(
            exact(at(parameters, kFirst + i) * (1 - 1e-3) - 1e-2 * step, 1 + 1e-2 * std::abs(step) * 10));
    }
    expect(on_parameters, exact_parameters, kOfFp32, "parameters");
    expect(on_m, exact_m, kOfFp32, "m");
    expect(on_v, exact_v, kOfFp32, "v");
    const std::vector<float> left = read(on_gradient, kElements);
    EXPECT_EQ(left, std::vector<float>(kElements)) << "the gradient is cleared";
    if (!has_master) return;
    exact_parameters.erase(exact_parameters.begin(), exact_parameters.begin() + kFirst);
    expect({on_master, DType::fp32}, exact_parameters, kOfFp32, "master weights");
}

INSTANTIATE_TEST_SUITE_P(Types, KernelsOfTrainingOnGpu, testing::Values(DType::fp32, DType::bf16),
                         [](const auto& one) { return std::string(name_of(one.param)); });

}  // namespace
}  // namespace orrery::exec
