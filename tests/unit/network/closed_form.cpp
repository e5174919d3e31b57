#include "tests/unit/network/closed_form.h"

#include <algorithm>
#include <array>
#include <bit>

#include "core/error.h"
#include "sim/network/algorithms/stages.h"

namespace orrery::sim::algorithms {
namespace {

using program::CommKind;

ClosedForm operator+(ClosedForm a, ClosedForm b) {
    return {a.steps + b.steps, a.factor + b.factor};
}

double real(std::int64_t value) {
    return static_cast<double>(value);
}

struct Sizes {
    std::int64_t n = 0, k = 0, m = 0, chunks = 1;
    [[nodiscard]] double others() const { return real(n - 1) / real(n); }
    [[nodiscard]] double levels() const { return real(log2_ceil(n)); }
    [[nodiscard]] double node_levels() const { return real(log2_ceil(k)); }
    /// The share of a node's part of the message that the busiest node of two complementary trees receives.
    [[nodiscard]] double tree_share() const {
        constexpr std::array<double, 4> kShare{0, 1, 1.5, 2};  // 1, 2, 3, more nodes
        return kShare.at(static_cast<std::size_t>(std::min<std::int64_t>(k, 4)) - 1);
    }
};

ClosedForm both_ways(CommKind kind, double steps, double factor) {
    const double passes = kind == CommKind::all_reduce ? 2 : 1;
    return {passes * steps, passes * factor};
}

ClosedForm chain(const Sizes& s) {
    const double rounds = real(s.n - 2 + s.chunks);
    return {rounds, rounds / real(s.chunks)};
}

ClosedForm binary_tree(const Sizes& s) {
    const auto n = static_cast<std::uint64_t>(s.n);
    const double rounds = real(static_cast<std::int64_t>(std::bit_width(n)) - 2 + s.chunks);
    if (s.n == 2) return {rounds, 1};
    return {rounds, (2 * rounds - (std::has_single_bit(n) ? 1 : 0)) / real(s.chunks)};
}

ClosedForm binomial_tree(CommKind kind, const Sizes& s) {
    const ClosedForm whole{s.levels(), s.levels()};
    const ClosedForm slices{s.levels(), s.others()};
    if (kind == CommKind::all_reduce) return whole + whole;
    if (kind == CommKind::reduce_scatter) return whole + slices;
    return kind == CommKind::scatter || kind == CommKind::gather ? slices : whole;
}

ClosedForm knomial_tree(const Sizes& s) {
    constexpr std::int64_t kRadix = 4;
    std::int64_t levels = 1, width = 1;
    for (; width * kRadix < s.n; width *= kRadix) ++levels;
    return {real(levels), real((kRadix - 1) * (levels - 1) + (s.n - 1) / width)};
}

ClosedForm double_binary_tree(CommKind kind, const Sizes& s) {
    const double one_way = real(s.m - 1) + s.node_levels();
    if (kind != CommKind::all_reduce) return {one_way, s.k > 1 && s.m > 1 ? 2.0 : 1.0};
    return {2 * one_way, (2 * real(s.m - 1) + s.tree_share()) / real(s.m)};
}

ClosedForm halving_doubling(CommKind kind, const Sizes& s) {
    const auto p = static_cast<std::int64_t>(std::bit_floor(static_cast<std::uint64_t>(s.n)));
    const std::int64_t folded = s.n - p;
    const double levels = real(log2_ceil(p));
    const double fold = folded > 0 ? 1 : 0;
    if (kind == CommKind::all_reduce) return {2 * levels + 2 * fold, 2 * real(p - 1) / real(p) + 2 * fold};
    double heaviest = 0;
    for (std::int64_t j = 1; j < p; j *= 2) heaviest += real(j + std::min(j, folded)) / real(s.n);
    const ClosedForm half{levels + 2 * fold, heaviest + fold * (1 + 1 / real(s.n))};
    const bool is_half = kind == CommKind::reduce_scatter || kind == CommKind::all_gather;
    return is_half ? half : half + ClosedForm{s.levels(), s.others()};
}

ClosedForm recursive_doubling(const Sizes& s) {
    const auto n = static_cast<std::uint64_t>(s.n);
    const double rounds = real(static_cast<std::int64_t>(std::bit_width(n)) - 1) + (std::has_single_bit(n) ? 0 : 2);
    return {rounds, rounds};
}

ClosedForm bruck(CommKind kind, const Sizes& s) {
    if (kind == CommKind::all_gather) return {s.levels(), s.others()};
    double ones = 0;
    for (std::int64_t digit = 1; digit < s.n; digit *= 2) {
        ones += real(s.n / (2 * digit) * digit + std::max<std::int64_t>(s.n % (2 * digit) - digit, 0));
    }
    return {s.levels(), ones / real(s.n)};
}

ClosedForm direct(CommKind kind, const Sizes& s) {
    switch (kind) {
        case CommKind::all_reduce:
            return {2, 2 * s.others()};
        case CommKind::all_gather:
        case CommKind::reduce_scatter:
        case CommKind::all_to_all:
        case CommKind::scatter:
        case CommKind::gather:
            return {1, s.others()};
        case CommKind::broadcast:
        case CommKind::reduce:
            return {1, real(s.n - 1)};
        case CommKind::exchange:
        case CommKind::send:
        case CommKind::recv:
            break;
    }
    return {1, 1};
}

/// All-to-all to the members of the same index, then inside the nodes.
ClosedForm by_nodes(const Sizes& s) {
    return {(s.k > 1 ? 1.0 : 0.0) + (s.m > 1 ? 1.0 : 0.0), real(s.k - 1) / real(s.k) + real(s.m - 1) / real(s.m)};
}

ClosedForm nvls(CommKind kind, const Sizes& s) {
    if (kind != CommKind::all_reduce) return {1, 1};
    return {2 + 2 * s.node_levels(), 1 + (1 + s.tree_share()) / real(s.m)};
}

}  // namespace

ClosedForm closed_form(Algorithm algorithm, CommKind kind, const Group& group, std::int64_t chunks) {
    const std::string reason = why_not(algorithm, kind, group);
    ORRERY_CHECK(reason.empty(), reason);
    ORRERY_CHECK(group.is_even(), "a closed form needs the same number of members on each node");
    const Sizes s{group.ranks(), group.nodes(), group.most_members(), chunks};
    if (s.n == 1) return {};
    switch (algorithm) {
        case Algorithm::ring:
            return both_ways(kind, real(s.n - 1), s.others());
        case Algorithm::neighbor_exchange:
            return {real(s.n / 2), s.others()};
        case Algorithm::chain:
            return chain(s);
        case Algorithm::binary_tree:
            return binary_tree(s);
        case Algorithm::binomial_tree:
            return binomial_tree(kind, s);
        case Algorithm::knomial_tree:
            return knomial_tree(s);
        case Algorithm::double_binary_tree:
            return double_binary_tree(kind, s);
        case Algorithm::halving_doubling:
            return halving_doubling(kind, s);
        case Algorithm::recursive_doubling:
            return recursive_doubling(s);
        case Algorithm::bruck:
            return bruck(kind, s);
        case Algorithm::pat:
            return {real(s.chunks) * s.levels(), s.others()};
        case Algorithm::bcube:
            return {2 * real(static_cast<std::int64_t>(prime_factors(s.n).size())), 2 * s.others()};
        case Algorithm::direct:
            return direct(kind, s);
        case Algorithm::pairwise:
            return {real(s.n - 1), s.others()};
        case Algorithm::hierarchical:
            if (kind == CommKind::all_to_all) return by_nodes(s);
            return both_ways(kind, real(s.m + s.k - 2), s.others());
        case Algorithm::nvls:
        case Algorithm::nvls_tree:
            return nvls(kind, s);
        case Algorithm::collnet:
            return {s.m > 1 ? 3.0 : 1.0, real(2 * s.m - 1) / real(s.m)};
    }
    return {};
}

}  // namespace orrery::sim::algorithms
