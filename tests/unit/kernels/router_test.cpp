#include <limits>
#include <numeric>

#include "core/error.h"
#include "kernels/kernels.h"
#include "tests/unit/kernels/reference.h"

namespace orrery::kernels {
namespace {

using reference::Doubles;
using reference::Floats;
using reference::wide;
using Choices = std::vector<std::int32_t>;

struct RouterCase {
    std::string name;
    RouterShape shape;
    bool corrected = false;
};

/// The scores of one token's experts by definition.
Doubles scores_of(const RouterShape& s, const double* logits) {
    Doubles scores(static_cast<std::size_t>(s.experts));
    double total = 0.0;
    for (std::size_t e = 0; e < scores.size(); ++e) total += std::exp(logits[e]);
    for (std::size_t e = 0; e < scores.size(); ++e) {
        scores[e] = s.sigmoid_scores ? 1.0 / (1.0 + std::exp(-logits[e])) : std::exp(logits[e]) / total;
    }
    return scores;
}

/// Indices in descending order of values; ties by index.
std::vector<std::size_t> sorted(const Doubles& values) {
    std::vector<std::size_t> order(values.size());
    std::iota(order.begin(), order.end(), std::size_t{0});
    std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) { return values[a] > values[b]; });
    return order;
}

Choices naive_choice(const RouterShape& s, const double* logits, const Floats& correction) {
    Doubles scores = scores_of(s, logits);
    for (std::size_t e = 0; e < correction.size(); ++e) scores[e] += static_cast<double>(correction[e]);
    if (s.expert_groups > 0) {
        const auto size = static_cast<std::size_t>(s.experts / s.expert_groups);
        Doubles of_groups;
        for (std::size_t first = 0; first < scores.size(); first += size) {
            Doubles group(scores.begin() + static_cast<std::ptrdiff_t>(first),
                          scores.begin() + static_cast<std::ptrdiff_t>(first + size));
            std::sort(group.rbegin(), group.rend());
            of_groups.push_back(group[0] + (correction.empty() || size == 1 ? 0.0 : group[1]));
        }
        const std::vector<std::size_t> order = sorted(of_groups);
        for (std::size_t i = static_cast<std::size_t>(s.top_k_groups); i < order.size(); ++i) {
            for (std::size_t e = 0; e < size; ++e) {
                scores[order[i] * size + e] = -std::numeric_limits<double>::infinity();
            }
        }
    }
    const std::vector<std::size_t> order = sorted(scores);
    Choices chosen;
    for (std::size_t i = 0; i < static_cast<std::size_t>(s.top_k); ++i) {
        chosen.push_back(static_cast<std::int32_t>(order[i]));
    }
    return chosen;
}

/// The weights of given choices.
Doubles naive_weights(const RouterShape& s, const Doubles& logits, const Choices& experts) {
    Doubles weights;
    for (std::int64_t token = 0; token < s.tokens; ++token) {
        const Doubles scores = scores_of(s, logits.data() + token * s.experts);
        const std::int32_t* chosen = experts.data() + token * s.top_k;
        double sum = 0.0;
        for (std::int64_t i = 0; i < s.top_k; ++i) sum += scores[static_cast<std::size_t>(chosen[i])];
        for (std::int64_t i = 0; i < s.top_k; ++i) {
            const double score = scores[static_cast<std::size_t>(chosen[i])];
            weights.push_back(s.routed_scale * (s.normalize_top_k ? score / sum : score));
        }
    }
    return weights;
}

class Router : public ::testing::TestWithParam<RouterCase> {};

TEST_P(Router, ForwardAndBackward) {
    const RouterShape& s = GetParam().shape;
    const Floats logits = reference::values("logits", s.tokens * s.experts, 3.0);
    const Floats correction = GetParam().corrected ? reference::values("correction", s.experts, 0.3) : Floats{};
    Floats probabilities(static_cast<std::size_t>(s.tokens * s.top_k));
    Choices experts(probabilities.size());
    router_forward(s, logits.data(), correction.empty() ? nullptr : correction.data(), probabilities.data(),
                   experts.data());
    const Doubles all = wide(logits);
    Choices expected;
    for (std::int64_t token = 0; token < s.tokens; ++token) {
        const Choices one = naive_choice(s, all.data() + token * s.experts, correction);
        expected.insert(expected.end(), one.begin(), one.end());
    }
    EXPECT_EQ(experts, expected);
    reference::expect_close(probabilities, naive_weights(s, all, experts), 1e-6, "probabilities");

    const Floats dp = reference::values("dp", static_cast<std::int64_t>(probabilities.size()));
    Floats dlogits(logits.size(), std::numeric_limits<float>::quiet_NaN());
    router_backward(s, dp.data(), probabilities.data(), experts.data(), logits.data(), dlogits.data());
    reference::expect_gradient([&](const Doubles& at) { return naive_weights(s, at, experts); }, all, wide(dp), dlogits,
                               2e-6, "dlogits", 10000);
    Floats without(logits.size());
    if (s.backward_needs_logits()) {
        EXPECT_THROW(router_backward(s, dp.data(), probabilities.data(), experts.data(), nullptr, without.data()),
                     BugError);
    } else {
        router_backward(s, dp.data(), probabilities.data(), experts.data(), nullptr, without.data());
        EXPECT_EQ(without, dlogits);
    }
}

INSTANTIATE_TEST_SUITE_P(
    Cases, Router,
    ::testing::Values(
        RouterCase{"softmax_of_the_chosen", {.tokens = 9, .experts = 8, .top_k = 2}},
        RouterCase{"softmax", {.tokens = 9, .experts = 37, .top_k = 3, .normalize_top_k = false}},
        RouterCase{"all_experts", {.tokens = 3, .experts = 4, .top_k = 4}},
        RouterCase{"one_expert", {.tokens = 3, .experts = 1, .top_k = 1}},
        RouterCase{"sigmoid", {.tokens = 7, .experts = 16, .top_k = 4, .sigmoid_scores = true}},
        RouterCase{"sigmoid_as_it_is",
                   {.tokens = 7, .experts = 16, .top_k = 4, .sigmoid_scores = true, .normalize_top_k = false}},
        RouterCase{"deepseek_v2",
                   {.tokens = 11,
                    .experts = 24,
                    .top_k = 3,
                    .normalize_top_k = false,
                    .routed_scale = 16.0,
                    .expert_groups = 6,
                    .top_k_groups = 2}},
        RouterCase{"deepseek_v3",
                   {.tokens = 11,
                    .experts = 24,
                    .top_k = 4,
                    .sigmoid_scores = true,
                    .routed_scale = 2.5,
                    .expert_groups = 6,
                    .top_k_groups = 2},
                   true},
        RouterCase{
            "groups_of_one",
            {.tokens = 5, .experts = 6, .top_k = 2, .sigmoid_scores = true, .expert_groups = 6, .top_k_groups = 3},
            true},
        RouterCase{"corrected_softmax", {.tokens = 5, .experts = 20, .top_k = 2}, true}),
    [](const auto& test) { return test.param.name; });

TEST(Router, EqualScoresGoToTheLowerIndex) {
    const RouterShape s{.tokens = 1, .experts = 6, .top_k = 3};
    const Floats logits{1.0F, 2.0F, 0.0F, 2.0F, 1.0F, 2.0F};
    Floats probabilities(3);
    Choices experts(3);
    router_forward(s, logits.data(), nullptr, probabilities.data(), experts.data());
    EXPECT_EQ(experts, (Choices{1, 3, 5}));
    EXPECT_EQ(probabilities, Floats(3, 1.0F / 3.0F));
    const RouterShape grouped{.tokens = 1, .experts = 6, .top_k = 2, .expert_groups = 3, .top_k_groups = 1};
    router_forward(grouped, logits.data(), nullptr, probabilities.data(), experts.data());
    EXPECT_EQ(experts[0], 1);
    EXPECT_EQ(experts[1], 0);
}

TEST(Router, LargeLogitsStayFinite) {
    for (const bool sigmoid : {false, true}) {
        const RouterShape s{.tokens = 1, .experts = 3, .top_k = 2, .sigmoid_scores = sigmoid};
        const Floats logits{-300.0F, -400.0F, -300.0F};
        Floats probabilities(2);
        Choices experts(2);
        router_forward(s, logits.data(), nullptr, probabilities.data(), experts.data());
        EXPECT_EQ(experts, (Choices{0, 2}));
        EXPECT_EQ(probabilities, Floats(2, 0.5F));
        Floats dlogits(3);
        const Floats dp{1.0F, 3.0F};
        router_backward(s, dp.data(), probabilities.data(), experts.data(), logits.data(), dlogits.data());
        EXPECT_NEAR(static_cast<double>(dlogits[2]), 0.5, 1e-6);
    }
}

/// A diverging run must get as far as its loss, so choices are valid and distinct even for NaN and infinite logits.
TEST(Router, NonFiniteLogitsGiveValidChoices) {
    const float nan = std::nanf(""), low = -std::numeric_limits<float>::infinity();
    const Floats correction(6, 0.0F);
    for (const Floats& logits : {Floats(6, nan), Floats(6, low), Floats{nan, 1.0F, nan, low, nan, 2.0F}}) {
        for (const bool sigmoid : {false, true}) {
            for (const float* added : {static_cast<const float*>(nullptr), correction.data()}) {
                const RouterShape s{.tokens = 1,
                                    .experts = 6,
                                    .top_k = 3,
                                    .sigmoid_scores = sigmoid,
                                    .expert_groups = 3,
                                    .top_k_groups = 2};
                Floats probabilities(3);
                Choices experts(3);
                router_forward(s, logits.data(), added, probabilities.data(), experts.data());
                std::sort(experts.begin(), experts.end());
                EXPECT_EQ(std::unique(experts.begin(), experts.end()), experts.end());
                EXPECT_GE(experts.front(), 0);
                EXPECT_LT(experts.back(), 6);
            }
        }
    }
}

TEST(Router, NoTokens) {
    router_forward({.tokens = 0, .experts = 3, .top_k = 2}, nullptr, nullptr, nullptr, nullptr);
    router_backward({.tokens = 0, .experts = 3, .top_k = 2}, nullptr, nullptr, nullptr, nullptr, nullptr);
}

}  // namespace
}  // namespace orrery::kernels
