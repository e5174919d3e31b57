#include "core/error.h"
#include "kernels/kernels.h"
#include "tests/unit/kernels/reference.h"

namespace orrery::kernels {
namespace {

using reference::Doubles;
using reference::Floats;
using reference::wide;
using Runs = std::vector<PositionRun>;

constexpr double kTheta = 1000.0;

/// Rotates a vector of `width` elements to its position.
void turn(std::int64_t position, std::int64_t width, double* x) {
    const std::int64_t half = width / 2;
    for (std::int64_t i = 0; i < half; ++i) {
        const double angle = static_cast<double>(position) *
                             std::pow(kTheta, -2.0 * static_cast<double>(i) / static_cast<double>(width));
        const double a = x[i], b = x[half + i];
        x[i] = a * std::cos(angle) - b * std::sin(angle);
        x[half + i] = b * std::cos(angle) + a * std::sin(angle);
    }
}

std::vector<std::int64_t> positions_of(const Runs& runs, std::int64_t micro_batch) {
    std::vector<std::int64_t> positions;
    for (const PositionRun& run : runs) {
        for (std::int64_t i = 0; i < run.count * micro_batch; ++i) positions.push_back(run.first + i / micro_batch);
    }
    return positions;
}

struct Tables {
    Floats cosines, sines;
    Tables(std::int64_t positions, std::int64_t width)
        : cosines(static_cast<std::size_t>(positions * width / 2)), sines(cosines.size()) {
        rotary_table({.theta = kTheta}, positions, width, cosines.data(), sines.data());
    }
};

TEST(Rotary, RotatesHalvesAndBack) {
    const HeadShape shape{14, 3, 1, 10};
    constexpr std::int64_t kMicroBatch = 2;
    const Floats qkv = reference::values("qkv", shape.rows * shape.row_width());
    const Tables tables(7, shape.head_dim);
    Doubles expected = wide(qkv);
    for (std::int64_t row = 0; row < shape.rows; ++row) {
        for (std::int64_t head = 0; head < 4; ++head) {
            turn(row / kMicroBatch, 10, expected.data() + row * shape.row_width() + head * 10);
        }
    }
    Floats y = qkv;
    rotate(shape, kMicroBatch, tables.cosines.data(), tables.sines.data(), false, y.data());
    reference::expect_close(y, expected, 1e-6, "rotated");
    rotate(shape, kMicroBatch, tables.cosines.data(), tables.sines.data(), true, y.data());
    reference::expect_close(y, wide(qkv), 1e-6, "rotated back");
}

TEST(Rotary, PartOfAHeadAtGivenPositions) {
    const HeadShape shape{12, 2, 1, 16};
    constexpr std::int64_t kMicroBatch = 2, kWidth = 6;
    const Runs runs{{3, 2}, {17, 4}};
    const std::vector<std::int64_t> positions = positions_of(runs, kMicroBatch);
    const Tables tables(21, kWidth);
    const Rotation rotation{runs, kMicroBatch, kWidth, tables.cosines.data(), tables.sines.data()};
    const Floats qkv = reference::values("qkv", shape.rows * shape.row_width());
    Doubles expected = wide(qkv);
    for (std::int64_t row = 0; row < shape.rows; ++row) {
        for (std::int64_t head = 0; head < 3; ++head) {
            turn(positions[static_cast<std::size_t>(row)], kWidth,
                 expected.data() + row * shape.row_width() + head * shape.head_dim);
        }
    }
    Floats y = qkv;
    rotate(shape, rotation, false, y.data());
    reference::expect_close(y, expected, 1e-6, "rotated");
    rotate(shape, rotation, true, y.data());
    reference::expect_close(y, wide(qkv), 1e-6, "rotated back");
    EXPECT_THROW(rotate({13, 2, 1, 16}, rotation, false, y.data()), BugError);
    rotate({0, 2, 1, 16}, {{}, kMicroBatch, kWidth, nullptr, nullptr}, false, nullptr);
}

TEST(Rotary, LatentAttentionForwardAndBackward) {
    const LatentHeads shape{.rows = 6, .heads = 3, .nope_dim = 4, .rope_dim = 6, .value_dim = 5};
    constexpr std::int64_t kMicroBatch = 2, kRank = 3, kHead = 10;
    const Runs runs{{1, 1}, {6, 2}};
    const std::vector<std::int64_t> positions = positions_of(runs, kMicroBatch);
    const Tables tables(8, shape.rope_dim);
    const Rotation rotation{runs, kMicroBatch, shape.rope_dim, tables.cosines.data(), tables.sines.data()};
    const Floats q = reference::values("q", shape.rows * shape.q_width());
    const Floats kv = reference::values("kv", shape.rows * shape.kv_width());
    const Floats latent = reference::values("latent", shape.rows * (kRank + shape.rope_dim));
    // `all` is q, kv and the latent rows concatenated; the shared key follows the latent in its row.
    const auto naive = [&](const Doubles& all) {
        Doubles y;
        for (std::int64_t row = 0; row < shape.rows; ++row) {
            const double* q_row = all.data() + row * shape.q_width();
            const double* kv_row = all.data() + q.size() + row * shape.kv_width();
            const double* rope = all.data() + q.size() + kv.size() + row * (kRank + shape.rope_dim) + kRank;
            const std::int64_t position = positions[static_cast<std::size_t>(row)];
            for (std::int64_t head = 0; head < shape.heads; ++head) {
                Doubles one(q_row + head * kHead, q_row + (head + 1) * kHead);
                turn(position, shape.rope_dim, one.data() + shape.nope_dim);
                y.insert(y.end(), one.begin(), one.end());
            }
            for (std::int64_t head = 0; head < shape.heads; ++head) {
                Doubles one(kv_row + head * 9, kv_row + head * 9 + shape.nope_dim);
                one.insert(one.end(), rope, rope + shape.rope_dim);
                turn(position, shape.rope_dim, one.data() + shape.nope_dim);
                y.insert(y.end(), one.begin(), one.end());
            }
            for (std::int64_t head = 0; head < shape.heads; ++head) {
                y.insert(y.end(), kv_row + head * 9 + shape.nope_dim, kv_row + (head + 1) * 9);
            }
        }
        return y;
    };
    Doubles inputs = wide(q);
    inputs.insert(inputs.end(), kv.begin(), kv.end());
    inputs.insert(inputs.end(), latent.begin(), latent.end());
    Floats qkv(static_cast<std::size_t>(shape.rows * shape.row_width()));
    latent_rotate_forward(shape, rotation, q.data(), kv.data(), {latent.data() + kRank, kRank + shape.rope_dim},
                          qkv.data());
    reference::expect_close(qkv, naive(inputs), 1e-6, "qkv");

    const Floats dqkv = reference::values("dqkv", static_cast<std::int64_t>(qkv.size()));
    Floats gradients(inputs.size(), 0.0F);
    float* dkv = gradients.data() + q.size();
    float* dlatent = dkv + kv.size();
    latent_rotate_backward(shape, rotation, dqkv.data(), gradients.data(), dkv,
                           {dlatent + kRank, kRank + shape.rope_dim});
    reference::expect_gradient(naive, inputs, wide(dqkv), gradients, 1e-6, "gradients", 10000);
}

TEST(Rotary, Llama3ScalingKeepsShortAndStretchesLongWavelengths) {
    RotaryFrequencies f;
    f.scaling = RotaryFrequencies::Scaling::llama3;
    f.theta = 500000.0;
    f.factor = 8.0;
    f.low_frequency_factor = 1.0;
    f.high_frequency_factor = 4.0;
    f.original_max_positions = 8192;
    constexpr std::int64_t kDim = 128;
    Floats cosines(2 * 64);
    Floats sines(2 * 64);
    rotary_table(f, 2, kDim, cosines.data(), sines.data());
    auto frequency = [&](std::size_t i) { return std::asin(static_cast<double>(sines[64 + i])); };
    auto unscaled = [&](double i) { return std::pow(500000.0, -2.0 * i / 128.0); };
    EXPECT_NEAR(static_cast<double>(sines[64]), std::sin(1.0), 1e-7);
    // Pair 28: wavelength 1956 < 8192/4, kept. Pair 36: 10085 > 8192, stretched by 8. Pair 32: 4443, interpolated.
    EXPECT_NEAR(frequency(28) / unscaled(28), 1.0, 1e-6);
    EXPECT_NEAR(frequency(36) / unscaled(36), 1.0 / 8.0, 1e-6);
    const double share = (8192.0 * unscaled(32) / (2.0 * M_PI) - 1.0) / 3.0;
    EXPECT_NEAR(frequency(32) / unscaled(32), (1.0 - share) / 8.0 + share, 1e-6);
    f.scaling = RotaryFrequencies::Scaling::linear;
    rotary_table(f, 2, kDim, cosines.data(), sines.data());
    EXPECT_NEAR(frequency(28) / unscaled(28), 1.0 / 8.0, 1e-6);
}

/// DeepSeek-V3's values: 64 rotated elements, 4096 positions stretched 40 times.
TEST(Rotary, YarnKeepsFastAndStretchesSlowPairs) {
    RotaryFrequencies f;
    f.scaling = RotaryFrequencies::Scaling::yarn;
    f.factor = 40.0;
    f.original_max_positions = 4096;
    f.magnitude = yarn_magnitude(40.0, 1.0);
    EXPECT_NEAR(f.magnitude, 1.3688879454113936, 1e-12);
    EXPECT_EQ(yarn_magnitude(1.0, 1.0), 1.0);
    Floats cosines(2 * 32), sines(2 * 32);
    rotary_table(f, 2, 64, cosines.data(), sines.data());
    const auto ratio = [&](std::size_t i) {
        const double angle = std::atan2(static_cast<double>(sines[32 + i]), static_cast<double>(cosines[32 + i]));
        return angle / std::pow(10000.0, -2.0 * static_cast<double>(i) / 64.0);
    };
    // 32 turns correspond to pair 10.47, one turn to pair 22.51: pairs from 10 to 23 are interpolated.
    EXPECT_NEAR(ratio(0), 1.0, 1e-6);
    EXPECT_NEAR(ratio(10), 1.0, 1e-6);
    EXPECT_NEAR(ratio(16), (7.0 + 6.0 / 40.0) / 13.0, 1e-6);
    EXPECT_NEAR(ratio(23), 1.0 / 40.0, 1e-6);
    EXPECT_NEAR(ratio(31), 1.0 / 40.0, 1e-6);
    EXPECT_NEAR(static_cast<double>(cosines[0]), f.magnitude, 1e-6);
}

}  // namespace
}  // namespace orrery::kernels
