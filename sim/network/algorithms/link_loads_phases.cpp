// Closed-form link loads of the algorithms with too many transfers to list, from the total that each pair of ranks
// exchanges.
#include <bit>
#include <cmath>
#include <set>

#include "sim/network/algorithms/link_loads_builder.h"
#include "sim/network/algorithms/stages.h"

namespace orrery::sim::algorithms {
namespace {

using program::CommKind;
using topologies::LinkId;

double real(std::int64_t value) {
    return static_cast<double>(value);
}

/// How many numbers in [0, n) have the bit `digit` (a power of two) set.
std::int64_t with_digit(std::int64_t n, std::int64_t digit) {
    return n / (2 * digit) * digit + std::max<std::int64_t>(n % (2 * digit) - digit, 0);
}

/// Every ring edge carries its channel's share. Inside a node all channels run in the same direction; each skips the
/// edge from the member where it leaves the node to the member where it enters.
void add_ring_channels(LoadBuilder& loads, double coefficient) {
    const Group& group = loads.group();
    const std::int64_t channels = ring_channels(group);
    const std::int64_t k = group.nodes();
    const double each = coefficient / real(channels);
    std::vector<std::vector<std::int64_t>> entries;
    for (std::int64_t channel = 0; channel < channels; ++channel) entries.push_back(ring_entries(group, channel));
    std::vector<std::int64_t> used;
    for (std::int64_t node = 0; node < k; ++node) {
        const std::int64_t m = group.members_of(node);
        const std::int64_t first = group.first_of(node);
        const std::int64_t next = node + 1 < k ? node + 1 : 0;
        const std::int64_t direction = ring_direction(node);
        used.assign(static_cast<std::size_t>(m), channels);
        for (const std::vector<std::int64_t>& entry : entries) {
            if (k == 1) break;  // the ring closes inside the node
            const std::int64_t exit = (entry[static_cast<std::size_t>(node)] - direction + m) % m;
            --used[static_cast<std::size_t>(exit)];
            loads.send(first + exit, group.first_of(next) + entry[static_cast<std::size_t>(next)], each);
        }
        for (std::int64_t j = 0; m > 1 && j < m; ++j) {
            const std::int64_t rings = used[static_cast<std::size_t>(j)];
            if (rings > 0) loads.send(first + j, first + (j + direction + m) % m, each * real(rings));
        }
    }
}

/// Chains inside the nodes. Channel c's chain starts at member c; all channels share the same edges, except that each
/// skips the edge that would close its chain.
void add_chains(LoadBuilder& loads, std::int64_t channels, double up, double down) {
    const Group& group = loads.group();
    for (std::int64_t node = 0; node < group.nodes(); ++node) {
        const std::int64_t first = group.first_of(node);
        const std::int64_t m = group.members_of(node);
        for (std::int64_t j = 0; m > 1 && j < m; ++j) {
            const std::int64_t next = (j + 1) % m;
            // Chains that start at `next` end at j and skip this edge.
            const std::int64_t ending = channels > next ? (channels - next + m - 1) / m : 0;
            const double used = real(channels - ending);
            if (up * used > 0) loads.send(first + next, first + j, up * used);
            if (down * used > 0) loads.send(first + j, first + next, down * used);
        }
    }
}

/// The parent of a label in the binary tree over labels 0 … n - 1 underlying double binary trees; -1: label 0. Label 0
/// has one child, odd labels are leaves. Source: Sanders, Speck, Träff, "Two-tree algorithms for full bandwidth
/// broadcast, reduction and scan" (2009); NCCL builds its trees the same way (src/graph/trees.cc).
std::int64_t tree_parent(std::int64_t label, std::int64_t count) {
    if (label == 0) return -1;
    const std::int64_t low = label & -label;
    const std::int64_t up = (label ^ low) | (low << 1);
    return up < count ? up : label ^ low;
}

/// The parent of a node in one of two trees (0 or 1) in which every node has two children in at most one tree. The
/// second tree has other labels: mirrored if their number is even, which turns odd labels into even ones, else shifted
/// by one. With a root, node 0 has label 0 in both trees.
std::int64_t double_tree_parent(std::int64_t node, std::int64_t count, std::int64_t tree, bool has_root) {
    const std::int64_t fixed = has_root ? 1 : 0;
    const std::int64_t moving = count - fixed;
    const auto swapped = [&](std::int64_t label, std::int64_t shift) {
        if (tree == 0 || label < fixed) return label;
        if (moving % 2 == 0) return fixed + moving - 1 - (label - fixed);
        return fixed + (label - fixed + shift + moving) % moving;
    };
    return swapped(tree_parent(swapped(node, -1), count), 1);
}

void add_node_trees(LoadBuilder& loads, std::int64_t rails, bool has_root, double up, double down) {
    const Group& group = loads.group();
    for (std::int64_t node = 0; node < group.nodes(); ++node) {
        for (const std::int64_t tree : {0, 1}) {
            const std::int64_t parent = double_tree_parent(node, group.nodes(), tree, has_root);
            if (parent < 0) continue;
            for (std::int64_t rail = 0; rail < rails; ++rail) {
                const std::int64_t here = group.first_of(node) + rail % group.members_of(node);
                const std::int64_t there = group.first_of(parent) + rail % group.members_of(parent);
                if (up > 0) loads.send(here, there, up / 2);
                if (down > 0) loads.send(there, here, down / 2);
            }
        }
    }
}

/// Every rank sends to the rank `distance` after it.
void add_shift(LoadBuilder& loads, std::int64_t distance, double coefficient) {
    const std::int64_t n = loads.group().ranks();
    for (std::int64_t rank = 0; rank < n; ++rank) loads.send(rank, (rank + distance) % n, coefficient);
}

/// One step of Bruck or PAT: every rank sends the same number of slices over the same distance.
void add_shift_step(LoadBuilder& loads, std::int64_t distance, std::int64_t slices, bool downward) {
    const std::int64_t n = loads.group().ranks();
    add_shift(loads, downward ? n - distance : distance, real(slices) / real(n));
    loads.end_steps(real(loads.chunks()));
}

/// Routes beyond which those between nodes are sampled, and the fewest shifts of a sample.
constexpr std::int64_t kRoutes = std::int64_t{1} << 18;
constexpr std::int64_t kFewestShifts = 8;

/// The shifts first, first + 1, … (`range` of them), or a sample that a low-discrepancy sequence spreads over them, of
/// about kRoutes routes of all `ranks`.
std::vector<std::int64_t> shifts_of(std::int64_t first, std::int64_t range, std::int64_t ranks, bool samples) {
    constexpr double kGoldenRatio = 0.6180339887498949;
    std::vector<std::int64_t> shifts;
    const std::int64_t count = samples ? std::clamp(kRoutes / ranks, std::min(kFewestShifts, range), range) : range;
    for (std::int64_t i = 0; i < count; ++i) {
        const double position = std::fmod(real(i + 1) * kGoldenRatio, 1.0);
        const std::int64_t sampled = std::min(range - 1, static_cast<std::int64_t>(position * real(range)));
        shifts.push_back(first + (samples ? sampled : i));
    }
    return shifts;
}

/// All pairs inside the nodes: every rank sends `each` to every other one.
void add_pairs_inside(LoadBuilder& loads, double each) {
    const Group& group = loads.group();
    for (std::int64_t from = 0; from < group.ranks(); ++from) {
        const std::int64_t node = group.node_of(from);
        for (std::int64_t to = group.first_of(node); to < group.first_of(node + 1); ++to) {
            if (to != from) loads.send(from, to, each);
        }
    }
}

/// All pairs inside the nodes. Between nodes a sample of shifts, in each of which every device sends and receives once.
void add_sampled_pairs(LoadBuilder& loads) {
    const Group& group = loads.group();
    const std::int64_t n = group.ranks();
    const std::int64_t most = group.most_members();
    add_pairs_inside(loads, 1 / real(n));
    // A shift by at least `most` and at most n - most leaves the node.
    const std::int64_t range = n - 2 * most + 1;
    if (range <= 0) {
        for (std::int64_t from = 0; from < n; ++from) {
            for (std::int64_t to = 0; to < n; ++to) {
                if (group.node_of(from) != group.node_of(to)) loads.send(from, to, 1 / real(n));
            }
        }
        return;
    }
    const std::vector<std::int64_t> shifts = shifts_of(most, range, n, true);
    for (const std::int64_t shift : shifts) {
        for (std::int64_t from = 0; from < n; ++from) {
            const double leaving = real(n - group.members_of(group.node_of(from))) / real(n);
            loads.send(from, (from + shift) % n, leaving / real(std::ssize(shifts)));
        }
    }
}

void add_all_pairs(LoadBuilder& loads, double steps) {
    const std::int64_t n = loads.group().ranks();
    if (n > LinkLoads::kAllPairs) {
        add_sampled_pairs(loads);
    } else {
        for (std::int64_t from = 0; from < n; ++from) {
            for (std::int64_t to = 0; to < n; ++to) {
                if (to != from) loads.send(from, to, 1 / real(n));
            }
        }
    }
    loads.end_steps(steps);
}

/// Each rank sends what is for a node to its member of the same index, which distributes it there.
void add_all_to_all_by_nodes(LoadBuilder& loads) {
    const Group& group = loads.group();
    const std::int64_t n = group.ranks(), k = group.nodes(), m = group.most_members();
    if (k > 1) {
        const std::vector<std::int64_t> shifts = shifts_of(1, k - 1, n, n * (k - 1) > kRoutes);
        for (const std::int64_t shift : shifts) add_shift(loads, shift * m, real(k - 1) / real(k * std::ssize(shifts)));
        loads.end_steps(1);
    }
    if (m == 1) return;
    add_pairs_inside(loads, 1 / real(m));
    loads.end_steps(1);
}

/// A reduction towards the switch of the first node's NIC and a multicast back. Every NIC sends to its switch once and
/// receives from it once, and every other switch with members' NICs does the same with the first node's switch. No link
/// carries the data twice.
void add_network_tree(LoadBuilder& loads, std::int64_t rail, double coefficient) {
    const Group& group = loads.group();
    const std::int64_t m = group.most_members();
    topologies::Route route, way_back;
    std::set<topologies::VertexId> joined;
    std::set<LinkId> trunks;  // links already counted: streams that meet in a switch merge
    for (std::int64_t node = 0; node < group.nodes(); ++node) {
        const std::int64_t rank = node * m + rail;
        const std::int64_t peer = node == 0 ? m + rail : rail;
        loads.cluster().find_route(loads.device(rank), loads.device(peer), route);
        loads.cluster().find_route(loads.device(peer), loads.device(rank), way_back);
        const std::size_t up = route.nic_up, down = way_back.nic_down;
        ORRERY_CHECK(up < route.parts.size(), "a route between nodes must have a NIC");
        for (std::size_t i = 0; i <= up; ++i) loads.add_part(route.parts[i], coefficient);
        for (std::size_t i = down; i < way_back.parts.size(); ++i) loads.add_part(way_back.parts[i], coefficient);
        loads.note_latency(rank, peer, route.latency, coefficient);
        if (!joined.insert(loads.cluster().link(route.parts[up].link).to).second || node == 0) continue;
        const auto join = [&](const topologies::Route& way) {
            for (std::size_t i = way.nic_up + 1; i < way.nic_down; ++i) {
                if (trunks.insert(way.parts[i].link).second) loads.add_part(way.parts[i], coefficient);
            }
        };
        join(route);
        join(way_back);
    }
}

}  // namespace

void add_ring(LoadBuilder& loads) {
    const Group& group = loads.group();
    const double steps = loads.passes() * real(group.ranks() - 1);
    add_ring_channels(loads, steps / real(group.ranks()));
    loads.end_mean_steps(steps);
}

void add_neighbor_exchange(LoadBuilder& loads) {
    const std::int64_t n = loads.group().ranks();
    const std::int64_t rounds = n / 2;
    for (const std::int64_t side : {1, -1}) {
        // Even rounds exchange inside pairs (2q, 2q + 1); the first round sends one slice, the others two.
        const std::int64_t here = side > 0 ? (rounds + 1) / 2 : rounds / 2;
        if (here == 0) continue;
        const double slices = real(2 * here - (side > 0 ? 1 : 0));
        for (std::int64_t rank = 0; rank < n; ++rank) {
            loads.send(rank, (rank + (rank % 2 == 0 ? side : -side) + n) % n, slices / real(n));
        }
        loads.end_steps(real(here));
    }
}

void add_chain(LoadBuilder& loads) {
    const std::int64_t n = loads.group().ranks();
    const bool reduces = loads.kind() == CommKind::reduce;
    double along = 0;
    for (std::int64_t rank = 0; rank + 1 < n; ++rank) {
        const double before = loads.weighted_latency();
        loads.send(reduces ? rank + 1 : rank, reduces ? rank : rank + 1, 1);
        along += loads.weighted_latency() - before;
    }
    const double rounds = real(n - 2 + loads.chunks());
    loads.end_phase(rounds, along + real(loads.chunks() - 1) * loads.longest_latency(), rounds / real(loads.chunks()));
}

void add_binary_tree(LoadBuilder& loads) {
    const std::int64_t n = loads.group().ranks();
    for (std::int64_t rank = 1; rank < n; ++rank) {
        const std::int64_t parent = (rank - 1) / 2;
        loads.kind() == CommKind::reduce ? loads.send(rank, parent, 1) : loads.send(parent, rank, 1);
    }
    const auto count = static_cast<std::uint64_t>(n);
    const double rounds = real(static_cast<std::int64_t>(std::bit_width(count)) - 2 + loads.chunks());
    // A rank with two children sends every chunk twice. With 2^d ranks the last level has a single rank, whose parent
    // sends each chunk once.
    const double sent = (2 * rounds - (std::has_single_bit(count) ? 1 : 0)) / real(loads.chunks());
    loads.end_phase(rounds, rounds * loads.longest_latency(), n == 2 ? 1 : sent / 2);
}

void add_double_tree(LoadBuilder& loads) {
    const Group& group = loads.group();
    const bool has_root = loads.kind() != CommKind::all_reduce;
    const std::int64_t channels = has_root ? 1 : group.fewest_members();
    const double up = loads.kind() == CommKind::broadcast ? 0 : 1 / real(channels);
    const double down = loads.kind() == CommKind::reduce ? 0 : 1 / real(channels);
    add_chains(loads, channels, up, down);
    add_node_trees(loads, channels, has_root, up, down);
    const double chain = loads.passes() * real(group.most_members() - 1);
    const double levels = loads.passes() * real(log2_ceil(group.nodes()));
    loads.end_phase(chain + levels, chain * loads.intra_latency() + levels * loads.inter_latency());
}

void add_bruck(LoadBuilder& loads) {
    const std::int64_t n = loads.group().ranks();
    const bool gathers = loads.kind() == CommKind::all_gather;
    for (std::int64_t distance = 1; distance < n; distance *= 2) {
        add_shift_step(loads, distance, gathers ? std::min(distance, n - distance) : with_digit(n, distance), gathers);
    }
}

/// An all-gather runs through the distances in descending order, which does not change the sum.
void add_pat(LoadBuilder& loads) {
    const std::int64_t n = loads.group().ranks();
    for (std::int64_t distance = 1; distance < n; distance *= 2) {
        const std::int64_t slices = (n - distance + 2 * distance - 1) / (2 * distance);
        add_shift_step(loads, distance, slices, loads.kind() == CommKind::reduce_scatter);
    }
}

void add_pairwise(LoadBuilder& loads) {
    add_all_pairs(loads, real(loads.group().ranks() - 1));
}

void add_hierarchical(LoadBuilder& loads) {
    const Group& group = loads.group();
    const std::int64_t k = group.nodes();
    const std::int64_t m = group.most_members();
    if (loads.kind() == CommKind::all_to_all) return add_all_to_all_by_nodes(loads);
    const double inside = real(m - 1) / real(m);
    const auto add_inside = [&](double times) {
        for (std::int64_t rank = 0; m > 1 && rank < group.ranks(); ++rank) {
            loads.send(rank, rank - rank % m + (rank + 1) % m, times * inside);
        }
        if (m > 1) loads.end_steps(times * real(m - 1));
    };
    const double times = loads.passes();
    if (loads.kind() != CommKind::all_gather) add_inside(1);
    if (k > 1) {
        add_shift(loads, m, times * real(k - 1) / real(k) / real(m));
        loads.end_mean_steps(times * real(k - 1));
    }
    if (loads.kind() != CommKind::reduce_scatter) add_inside(1);
}

void add_direct(LoadBuilder& loads) {
    const std::int64_t n = loads.group().ranks();
    const auto add_star = [&](bool from_root, double share) {
        for (std::int64_t rank = 1; rank < n; ++rank) loads.send(from_root ? 0 : rank, from_root ? rank : 0, share);
    };
    switch (loads.kind()) {
        case CommKind::all_reduce:
            add_all_pairs(loads, 1);
            return add_all_pairs(loads, 1);
        case CommKind::all_gather:
        case CommKind::reduce_scatter:
        case CommKind::all_to_all:
            return add_all_pairs(loads, 1);
        case CommKind::broadcast:
        case CommKind::reduce:
            add_star(loads.kind() == CommKind::broadcast, 1);
            break;
        case CommKind::scatter:
        case CommKind::gather:
            add_star(loads.kind() == CommKind::scatter, 1 / real(n));
            break;
        case CommKind::exchange:
            add_shift(loads, 1, 1);
            break;
        case CommKind::send:
        case CommKind::recv:
            loads.send(0, 1, 1);
            break;
    }
    loads.end_steps(1);
}

void add_nvls(LoadBuilder& loads) {
    const Group& group = loads.group();
    const std::int64_t m = group.most_members();
    const double own = 1 / real(m);
    const bool reduces = loads.kind() != CommKind::all_gather, gathers = loads.kind() != CommKind::reduce_scatter;
    const double up = (reduces ? 1 : 0) + (gathers ? own : 0);
    const double down = (reduces ? own : 0) + (gathers ? 1 : 0);
    topologies::Route route;
    for (std::int64_t rank = 0; m > 1 && rank < group.ranks(); ++rank) {
        const std::int64_t peer = rank - rank % m + (rank + 1) % m;
        loads.cluster().find_route(loads.device(rank), loads.device(peer), route);
        for (const topologies::Route::Part& part : route.parts) {
            const topologies::Link& link = loads.cluster().link(part.link);
            const bool leaves = link.from == static_cast<topologies::VertexId>(loads.device(rank));
            const bool through_switch =
                loads.cluster().vertex(leaves ? link.to : link.from).kind == topologies::VertexKind::node_switch;
            if (!through_switch || route.hops != 2) {
                throw InputError("cluster " + loads.cluster().spec().name +
                                 ": nvls needs devices that are connected by switches of their node");
            }
            // Links up from this rank, and down to its neighbour.
            loads.add_part(part, leaves ? up : down);
        }
        loads.note_latency(rank, peer, route.latency, 1);
    }
    if (m == 1) {
        throw InputError("cluster " + loads.cluster().spec().name + ": nvls needs at least two members on each node");
    }
    const double levels = 2 * real(log2_ceil(group.nodes()));
    if (levels > 0) add_node_trees(loads, m, false, own, own);
    loads.end_phase(loads.passes() + levels, loads.passes() * loads.intra_latency() + levels * loads.inter_latency());
}

void add_collnet(LoadBuilder& loads) {
    const Group& group = loads.group();
    const std::int64_t m = group.most_members();
    for (std::int64_t rank = 0; rank < group.ranks(); ++rank) {
        for (std::int64_t other = rank - rank % m; other < rank - rank % m + m; ++other) {
            if (other != rank) loads.send(rank, other, 2 / real(m));
        }
    }
    for (std::int64_t rail = 0; rail < m; ++rail) add_network_tree(loads, rail, 1 / real(m));
    const double inside = m > 1 ? 2 : 0;
    loads.end_phase(inside + 1, inside * loads.intra_latency() + loads.inter_latency());
}

}  // namespace orrery::sim::algorithms
