// The phases of the algorithms whose transfers are too many to list: what each pair of ranks exchanges, in sum.
#include <cmath>
#include <limits>
#include <optional>
#include <set>

#include "sim/network/algorithms/closed_form.h"
#include "sim/network/algorithms/link_loads_builder.h"
#include "sim/network/algorithms/stages.h"

namespace orrery::sim::algorithms {
namespace {

using program::CommKind;
using topologies::LinkId;
using topologies::LinkKind;

double real(std::int64_t value) {
    return static_cast<double>(value);
}

double passes(CommKind kind) {
    return kind == CommKind::all_reduce ? 2 : 1;
}

/// Numbers in [0, n) with the binary digit `digit` set.
std::int64_t with_digit(std::int64_t n, std::int64_t digit) {
    return n / (2 * digit) * digit + std::max<std::int64_t>(n % (2 * digit) - digit, 0);
}

}  // namespace

void LinkLoads::Builder::add_ring(CommKind kind) {
    const double steps = passes(kind) * real(group_.ranks() - 1);
    add_ring_channels(steps / real(group_.ranks()));
    end_phase(steps, steps * weighted_latency_ / latency_weight_);
}

/// Every ring edge carries its channel's part. Inside a node all channels go around the same way, each without the edge
/// from the member at which it leaves to that at which it entered.
void LinkLoads::Builder::add_ring_channels(double coefficient) {
    const std::int64_t channels = ring_channels(group_);
    const std::int64_t k = group_.nodes();
    const double each = coefficient / real(channels);
    std::vector<std::vector<std::int64_t>> entries;
    for (std::int64_t channel = 0; channel < channels; ++channel) entries.push_back(ring_entries(group_, channel));
    std::vector<std::int64_t> used;
    for (std::int64_t node = 0; node < k; ++node) {
        const std::int64_t m = group_.members_of(node);
        const std::int64_t first = group_.first_of(node);
        const std::int64_t next = node + 1 < k ? node + 1 : 0;
        const std::int64_t direction = ring_direction(node);
        used.assign(static_cast<std::size_t>(m), channels);
        for (const std::vector<std::int64_t>& entry : entries) {
            if (k == 1) break;  // the ring closes inside the node
            const std::int64_t exit = (entry[static_cast<std::size_t>(node)] - direction + m) % m;
            --used[static_cast<std::size_t>(exit)];
            send(first + exit, group_.first_of(next) + entry[static_cast<std::size_t>(next)], each);
        }
        for (std::int64_t j = 0; m > 1 && j < m; ++j) {
            const std::int64_t rings = used[static_cast<std::size_t>(j)];
            if (rings > 0) send(first + j, first + (j + direction + m) % m, each * real(rings));
        }
    }
}

void LinkLoads::Builder::add_neighbor_exchange() {
    const std::int64_t n = group_.ranks();
    const std::int64_t rounds = n / 2;
    for (const std::int64_t side : {1, -1}) {
        // Rounds of even number exchange inside pairs (2q, 2q + 1), the first of them a single slice.
        const std::int64_t here = side > 0 ? (rounds + 1) / 2 : rounds / 2;
        if (here == 0) continue;
        const double slices = real(2 * here - (side > 0 ? 1 : 0));
        for (std::int64_t rank = 0; rank < n; ++rank) {
            send(rank, (rank + (rank % 2 == 0 ? side : -side) + n) % n, slices / real(n));
        }
        end_phase(real(here), real(here) * longest_latency());
    }
}

void LinkLoads::Builder::add_chain(CommKind kind, std::int64_t chunks) {
    const std::int64_t n = group_.ranks();
    double along = 0;
    for (std::int64_t rank = 0; rank + 1 < n; ++rank) {
        const bool reduces = kind == CommKind::reduce;
        const double before = weighted_latency_;
        send(reduces ? rank + 1 : rank, reduces ? rank : rank + 1, 1);
        along += weighted_latency_ - before;
    }
    const double rounds = real(n - 2 + chunks);
    end_phase(rounds, along + real(chunks - 1) * longest_latency(), rounds / real(chunks));
}

void LinkLoads::Builder::add_binary_tree(CommKind kind, std::int64_t chunks) {
    const std::int64_t n = group_.ranks();
    for (std::int64_t rank = 1; rank < n; ++rank) {
        const std::int64_t parent = (rank - 1) / 2;
        kind == CommKind::reduce ? send(rank, parent, 1) : send(parent, rank, 1);
    }
    // What the closed form takes beyond the port of a rank with two children.
    const ClosedForm form = closed_form(Algorithm::binary_tree, kind, Group::flat(n), chunks);
    end_phase(form.steps, form.steps * longest_latency(), form.factor / (n == 2 ? 1 : 2));
}

void LinkLoads::Builder::add_double_tree(CommKind kind) {
    const bool has_root = kind != CommKind::all_reduce;
    const std::int64_t channels = has_root ? 1 : group_.fewest_members();
    const double up = kind == CommKind::broadcast ? 0 : 1 / real(channels);
    const double down = kind == CommKind::reduce ? 0 : 1 / real(channels);
    add_chains(channels, up, down);
    add_node_trees(channels, has_root, up, down);
    const double chain = passes(kind) * real(group_.most_members() - 1);
    const double levels = passes(kind) * real(log2_ceil(group_.nodes()));
    end_phase(chain + levels, chain * intra_latency_ + levels * inter_latency_);
}

/// The chains inside the nodes, which start at member `channel` in channel `channel`: neighbours are the same in every
/// channel but for the end of the chain.
void LinkLoads::Builder::add_chains(std::int64_t channels, double up, double down) {
    for (std::int64_t node = 0; node < group_.nodes(); ++node) {
        const std::int64_t first = group_.first_of(node);
        const std::int64_t m = group_.members_of(node);
        for (std::int64_t j = 0; m > 1 && j < m; ++j) {
            const std::int64_t next = (j + 1) % m;
            // Channels whose chain starts at `next` end at j.
            const std::int64_t ending = channels > next ? (channels - next + m - 1) / m : 0;
            const double used = real(channels - ending);
            if (up * used > 0) send(first + next, first + j, up * used);
            if (down * used > 0) send(first + j, first + next, down * used);
        }
    }
}

void LinkLoads::Builder::add_node_trees(std::int64_t rails, bool has_root, double up, double down) {
    for (std::int64_t node = 0; node < group_.nodes(); ++node) {
        for (const std::int64_t tree : {0, 1}) {
            const std::int64_t parent = double_tree_place(node, group_.nodes(), tree, has_root ? 0 : -1).parent;
            if (parent < 0) continue;
            for (std::int64_t rail = 0; rail < rails; ++rail) {
                const std::int64_t here = group_.first_of(node) + rail % group_.members_of(node);
                const std::int64_t there = group_.first_of(parent) + rail % group_.members_of(parent);
                if (up > 0) send(here, there, up / 2);
                if (down > 0) send(there, here, down / 2);
            }
        }
    }
}

/// Bruck and PAT: in each step all ranks send equally much equally far.
void LinkLoads::Builder::add_shifts(Algorithm algorithm, CommKind kind, std::int64_t chunks) {
    const std::int64_t n = group_.ranks();
    for (std::int64_t distance = 1; distance < n; distance *= 2) {
        const bool gathers_by_bruck = algorithm == Algorithm::bruck && kind == CommKind::all_gather;
        const std::int64_t slices = gathers_by_bruck ? std::min(distance, n - distance) : with_digit(n, distance);
        // PAT's distances fall in an all-gather, which changes nothing in the sum.
        const bool is_pat = algorithm == Algorithm::pat;
        const bool downward = gathers_by_bruck || (is_pat && kind == CommKind::reduce_scatter);
        const std::int64_t own = is_pat ? (n - distance + 2 * distance - 1) / (2 * distance) : slices;
        for (std::int64_t rank = 0; rank < n; ++rank) {
            send(rank, (rank + (downward ? n - distance : distance)) % n, real(own) / real(n));
        }
        end_phase(real(chunks), real(chunks) * longest_latency());
    }
}

void LinkLoads::Builder::add_hierarchical(CommKind kind) {
    const std::int64_t k = group_.nodes();
    const std::int64_t m = group_.most_members();
    const double inside = real(m - 1) / real(m);
    const auto add_inside = [&](double times) {
        for (std::int64_t rank = 0; m > 1 && rank < group_.ranks(); ++rank) {
            send(rank, rank - rank % m + (rank + 1) % m, times * inside);
        }
        if (m > 1) end_phase(times * real(m - 1), times * real(m - 1) * longest_latency());
    };
    const double times = passes(kind);
    if (kind != CommKind::all_gather) add_inside(1);
    if (k > 1) {
        add_rail_rings(times * real(k - 1) / real(k) / real(m));
        end_phase(times * real(k - 1), times * real(k - 1) * weighted_latency_ / latency_weight_);
    }
    if (kind != CommKind::reduce_scatter) add_inside(1);
}

void LinkLoads::Builder::add_rail_rings(double coefficient) {
    const std::int64_t m = group_.most_members();
    for (std::int64_t rank = 0; rank < group_.ranks(); ++rank) send(rank, (rank + m) % group_.ranks(), coefficient);
}

void LinkLoads::Builder::add_direct(CommKind kind) {
    const std::int64_t n = group_.ranks();
    switch (kind) {
        case CommKind::all_reduce:
            add_all_pairs(1);
            return add_all_pairs(1);
        case CommKind::all_gather:
        case CommKind::reduce_scatter:
        case CommKind::all_to_all:
            return add_all_pairs(1);
        case CommKind::broadcast:
        case CommKind::scatter:
            for (std::int64_t rank = 1; rank < n; ++rank) send(0, rank, kind == CommKind::scatter ? 1 / real(n) : 1);
            break;
        case CommKind::reduce:
        case CommKind::gather:
            for (std::int64_t rank = 1; rank < n; ++rank) send(rank, 0, kind == CommKind::gather ? 1 / real(n) : 1);
            break;
        case CommKind::exchange:
            for (std::int64_t rank = 0; rank < n; ++rank) send(rank, (rank + 1) % n, 1);
            break;
        case CommKind::send:
        case CommKind::recv:
            send(0, 1, 1);
            break;
    }
    end_phase(1, longest_latency());
}

void LinkLoads::Builder::add_all_pairs(double steps) {
    const std::int64_t n = group_.ranks();
    if (n > kAllPairs) {
        add_sampled_pairs();
    } else {
        for (std::int64_t from = 0; from < n; ++from) {
            for (std::int64_t to = 0; to < n; ++to) {
                if (to != from) send(from, to, 1 / real(n));
            }
        }
    }
    end_phase(steps, steps * longest_latency());
}

/// Inside the nodes all pairs; between them shifts by distances that a low-discrepancy sequence spreads over the group
/// (and over the rails), each of which every device sends and receives once.
void LinkLoads::Builder::add_sampled_pairs() {
    constexpr std::int64_t kRoutes = std::int64_t{1} << 18;
    constexpr std::int64_t kFewestShifts = 8;
    constexpr double kGoldenRatio = 0.6180339887498949;
    const std::int64_t n = group_.ranks();
    const std::int64_t most = group_.most_members();
    for (std::int64_t from = 0; from < n; ++from) {
        const std::int64_t node = group_.node_of(from);
        for (std::int64_t to = group_.first_of(node); to < group_.first_of(node + 1); ++to) {
            if (to != from) send(from, to, 1 / real(n));
        }
    }
    // A shift by at least `most` and at most n - most leaves the node.
    const std::int64_t range = n - 2 * most + 1;
    if (range <= 0) {
        for (std::int64_t from = 0; from < n; ++from) {
            for (std::int64_t to = 0; to < n; ++to) {
                if (group_.node_of(from) != group_.node_of(to)) send(from, to, 1 / real(n));
            }
        }
        return;
    }
    const std::int64_t shifts = std::clamp(kRoutes / n, kFewestShifts, range);
    for (std::int64_t i = 0; i < shifts; ++i) {
        const double position = std::fmod(real(i + 1) * kGoldenRatio, 1.0);
        const std::int64_t shift = most + std::min(range - 1, static_cast<std::int64_t>(position * real(range)));
        for (std::int64_t from = 0; from < n; ++from) {
            const double leaving = real(n - group_.members_of(group_.node_of(from))) / real(n);
            send(from, (from + shift) % n, leaving / real(shifts));
        }
    }
}

void LinkLoads::Builder::add_nvls(CommKind kind) {
    const std::int64_t m = group_.most_members();
    const double own = 1 / real(m);
    const double up = (kind == CommKind::all_gather ? 0 : 1) + (kind == CommKind::reduce_scatter ? 0 : own);
    const double down = (kind == CommKind::all_gather ? 0 : own) + (kind == CommKind::reduce_scatter ? 0 : 1);
    for (std::int64_t rank = 0; m > 1 && rank < group_.ranks(); ++rank) {
        const std::int64_t peer = rank - rank % m + (rank + 1) % m;
        cluster_.find_route(device(rank), device(peer), route_);
        for (const topologies::Route::Part& part : route_.parts) {
            const topologies::Link& link = cluster_.link(part.link);
            const bool leaves = link.from == static_cast<topologies::VertexId>(device(rank));
            const bool through_switch =
                cluster_.vertex(leaves ? link.to : link.from).kind == topologies::VertexKind::node_switch;
            if (!through_switch || route_.hops != 2) {
                throw InputError("cluster " + cluster_.spec().name +
                                 ": nvls needs devices that meet in switches of their node");
            }
            // Up from this rank, and down to its neighbour.
            add_part(part, leaves ? up : down);
        }
        note_latency(rank, peer, route_.latency, 1);
    }
    if (m == 1) {
        throw InputError("cluster " + cluster_.spec().name + ": nvls needs more than one member on a node");
    }
    const double levels = 2 * real(log2_ceil(group_.nodes()));
    if (levels > 0) add_node_trees(m, false, own, own);
    end_phase(passes(kind) + levels, passes(kind) * intra_latency_ + levels * inter_latency_);
}

void LinkLoads::Builder::add_collnet() {
    const std::int64_t m = group_.most_members();
    for (std::int64_t rank = 0; rank < group_.ranks(); ++rank) {
        for (std::int64_t other = rank - rank % m; other < rank - rank % m + m; ++other) {
            if (other != rank) send(rank, other, 2 / real(m));
        }
    }
    for (std::int64_t rail = 0; rail < m; ++rail) add_network_tree(rail, 1 / real(m));
    const double inside = m > 1 ? 2 : 0;
    end_phase(inside + 1, inside * intra_latency_ + inter_latency_);
}

/// A reduction towards the switch of the first node's NIC and a multicast from there: every NIC sends to its switch and
/// receives from it once, and every other switch with such NICs sends to that of the first and receives from it once;
/// no link carries anything twice.
void LinkLoads::Builder::add_network_tree(std::int64_t rail, double coefficient) {
    const std::int64_t m = group_.most_members();
    std::set<topologies::VertexId> joined;
    std::set<LinkId> trunks;  // where streams meet in a switch they go on as one
    for (std::int64_t node = 0; node < group_.nodes(); ++node) {
        const std::int64_t rank = node * m + rail;
        const std::int64_t peer = node == 0 ? m + rail : rail;
        cluster_.find_route(device(rank), device(peer), route_);
        cluster_.find_route(device(peer), device(rank), way_back_);
        const std::size_t up = route_.nic_up, down = way_back_.nic_down;
        ORRERY_CHECK(up < route_.parts.size(), "a route between nodes without a NIC");
        for (std::size_t i = 0; i <= up; ++i) add_part(route_.parts[i], coefficient);
        for (std::size_t i = down; i < way_back_.parts.size(); ++i) add_part(way_back_.parts[i], coefficient);
        note_latency(rank, peer, route_.latency, coefficient);
        if (!joined.insert(cluster_.link(route_.parts[up].link).to).second || node == 0) continue;
        const auto join = [&](const topologies::Route& route) {
            for (std::size_t i = route.nic_up + 1; i < route.nic_down; ++i) {
                if (trunks.insert(route.parts[i].link).second) add_part(route.parts[i], coefficient);
            }
        };
        join(route_);
        join(way_back_);
    }
}

}  // namespace orrery::sim::algorithms
