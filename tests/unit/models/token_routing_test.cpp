#include "models/token_routing.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <set>
#include <vector>

#include "core/error.h"
#include "core/random.h"
#include "models/model_spec.h"

namespace orrery::models {
namespace {

/// The groups that the token may choose from, by the sum of their `counted` highest scores.
std::set<std::int64_t> chosen_groups(const TokenRouting& r, const std::vector<double>& scores, std::int64_t counted) {
    const std::int64_t size = r.experts / r.groups;
    std::vector<std::pair<double, std::int64_t>> ranked;
    for (std::int64_t group = 0; group < r.groups; ++group) {
        std::vector<double> own(scores.begin() + group * size, scores.begin() + (group + 1) * size);
        std::sort(own.rbegin(), own.rend());
        ranked.emplace_back(-std::accumulate(own.begin(), own.begin() + std::min(counted, size), 0.0), group);
    }
    std::sort(ranked.begin(), ranked.end());
    std::set<std::int64_t> groups;
    for (std::int64_t i = 0; i < r.top_k_groups; ++i) groups.insert(ranked[static_cast<std::size_t>(i)].second);
    return groups;
}

/// How many of the places a token with these scores reaches.
std::int64_t reached(const TokenRouting& r, const std::vector<double>& scores, std::int64_t places,
                     std::int64_t counted) {
    const std::set<std::int64_t> groups = chosen_groups(r, scores, counted);
    std::vector<std::pair<double, std::int64_t>> allowed;
    for (std::int64_t expert = 0; expert < r.experts; ++expert) {
        if (groups.count(expert / (r.experts / r.groups)) == 0) continue;
        allowed.emplace_back(-scores[static_cast<std::size_t>(expert)], expert);
    }
    std::sort(allowed.begin(), allowed.end());
    std::set<std::int64_t> found;
    for (std::int64_t i = 0; i < r.top_k; ++i) {
        const std::int64_t expert = allowed[static_cast<std::size_t>(i)].second;
        std::int64_t place = 0;
        while ((place + 1) * r.experts / places <= expert) ++place;
        found.insert(place);
    }
    return std::ssize(found);
}

/// The mean over all orders of the scores.
double mean_over_orders(const TokenRouting& r, std::int64_t places) {
    std::vector<double> scores(static_cast<std::size_t>(r.experts));
    std::iota(scores.begin(), scores.end(), 1.0);
    std::int64_t sum = 0, orders = 0;
    do {
        sum += reached(r, scores, places, 1);
        ++orders;
    } while (std::next_permutation(scores.begin(), scores.end()));
    return static_cast<double>(sum) / static_cast<double>(orders);
}

double mean_of_samples(const TokenRouting& r, std::int64_t places, std::int64_t counted, std::int64_t samples) {
    const RandomStream stream(1, "token_routing");
    std::vector<double> scores(static_cast<std::size_t>(r.experts));
    std::int64_t sum = 0;
    std::uint64_t drawn = 0;
    for (std::int64_t i = 0; i < samples; ++i) {
        for (double& score : scores) score = stream.uniform(drawn++);
        sum += reached(r, scores, places, counted);
    }
    return static_cast<double>(sum) / static_cast<double>(samples);
}

TEST(TokenRouting, ExpectedPlacesEqualTheMeanOverAllOrders) {
    // Places that are parts of groups, whole groups, several groups, and some of each.
    for (const TokenRouting& r :
         {TokenRouting{6, 2, 3, 2}, TokenRouting{6, 3, 3, 2}, TokenRouting{6, 2, 2, 1}, TokenRouting{8, 3, 4, 2},
          TokenRouting{8, 4, 2, 2}, TokenRouting{7, 3, 1, 1}, TokenRouting{8, 4, 4, 3}}) {
        for (const std::int64_t places : {1, 2, 3, 4, 6, 8}) {
            if (places > r.experts) continue;
            EXPECT_NEAR(expected_places(r, places), mean_over_orders(r, places), 1e-12)
                << r.experts << " experts, " << r.groups << " groups, top " << r.top_k << ", " << places << " places";
        }
    }
}

TEST(TokenRouting, WithoutGroupsItIsHypergeometric) {
    // Mixtral: 2 of 8 experts on 4 places of 2: 4 (1 - C(6, 2) / C(8, 2)).
    EXPECT_NEAR(expected_places(routing_of(load_model("mixtral-8x7b").moe), 4), 4 * (1 - 15.0 / 28), 1e-12);
    // Every expert is a place of its own.
    EXPECT_NEAR(expected_places(routing_of(load_model("mixtral-8x7b").moe), 8), 2, 1e-12);
    // Kimi K2: 8 of 384 experts on 8 places of 48.
    double missed = 1;
    for (int i = 0; i < 8; ++i) missed *= (384.0 - 48 - i) / (384.0 - i);
    EXPECT_NEAR(expected_places(routing_of(load_model("kimi-k2").moe), 8), 8 * (1 - missed), 1e-12);
}

TEST(TokenRouting, DeepseekReachesAtMostFourNodes) {
    const TokenRouting r = routing_of(load_model("deepseek-v3").moe);
    EXPECT_EQ(r, (TokenRouting{256, 8, 8, 4}));
    EXPECT_LE(expected_places(r, 8), 4);
    EXPECT_NEAR(expected_places(r, 8), mean_of_samples(r, 8, 1, 4000), 0.02);
    EXPECT_NEAR(expected_places(r, 64), mean_of_samples(r, 64, 1, 4000), 0.05);
    // Without the limit a token would reach more of the nodes.
    EXPECT_GT(expected_places({256, 8, 1, 1}, 8), 5.2);
    // Its router ranks groups by their two highest scores.
    for (const std::int64_t places : {2, 4, 8, 16, 64}) {
        const double sampled = mean_of_samples(r, places, 2, 4000);
        EXPECT_NEAR(expected_places(r, places), sampled, 0.02 * sampled) << places;
    }
}

TEST(TokenRouting, RefusesImpossibleChoices) {
    EXPECT_THROW((void)expected_places({10, 2, 3, 1}, 2), BugError);
    EXPECT_THROW((void)expected_places({8, 3, 4, 1}, 2), BugError);
}

}  // namespace
}  // namespace orrery::models
