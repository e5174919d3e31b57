// Dropout: the definition, and the statistics of masks: the share of kept elements, and no correlation between
// neighbours, rows, samples, heads and layers.
#include "kernels/dropout.h"

#include "kernels/kernels.h"
#include "tests/unit/kernels/reference.h"

namespace orrery::kernels {
namespace {

using reference::Floats;
using Mask = std::vector<std::uint8_t>;
using Runs = std::vector<PositionRun>;
using Samples = std::vector<std::int64_t>;

struct Place {
    Runs positions;
    Samples samples;
    std::int64_t width = 0;
    double probability = 0;
    std::uint64_t key = 5;
    [[nodiscard]] DropoutRows rows() const {
        return {.positions = positions,
                .width = width,
                .dropout = {.probability = probability, .key = key, .samples = samples}};
    }
    [[nodiscard]] std::int64_t elements() const {
        return AttentionPart::positions(positions) * static_cast<std::int64_t>(samples.size()) * width;
    }
};

Mask mask_of(const Place& place) {
    const Floats ones(static_cast<std::size_t>(place.elements()), 1.0F);
    Floats y(ones.size());
    Mask mask(ones.size(), 7);
    residual_add_dropout(place.rows(), nullptr, ones.data(), nullptr, nullptr, y.data(), mask.data());
    return mask;
}

double rate_of(const Mask& mask) {
    double kept = 0;
    for (const std::uint8_t one : mask) kept += one;
    return kept / static_cast<double>(mask.size());
}

/// The correlation of two masks with the same share of kept elements. For independent masks it is 0, with a standard
/// deviation of 1 / sqrt(elements).
double correlation(const Mask& a, const Mask& b, double kept, std::size_t shift = 0) {
    double sum = 0;
    for (std::size_t i = 0; i + shift < a.size(); ++i) sum += (a[i] - kept) * (b[i + shift] - kept);
    return sum / (static_cast<double>(a.size() - shift) * kept * (1 - kept));
}

TEST(Dropout, ResidualAddAndBackward) {
    const Place place{.positions = {{3, 2}, {9, 1}}, .samples = {4, 11}, .width = 37, .probability = 0.25};
    const auto elements = static_cast<std::size_t>(place.elements());
    const Floats a = reference::values("a", place.elements()), b = reference::values("b", place.elements());
    const Floats bias = reference::values("bias", place.width), second = reference::values("second", place.width);
    Floats y(elements), dx(elements);
    Mask mask(elements, 7);
    residual_add_dropout(place.rows(), a.data(), b.data(), bias.data(), second.data(), y.data(), mask.data());
    dropout_backward(place.elements(), 0.25, a.data(), mask.data(), dx.data());
    for (std::size_t i = 0; i < elements; ++i) {
        const std::size_t column = i % static_cast<std::size_t>(place.width);
        ASSERT_LE(mask[i], 1);
        const float branch = b[i] + (bias[column] + second[column]);
        EXPECT_NEAR(y[i], a[i] + (mask[i] == 1 ? branch / 0.75F : 0.0F), 1e-6F) << i;
        EXPECT_EQ(dx[i], mask[i] == 1 ? a[i] * (1.0F / 0.75F) : 0.0F) << i;
    }
    EXPECT_EQ(mask_of(place), mask);  // the mask does not depend on the input
    Floats in_place = b;
    Mask again(elements);
    residual_add_dropout(place.rows(), nullptr, in_place.data(), nullptr, nullptr, in_place.data(), again.data());
    EXPECT_EQ(again, mask);
    for (std::size_t i = 0; i < elements; ++i) EXPECT_NEAR(in_place[i], mask[i] == 1 ? b[i] / 0.75F : 0.0F, 1e-6F);
    Floats gradient = a;
    dropout_backward(place.elements(), 0.25, gradient.data(), mask.data(), gradient.data());
    EXPECT_EQ(gradient, dx);
}

TEST(Dropout, MaskOfARowDependsOnlyOnItsSampleAndPosition) {
    const Place whole{.positions = {{0, 12}}, .samples = {20, 21, 22}, .width = 33, .probability = 0.4};
    const Mask all = mask_of(whole);
    Place part = whole;
    part.positions = {{8, 3}, {2, 1}};
    part.samples = {22, 20};
    const Mask mask = mask_of(part);
    std::size_t at = 0;
    for (const std::size_t position : {8, 9, 10, 2}) {
        for (const std::size_t sample : {2, 0}) {
            for (std::size_t i = 0; i < 33; ++i) EXPECT_EQ(mask[at++], all[(position * 3 + sample) * 33 + i]);
        }
    }
    Place narrow = whole;
    narrow.width = 16;
    const Mask columns = mask_of(narrow);
    for (std::size_t row = 0; row < 36; ++row) {
        for (std::size_t i = 0; i < 16; ++i) EXPECT_EQ(columns[row * 16 + i], all[row * 33 + i]);
    }
}

TEST(Dropout, KeepsTheExpectedShareOfElements) {
    for (const double probability : {0.001, 0.1, 0.5, 0.9}) {
        const Place place{.positions = {{0, 512}}, .samples = {0, 1, 2, 3}, .width = 512, .probability = probability};
        const Mask mask = mask_of(place);
        const double kept = 1 - probability;
        const double spread = std::sqrt(kept * probability / static_cast<double>(mask.size()));
        EXPECT_NEAR(rate_of(mask), kept, 4 * spread) << probability;
        // The same for rows and for columns: their squared normalised deviations have mean 1.
        double rows = 0, columns = 0;
        for (std::size_t first = 0; first < 2048; ++first) {
            double row = 0;
            for (std::size_t i = 0; i < 512; ++i) row += mask[first * 512 + i] - kept;
            rows += row * row / (512 * kept * probability);
        }
        for (std::size_t i = 0; i < 512; ++i) {
            double column = 0;
            for (std::size_t row = 0; row < 2048; ++row) column += mask[row * 512 + i] - kept;
            columns += column * column / (2048 * kept * probability);
        }
        EXPECT_NEAR(rows / 2048, 1, 5 * std::sqrt(2.0 / 2048)) << probability;
        EXPECT_NEAR(columns / 512, 1, 5 * std::sqrt(2.0 / 512)) << probability;
    }
    const Place none{.positions = {{0, 4}}, .samples = {0}, .width = 8, .probability = 1e-9};
    EXPECT_EQ(rate_of(mask_of(none)), 1);
}

TEST(Dropout, NeighboursAreUncorrelated) {
    const Place place{.positions = {{0, 1024}}, .samples = {0}, .width = 512, .probability = 0.3};
    const Mask mask = mask_of(place);
    const double bound = 4 / std::sqrt(static_cast<double>(mask.size()));
    for (const std::size_t shift : {1U, 2U, 3U, 8U, 16U, 256U, 512U, 513U, 1024U}) {
        EXPECT_NEAR(correlation(mask, mask, 0.7, shift), 0, bound) << shift;
    }
    Place other = place;
    other.samples = {1};
    EXPECT_NEAR(correlation(mask, mask_of(other), 0.7), 0, bound);
    other = place;
    other.key = 6;
    EXPECT_NEAR(correlation(mask, mask_of(other), 0.7), 0, bound);
    // With probability 0.5 all patterns of eight neighbours are equally frequent (chi-square test).
    Place even = place;
    even.probability = 0.5;
    even.samples = {0, 1, 2, 3};
    const Mask bits = mask_of(even);
    std::vector<double> seen(1U << 8U);
    for (std::size_t i = 0; i < bits.size(); i += 8) {
        std::size_t pattern = 0;
        for (std::size_t j = 0; j < 8; ++j) pattern = pattern << 1U | bits[i + j];
        ++seen[pattern];
    }
    const double expected = static_cast<double>(bits.size()) / 8 / 256;
    double square = 0;
    for (const double count : seen) square += (count - expected) * (count - expected) / expected;
    EXPECT_NEAR(square, 255, 4 * std::sqrt(2.0 * 255));
}

/// The mask [sample][head][query][key], read from the output for equally likely keys whose values are unit vectors.
Mask attention_mask(AttentionPart part) {
    part.kv_heads = 1;
    part.head_dim = 1;
    part.value_dim = AttentionPart::positions(part.keys);
    part.causal = false;
    const std::int64_t keys = part.value_dim, queries = AttentionPart::positions(part.queries), b = part.micro_batch;
    const Floats q(static_cast<std::size_t>(part.query_rows() * part.heads), 0.0F);
    const Floats k(static_cast<std::size_t>(part.key_rows()), 0.0F);
    Floats v(static_cast<std::size_t>(part.key_rows() * keys), 0.0F);
    for (std::int64_t row = 0; row < part.key_rows(); ++row) v[static_cast<std::size_t>(row * keys + row / b)] = 1.0F;
    Floats o(static_cast<std::size_t>(part.query_rows() * part.heads * keys));
    Floats lse(static_cast<std::size_t>(part.query_rows() * part.heads));
    Floats scratch(static_cast<std::size_t>(attention_part_scratch_elements(queries, keys)));
    attention_forward(part, {q.data(), part.heads}, {k.data(), 1}, {v.data(), keys}, o.data(), lse.data(),
                      scratch.data());
    const auto kept = static_cast<float>(1 / (1 - part.dropout.probability) / static_cast<double>(keys));
    Mask mask;
    for (std::int64_t sample = 0; sample < b; ++sample) {
        for (std::int64_t head = 0; head < part.heads; ++head) {
            for (std::int64_t query = 0; query < queries; ++query) {
                const float* row = o.data() + ((query * b + sample) * part.heads + head) * keys;
                for (std::int64_t key = 0; key < keys; ++key) {
                    mask.push_back(row[key] > 0 ? 1 : 0);
                    EXPECT_NEAR(row[key], row[key] > 0 ? kept : 0.0F, 1e-6F * kept);
                }
            }
        }
    }
    return mask;
}

TEST(AttentionDropout, MasksDifferByHeadSampleQueryAndKey) {
    const Runs all{{0, 150}};
    const Samples samples{7, 8};
    const AttentionPart part{.queries = all,
                             .keys = all,
                             .micro_batch = 2,
                             .heads = 6,
                             .dropout = {.probability = 0.3, .key = 99, .samples = samples}};
    const Mask mask = attention_mask(part);
    const double bound = 4 / std::sqrt(static_cast<double>(mask.size()));
    EXPECT_NEAR(rate_of(mask), 0.7, bound * std::sqrt(0.7 * 0.3));
    constexpr std::size_t kQuery = 150, kHead = kQuery * 150, kSample = 6 * kHead;
    for (const std::size_t shift : {std::size_t{1}, std::size_t{2}, kQuery, kQuery + 1, kHead, 2 * kHead, kSample}) {
        EXPECT_NEAR(correlation(mask, mask, 0.7, shift), 0, bound * std::sqrt(2)) << shift;
    }
    // The mask of the transposed scores is uncorrelated, too.
    Mask transposed = mask;
    for (std::size_t i = 0; i < mask.size(); ++i) {
        const std::size_t matrix = i / kHead * kHead, query = i % kHead / kQuery, key = i % kQuery;
        transposed[matrix + key * kQuery + query] = mask[i];
    }
    EXPECT_NEAR(correlation(mask, transposed, 0.7), 0, 0.02);  // not exactly 0: the diagonals are equal
}

TEST(AttentionDropout, MasksDependOnlyOnGlobalQueryKeyHeadAndSample) {
    const Runs all{{0, 90}};
    const Samples samples{7, 8};
    const AttentionPart whole{.queries = all,
                              .keys = all,
                              .micro_batch = 2,
                              .heads = 4,
                              .dropout = {.probability = 0.3, .key = 99, .samples = samples}};
    const Mask expected = attention_mask(whole);
    const Runs queries{{80, 5}, {3, 2}}, keys{{40, 9}, {0, 7}};
    const Samples one{8};
    AttentionPart part = whole;
    part.queries = queries;
    part.keys = keys;
    part.micro_batch = 1;
    part.heads = 2;
    part.first_head = 2;
    part.dropout.samples = one;
    const Mask mask = attention_mask(part);
    std::size_t at = 0;
    for (const std::size_t head : {2, 3}) {
        for (const std::size_t query : {80, 81, 82, 83, 84, 3, 4}) {
            for (std::size_t key = 40; key < 49; ++key, ++at) {
                EXPECT_EQ(mask[at], expected[((4 + head) * 90 + query) * 90 + key]);
            }
            for (std::size_t key = 0; key < 7; ++key, ++at) {
                EXPECT_EQ(mask[at], expected[((4 + head) * 90 + query) * 90 + key]);
            }
        }
    }
    EXPECT_EQ(at, mask.size());
}

}  // namespace
}  // namespace orrery::kernels
