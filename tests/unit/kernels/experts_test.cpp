#include <numeric>

#include "kernels/kernels.h"
#include "tests/unit/kernels/reference.h"

namespace orrery::kernels {
namespace {

using reference::Doubles;
using reference::Floats;
using reference::wide;
using Choices = std::vector<std::int32_t>;
using Counts = std::vector<std::int64_t>;

TEST(ExpertRows, OrderedByExpertThenByChoice) {
    const Choices chosen{2, 0, 3, 2, 0, 3, 3, 2};
    Counts counts(5, 99);
    count_experts(8, 5, chosen.data(), counts.data());
    EXPECT_EQ(counts, (Counts{2, 0, 3, 3, 0}));
    Choices rows(8);
    expert_rows(8, 5, chosen.data(), counts.data(), rows.data());
    EXPECT_EQ(rows, (Choices{2, 0, 5, 3, 1, 6, 7, 4}));
    const Choices same(4, 1);
    count_experts(4, 5, same.data(), counts.data());
    EXPECT_EQ(counts, (Counts{0, 4, 0, 0, 0}));
    expert_rows(4, 5, same.data(), counts.data(), rows.data());
    EXPECT_EQ(Choices(rows.begin(), rows.begin() + 4), (Choices{0, 1, 2, 3}));
    count_experts(0, 5, nullptr, counts.data());
    EXPECT_EQ(counts, Counts(5, 0));
}

struct Permutation {
    PermuteShape shape{6, 2, 19};
    Choices rows{3, 7, 0, 11, 4, 8, 1, 9, 2, 5, 6, 10};
    [[nodiscard]] std::int64_t choices() const { return shape.tokens * shape.top_k; }
    [[nodiscard]] std::size_t at(std::int64_t row, std::int64_t i) const {
        return static_cast<std::size_t>(row * shape.width + i);
    }
};

TEST(Permute, CopiesARowForEachChoiceAndSumsBack) {
    const Permutation p;
    const Floats x = reference::values("x", p.shape.tokens * p.shape.width);
    Floats y(static_cast<std::size_t>(p.choices() * p.shape.width));
    permute_forward(p.shape, x.data(), p.rows.data(), y.data());
    const Floats dy = reference::values("dy", static_cast<std::int64_t>(y.size()));
    Floats dx(x.size(), 99.0F);
    permute_backward(p.shape, dy.data(), p.rows.data(), dx.data());
    for (std::int64_t t = 0; t < p.shape.tokens; ++t) {
        const std::int64_t first = p.rows[static_cast<std::size_t>(2 * t)];
        const std::int64_t second = p.rows[static_cast<std::size_t>(2 * t + 1)];
        for (std::int64_t i = 0; i < p.shape.width; ++i) {
            EXPECT_EQ(y[p.at(first, i)], x[p.at(t, i)]);
            EXPECT_EQ(y[p.at(second, i)], x[p.at(t, i)]);
            EXPECT_EQ(dx[p.at(t, i)], dy[p.at(first, i)] + dy[p.at(second, i)]);
        }
    }
    permute_forward({0, 2, 19}, nullptr, nullptr, nullptr);
    permute_backward({0, 2, 19}, nullptr, nullptr, nullptr);
}

TEST(Combine, ForwardAndBackward) {
    const Permutation p;
    const std::int64_t elements = p.choices() * p.shape.width;
    const Floats y = reference::values("y", elements);
    const Floats probabilities = reference::values("p", p.choices());
    Floats out(static_cast<std::size_t>(p.shape.tokens * p.shape.width), 99.0F);
    combine_forward(p.shape, y.data(), probabilities.data(), p.rows.data(), out.data());
    const auto naive = [&](const Doubles& all) {
        Doubles result(out.size(), 0.0);
        for (std::int64_t c = 0; c < p.choices(); ++c) {
            for (std::int64_t i = 0; i < p.shape.width; ++i) {
                result[p.at(c / p.shape.top_k, i)] +=
                    all[static_cast<std::size_t>(elements + c)] * all[p.at(p.rows[static_cast<std::size_t>(c)], i)];
            }
        }
        return result;
    };
    Doubles inputs = wide(y);
    inputs.insert(inputs.end(), probabilities.begin(), probabilities.end());
    reference::expect_close(out, naive(inputs), 1e-6, "out");

    const Floats dout = reference::values("dout", static_cast<std::int64_t>(out.size()));
    Floats dy(y.size(), 99.0F), dprobabilities(probabilities.size(), 99.0F);
    combine_backward(p.shape, dout.data(), y.data(), probabilities.data(), p.rows.data(), dy.data(),
                     dprobabilities.data());
    Floats gradients = dy;
    gradients.insert(gradients.end(), dprobabilities.begin(), dprobabilities.end());
    reference::expect_gradient(naive, inputs, wide(dout), gradients, 1e-6, "gradients", 10000);
    Floats in_place = y, again(probabilities.size());
    combine_backward(p.shape, dout.data(), in_place.data(), probabilities.data(), p.rows.data(), in_place.data(),
                     again.data());
    EXPECT_EQ(in_place, dy);
    EXPECT_EQ(again, dprobabilities);
}

TEST(ReceivedRows, GroupedByExpertKeepTheOrderOfSources) {
    const Counts counts{2, 0, 1,   // of source 0
                        0, 0, 3,   //
                        1, 2, 0};  //
    const ReceivedRows shape{3, 3, 2, counts.data()};
    // The first number of a row is source * 100 + expert * 10 + index, the second its negative.
    const Floats by_source{0, 1, 20, 120, 121, 122, 200, 210, 211};
    const Floats by_expert{0, 1, 200, 210, 211, 20, 120, 121, 122};
    const auto doubled = [](const Floats& names) {
        Floats x;
        for (const float name : names) x.insert(x.end(), {name, -name});
        return x;
    };
    Floats y(18), back(18);
    group_by_expert(shape, doubled(by_source).data(), y.data());
    EXPECT_EQ(y, doubled(by_expert));
    group_by_source(shape, y.data(), back.data());
    EXPECT_EQ(back, doubled(by_source));
    const Counts none(9, 0);
    group_by_expert({3, 3, 2, none.data()}, nullptr, nullptr);
}

class ExpertLinear : public ::testing::TestWithParam<Counts> {};

TEST_P(ExpertLinear, EachExpertsRowsUseItsWeight) {
    set_blas_threads(1);
    const Counts& counts = GetParam();
    constexpr std::int64_t kOut = 5, kIn = 7;
    const auto groups = static_cast<std::int64_t>(counts.size());
    const ExpertLinearShape shape{groups, kOut, kIn, counts.data()};
    std::vector<std::int64_t> expert_of;
    for (std::int64_t g = 0; g < groups; ++g) {
        expert_of.insert(expert_of.end(), static_cast<std::size_t>(counts[static_cast<std::size_t>(g)]), g);
    }
    const auto rows = static_cast<std::int64_t>(expert_of.size());
    const Floats x = reference::values("x", rows * kIn), weight = reference::values("w", groups * kOut * kIn);
    const Floats dy = reference::values("dy", rows * kOut), start = reference::values("start", groups * kOut * kIn);
    Doubles y_expected(static_cast<std::size_t>(rows * kOut), 0.0), dx_expected(x.size(), 0.0);
    Doubles dweight_expected = wide(start);
    for (std::int64_t r = 0; r < rows; ++r) {
        for (std::int64_t n = 0; n < kOut; ++n) {
            for (std::int64_t k = 0; k < kIn; ++k) {
                const auto w = static_cast<std::size_t>((expert_of[static_cast<std::size_t>(r)] * kOut + n) * kIn + k);
                const auto out = static_cast<std::size_t>(r * kOut + n), in = static_cast<std::size_t>(r * kIn + k);
                y_expected[out] += static_cast<double>(x[in]) * static_cast<double>(weight[w]);
                dx_expected[in] += static_cast<double>(dy[out]) * static_cast<double>(weight[w]);
                dweight_expected[w] += static_cast<double>(dy[out]) * static_cast<double>(x[in]);
            }
        }
    }
    Floats y(y_expected.size(), 99.0F), dx(x.size(), 99.0F), dweight = start;
    expert_linear_forward(shape, x.data(), weight.data(), y.data());
    expert_linear_backward_input(shape, dy.data(), weight.data(), dx.data());
    expert_linear_backward_weight(shape, dy.data(), x.data(), dweight.data());
    reference::expect_close(y, y_expected, 1e-6, "y");
    reference::expect_close(dx, dx_expected, 1e-6, "dx");
    reference::expect_close(dweight, dweight_expected, 1e-6, "dweight");
}

INSTANTIATE_TEST_SUITE_P(Counts, ExpertLinear,
                         ::testing::Values(Counts{3, 1, 4}, Counts{0, 9, 0, 0}, Counts{0, 0}, Counts{6}));

/// An expert layer on two ranks: rows are permuted by expert, sent, grouped by local expert, and returned.
TEST(Experts, RowsReachTheirExpertsAndReturn) {
    constexpr std::int64_t kRanks = 2, kTokens = 5, kTopK = 2, kExperts = 4, kLocal = 2, kWidth = 3;
    const PermuteShape shape{kTokens, kTopK, kWidth};
    const std::vector<Choices> chosen{{0, 3, 1, 2, 3, 0, 2, 1, 0, 1}, {3, 2, 3, 1, 3, 2, 2, 3, 3, 0}};
    std::vector<Counts> counts(kRanks, Counts(kExperts));
    std::vector<Choices> rows(kRanks, Choices(kTokens * kTopK));
    std::vector<Floats> x, sent;
    for (std::size_t rank = 0; rank < kRanks; ++rank) {
        x.push_back(reference::values("x" + std::to_string(rank), kTokens * kWidth));
        sent.emplace_back(kTokens * kTopK * kWidth);
        count_experts(kTokens * kTopK, kExperts, chosen[rank].data(), counts[rank].data());
        expert_rows(kTokens * kTopK, kExperts, chosen[rank].data(), counts[rank].data(), rows[rank].data());
        permute_forward(shape, x[rank].data(), rows[rank].data(), sent[rank].data());
    }
    std::vector<Floats> returned(kRanks, Floats(kTokens * kTopK * kWidth));
    for (std::int64_t rank = 0; rank < kRanks; ++rank) {  // each expert multiplies by its number + 1
        Counts received_counts;
        Floats received;
        std::vector<std::int64_t> first_rows;
        for (std::size_t source = 0; source < kRanks; ++source) {
            const auto middle = counts[source].begin() + kLocal;
            const std::int64_t before =
                rank == 0 ? 0 : std::accumulate(counts[source].begin(), middle, std::int64_t{0});
            const std::int64_t here = std::accumulate(rank == 0 ? counts[source].begin() : middle,
                                                      rank == 0 ? middle : counts[source].end(), std::int64_t{0});
            for (std::int64_t e = 0; e < kLocal; ++e) {
                received_counts.push_back(counts[source][static_cast<std::size_t>(rank * kLocal + e)]);
            }
            const float* from = sent[source].data() + before * kWidth;
            received.insert(received.end(), from, from + here * kWidth);
            first_rows.push_back(before);
        }
        const ReceivedRows arrival{kRanks, kLocal, kWidth, received_counts.data()};
        Floats grouped(received.size()), out(received.size());
        group_by_expert(arrival, received.data(), grouped.data());
        const Counts local{received_counts[0] + received_counts[2], received_counts[1] + received_counts[3]};
        Floats weight(kLocal * kWidth * kWidth, 0.0F);
        for (std::int64_t e = 0; e < kLocal; ++e) {
            for (std::int64_t i = 0; i < kWidth; ++i) {
                weight[static_cast<std::size_t>((e * kWidth + i) * kWidth + i)] =
                    static_cast<float>(rank * kLocal + e + 1);
            }
        }
        expert_linear_forward({kLocal, kWidth, kWidth, local.data()}, grouped.data(), weight.data(), out.data());
        group_by_source(arrival, out.data(), received.data());
        std::int64_t at = 0;
        for (std::size_t source = 0; source < kRanks; ++source) {
            const std::int64_t here = received_counts[2 * source] + received_counts[2 * source + 1];
            copy(here * kWidth, received.data() + at * kWidth, returned[source].data() + first_rows[source] * kWidth);
            at += here;
        }
    }
    for (std::size_t rank = 0; rank < kRanks; ++rank) {
        const Floats ones(kTokens * kTopK, 1.0F);
        Floats result(kTokens * kWidth);
        combine_forward(shape, returned[rank].data(), ones.data(), rows[rank].data(), result.data());
        for (std::size_t i = 0; i < result.size(); ++i) {
            const std::size_t token = i / kWidth;
            const auto factor = static_cast<float>(chosen[rank][2 * token] + chosen[rank][2 * token + 1] + 2);
            EXPECT_NEAR(result[i], x[rank][i] * factor, 1e-5F) << rank << " " << i;
        }
    }
}

}  // namespace
}  // namespace orrery::kernels
