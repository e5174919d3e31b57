// How tokens choose experts, and on how many nodes and ranks the chosen experts of a token lie.
#pragma once

#include <compare>
#include <cstdint>

#include "models/model_spec.h"

namespace orrery::models {

/// A token chooses `top_k_groups` of `groups` equal runs of consecutive experts, then `top_k` of their experts.
struct TokenRouting {
    std::int64_t experts = 0;
    std::int64_t top_k = 0;
    std::int64_t groups = 1;
    std::int64_t top_k_groups = 1;
    auto operator<=>(const TokenRouting&) const = default;
};
[[nodiscard]] TokenRouting routing_of(const MixtureOfExperts& moe);

/// The expected number of `places` that hold at least one of a token's experts, if each place holds an equal run of
/// consecutive experts (as equal as whole experts allow) and every order of a token's scores is equally likely, as
/// balanced routers come close to (arXiv 2412.19437, section 2.1.2).
///
/// The groups are those with the highest scores (DeepSeek-V2, arXiv 2405.04434, section 2.2.2). So a token takes
/// experts in the order of their scores, from all groups until it has experts of top_k_groups and then from these only:
/// draws without replacement, of which each misses a place with the probability (experts left outside it) / (experts
/// left). With one group this is the hypergeometric C(E - e, k) / C(E, k) for a place with e of E experts (Feller, "An
/// Introduction to Probability Theory and Its Applications", volume 1, section II.6). DeepSeek-V3 ranks groups by the
/// sum of their two highest scores, with which the result differs by less than 2% (tested).
[[nodiscard]] double expected_places(const TokenRouting& routing, std::int64_t places);

}  // namespace orrery::models
