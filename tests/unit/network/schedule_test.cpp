// Runs every schedule on symbolic data that records the ranks' contributions to each byte.
#include "tests/unit/network/schedules/schedule.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "core/error.h"
#include "sim/network/algorithms/algorithm.h"
#include "tests/unit/network/collective_kinds.h"

namespace orrery::sim::algorithms {
namespace {

using program::CommKind;

/// A set of ranks, one bit each; 0: no data.
using Contributions = std::uint64_t;
/// The contributions to each byte of the message at each party.
using Memory = std::vector<std::vector<Contributions>>;

std::int64_t space_of(const Collective& c, std::int64_t n) {
    if (!c.pair_bytes.empty()) {
        std::int64_t sum = 0;
        for (const std::int64_t bytes : c.pair_bytes) sum += bytes;
        return sum;
    }
    return c.kind == CommKind::all_to_all || c.kind == CommKind::exchange ? n * c.bytes : c.bytes;
}

/// The rank that holds a byte before the collective, and the rank that must hold it afterwards.
struct Holder {
    std::int64_t owner = -1;     // -1: every rank, each with its own contribution
    std::int64_t receiver = -1;  // -1: every rank
};

std::int64_t owner_of_part(std::int64_t at, Slice whole, std::int64_t n) {
    for (std::int64_t part = 0; part < n; ++part) {
        const Slice slice = part_of(whole, part, n);
        if (at >= slice.offset && at < slice.offset + slice.bytes) return part;
    }
    return -1;
}

Holder pair_holder(const Collective& c, std::int64_t n, std::int64_t at) {
    std::int64_t start = 0;
    for (std::size_t i = 0; i < c.pair_bytes.size(); start += c.pair_bytes[i++]) {
        if (at < start + c.pair_bytes[i]) {
            return {static_cast<std::int64_t>(i) / n, static_cast<std::int64_t>(i) % n};
        }
    }
    return {};
}

Holder holder_of(const Collective& c, std::int64_t n, std::int64_t at) {
    switch (c.kind) {
        case CommKind::all_reduce:
            return {-1, -1};
        case CommKind::reduce_scatter:
            return {-1, owner_of_part(at, {0, c.bytes}, n)};
        case CommKind::reduce:
            return {-1, c.root};
        case CommKind::all_gather:
            return {owner_of_part(at, {0, c.bytes}, n), -1};
        case CommKind::broadcast:
            return {c.root, -1};
        case CommKind::scatter:
            return {c.root, owner_of_part(at, {0, c.bytes}, n)};
        case CommKind::gather:
            return {owner_of_part(at, {0, c.bytes}, n), c.root};
        case CommKind::all_to_all:
            if (!c.pair_bytes.empty()) return pair_holder(c, n, at);
            return {at / c.bytes, owner_of_part(at, {at / c.bytes * c.bytes, c.bytes}, n)};
        case CommKind::exchange:
            return {at / c.bytes, (at / c.bytes + 1) % n};
        case CommKind::send:
        case CommKind::recv:
            break;
    }
    return {0, 1};
}

Memory before(const Collective& c, const Schedule& schedule) {
    Memory memory(static_cast<std::size_t>(schedule.parties()));
    const std::int64_t n = schedule.ranks();
    for (auto& bytes : memory) bytes.assign(static_cast<std::size_t>(space_of(c, n)), 0);
    for (std::size_t at = 0; at < memory[0].size(); ++at) {
        const std::int64_t owner = holder_of(c, n, static_cast<std::int64_t>(at)).owner;
        for (std::int64_t rank = 0; rank < n; ++rank) {
            if (owner < 0 || owner == rank) memory[static_cast<std::size_t>(rank)][at] = Contributions{1} << rank;
        }
    }
    return memory;
}

/// One message of the schedule's run.
struct Posted {
    Transfer transfer;
    std::int64_t round = 0;
};

using Data = std::vector<Contributions>;

Data read(const Transfer& t, const Memory& memory, const std::string& where) {
    const auto& bytes = memory.at(static_cast<std::size_t>(t.from));
    const auto first = bytes.begin() + t.slice.offset;
    Data data(first, first + t.slice.bytes);
    EXPECT_EQ(std::count(data.begin(), data.end(), 0U), 0)
        << where << ": " << t.from << " sends data that it does not have to " << t.to;
    return data;
}

void write(const Transfer& t, const Data& data, Memory& memory, const std::string& where) {
    for (std::size_t i = 0; i < data.size(); ++i) {
        Contributions& held =
            memory.at(static_cast<std::size_t>(t.to)).at(static_cast<std::size_t>(t.slice.offset) + i);
        if (t.reduces) {
            ASSERT_EQ(data[i] & held, 0U) << where << ": counted twice, " << t.from << " to " << t.to;
            held |= data[i];
        } else {
            held = data[i];
        }
    }
}

std::vector<Posted> all_transfers(const Schedule& schedule) {
    std::vector<Posted> posted;
    for (std::int64_t round = 0; round < schedule.rounds(); ++round) {
        for (Party party = 0; party < schedule.parties(); ++party) {
            schedule.sends(round, party, [&](const Transfer& t) {
                EXPECT_EQ(t.from, party);
                EXPECT_NE(t.to, party);
                posted.push_back({t, round});
            });
        }
    }
    return posted;
}

/// Runs the transfers of a round together: all data are read before any arrive, since only the order between rounds is
/// guaranteed.
void run_by_rounds(const std::vector<Posted>& posted, Memory& memory, const std::string& where) {
    for (std::size_t first = 0; first < posted.size();) {
        std::size_t last = first;
        std::vector<Data> data;
        for (; last < posted.size() && posted[last].round == posted[first].round; ++last) {
            data.push_back(read(posted[last].transfer, memory, where));
        }
        for (std::size_t i = first; i < last; ++i) {
            write(posted[i].transfer, data[i - first], memory, where);
            if (testing::Test::HasFailure()) return;
        }
        first = last;
    }
}

/// Runs the transfers in any order that the rules allow, the last ranks first where there is a choice, and checks that
/// all complete. Data that arrive in a round may be used from the next round on.
void run_by_order(std::vector<Posted> posted, Memory& memory, const std::string& where) {
    using Place = std::pair<Party, std::int64_t>;       // party and channel
    std::map<Place, std::multiset<std::int64_t>> open;  // rounds not yet done
    std::map<Place, std::vector<std::pair<Transfer, Data>>> arrived;
    for (const Posted& p : posted) {
        for (const Party party : {p.transfer.from, p.transfer.to}) open[{party, p.transfer.channel}].insert(p.round);
    }
    const auto is_next = [&](const Posted& p, Party party) {
        return *open[{party, p.transfer.channel}].begin() == p.round;
    };
    while (!posted.empty()) {
        const auto ready = std::find_if(posted.rbegin(), posted.rend(), [&](const Posted& p) {
            return is_next(p, p.transfer.from) && is_next(p, p.transfer.to);
        });
        ASSERT_NE(ready, posted.rend()) << where << ": deadlock with " << posted.size() << " transfers left";
        const Transfer t = ready->transfer;
        const std::int64_t round = ready->round;
        arrived[{t.to, t.channel}].emplace_back(t, read(t, memory, where));
        posted.erase(std::next(ready).base());
        for (const Party party : {t.from, t.to}) {
            const Place place{party, t.channel};
            open[place].erase(open[place].find(round));
            if (open[place].count(round) > 0) continue;
            for (const auto& [transfer, data] : arrived[place]) write(transfer, data, memory, where);
            arrived[place].clear();
        }
        if (testing::Test::HasFailure()) return;
    }
}

void expect_after(const Collective& c, std::int64_t n, const Memory& memory, const std::string& where) {
    const Contributions everybody = (Contributions{1} << n) - 1;
    for (std::size_t at = 0; at < memory[0].size(); ++at) {
        const Holder holder = holder_of(c, n, static_cast<std::int64_t>(at));
        const Contributions wanted = holder.owner < 0 ? everybody : Contributions{1} << holder.owner;
        for (std::int64_t rank = 0; rank < n; ++rank) {
            if (holder.receiver >= 0 && holder.receiver != rank) continue;
            ASSERT_EQ(memory[static_cast<std::size_t>(rank)][at], wanted)
                << where << ": byte " << at << " at rank " << rank;
        }
    }
}

std::string describe(Algorithm a, const Collective& c, const Group& group, std::int64_t chunks) {
    return std::string(name_of(a)) + " " + std::string(program::name_of(c.kind)) + " of " + std::to_string(c.bytes) +
           " bytes, " + std::to_string(group.nodes()) + " nodes, " + std::to_string(group.ranks()) + " ranks, root " +
           std::to_string(c.root) + ", " + std::to_string(chunks) + " chunks";
}

void check(Algorithm algorithm, const Collective& c, const Group& group, std::int64_t chunks) {
    const std::string where = describe(algorithm, c, group, chunks);
    const Schedule schedule = make_schedule(algorithm, c, group, chunks);
    const std::vector<Posted> posted = all_transfers(schedule);
    Memory memory = before(c, schedule);
    run_by_rounds(posted, memory, where);
    if (testing::Test::HasFailure()) return;
    expect_after(c, group.ranks(), memory, where);
    if (testing::Test::HasFailure() || posted.size() > 2000) return;
    memory = before(c, schedule);
    run_by_order(posted, memory, where);
    if (testing::Test::HasFailure()) return;
    expect_after(c, group.ranks(), memory, where + ", out of step");
}

bool has_root(CommKind kind) {
    return kind == CommKind::broadcast || kind == CommKind::reduce || kind == CommKind::scatter ||
           kind == CommKind::gather;
}

void check_all_kinds(Algorithm algorithm, const Group& group, const std::vector<std::int64_t>& sizes) {
    const std::int64_t n = group.ranks();
    for (const CommKind kind : kKinds) {
        if (!why_not(algorithm, kind, group).empty()) continue;
        for (const std::int64_t bytes : sizes) {
            for (const std::int64_t root : {std::int64_t{0}, n / 2, n - 1}) {
                if (root > 0 && !has_root(kind)) continue;
                for (const std::int64_t chunks : {1, 3}) {
                    if (chunks > 1 && !row_of(algorithm).manner.chunks) continue;
                    check(algorithm, {kind, bytes, root, {}}, group, chunks);
                    if (testing::Test::HasFailure()) return;
                }
            }
        }
    }
}

class ScheduleOf : public testing::TestWithParam<Algorithm> {};

TEST_P(ScheduleOf, DeliversItsCollectivesOnAFlatGroup) {
    for (std::int64_t n = 1; n <= 33; ++n) {
        check_all_kinds(GetParam(), Group::flat(n), {0, 1, 37, 2 * n});
        if (HasFailure()) return;
    }
}

TEST_P(ScheduleOf, DeliversItsCollectivesOnNodes) {
    for (const auto& [nodes, members] : std::vector<std::pair<std::int64_t, std::int64_t>>{
             {1, 2}, {1, 3}, {1, 8}, {2, 1}, {2, 2}, {2, 4}, {3, 2}, {3, 3}, {4, 4}, {5, 3}, {6, 2}, {4, 8}}) {
        check_all_kinds(GetParam(), Group::even(nodes, members), {0, 1, 41});
        if (HasFailure()) return;
    }
}

TEST_P(ScheduleOf, DeliversItsCollectivesOnUnequalNodes) {
    const topologies::Cluster cluster(topologies::load_cluster("dgx-h100", 32));
    for (const std::vector<std::int64_t>& devices :
         {std::vector<std::int64_t>{0, 1, 2, 8}, {3, 8, 9, 10, 11, 12, 24}, {0, 5, 9, 10, 16, 26, 27, 31}}) {
        check_all_kinds(GetParam(), Group::of(cluster, devices), {0, 1, 41});
        if (HasFailure()) return;
    }
}

INSTANTIATE_TEST_SUITE_P(All, ScheduleOf, testing::ValuesIn(all_algorithms()),
                         [](const auto& algorithm) { return std::string(name_of(algorithm.param)); });

TEST(Schedule, AllToAllOfUnequalParts) {
    for (const std::int64_t n : {2, 3, 7}) {
        Collective c{CommKind::all_to_all, 0, 0, {}};
        for (std::int64_t i = 0; i < n * n; ++i) c.pair_bytes.push_back(i * 5 % 4);
        check(Algorithm::direct, c, Group::flat(n), 1);
        check(Algorithm::pairwise, c, Group::flat(n), 1);
    }
}

TEST(Schedule, RefusesUnsupportedCollectives) {
    const Group group = Group::flat(3);
    EXPECT_THROW((void)make_schedule(Algorithm::ring, {CommKind::broadcast, 1, 0, {}}, group), BugError);
    EXPECT_THROW((void)make_schedule(Algorithm::neighbor_exchange, {CommKind::all_gather, 1, 0, {}}, group), BugError);
    EXPECT_THROW((void)make_schedule(Algorithm::ring, {CommKind::all_reduce, 1, 0, {}}, group, 2), BugError);
    EXPECT_THROW((void)make_schedule(Algorithm::chain, {CommKind::broadcast, 1, 3, {}}, group), BugError);
    EXPECT_EQ(why_not(Algorithm::collnet, CommKind::all_reduce, Group::even(1, 4)), "collnet needs at least two nodes");
}

TEST(Schedule, AlgorithmNamesRoundTrip) {
    for (const Algorithm algorithm : all_algorithms()) EXPECT_EQ(algorithm_named(name_of(algorithm)), algorithm);
    for (const Row& row : kTable) {
        if (row.nccl.name.empty()) continue;
        EXPECT_EQ(nccl_algorithm_named(nccl_name_of(row.algorithm)), row.algorithm);
    }
    EXPECT_EQ(nccl_algorithm_named("tree"), Algorithm::double_binary_tree);
    EXPECT_EQ(nccl_name_of(Algorithm::chain), "chain");
    for (const char* name : {"", "auto", "double_binary_tree", "bruck"}) {
        EXPECT_FALSE(nccl_algorithm_named(name).has_value()) << name;
    }
    EXPECT_FALSE(algorithm_named("rings").has_value());
}

TEST(Schedule, RingsOfEvenNodesCrossNodesOnTheSameRail) {
    const Group group = Group::even(4, 4);
    std::map<std::int64_t, int> out, in;
    for (std::int64_t channel = 0; channel < ring_channels(group); ++channel) {
        const std::vector<std::int64_t> order = ring_order(group, channel);
        std::vector<std::int64_t> sorted = order;
        std::sort(sorted.begin(), sorted.end());
        for (std::int64_t rank = 0; rank < 16; ++rank) EXPECT_EQ(sorted[static_cast<std::size_t>(rank)], rank);
        for (std::size_t p = 0; p < order.size(); ++p) {
            const std::int64_t from = order[p], to = order[(p + 1) % order.size()];
            if (group.node_of(from) == group.node_of(to)) continue;
            EXPECT_EQ(group.rail_of(from), group.rail_of(to));
            ++out[from];
            ++in[to];
        }
    }
    for (std::int64_t rank = 0; rank < 16; ++rank) {
        EXPECT_EQ(out[rank], 1) << rank;
        EXPECT_EQ(in[rank], 1) << rank;
    }
}

TEST(Schedule, NodesOfDoubleTreesHaveTwoChildrenInAtMostOneTree) {
    for (std::int64_t n = 1; n <= 70; ++n) {
        for (const std::int64_t root : {std::int64_t{-1}, n - 1}) {
            std::vector<int> interior(static_cast<std::size_t>(n), 0);
            for (const std::int64_t tree : {0, 1}) {
                int roots = 0;
                for (std::int64_t node = 0; node < n; ++node) {
                    const TreePlace place = double_tree_place(node, n, tree, root);
                    if (place.parent < 0) {
                        ++roots;
                        EXPECT_TRUE(root < 0 || node == root);
                    }
                    EXPECT_LE(place.depth,
                              n == 1 ? 0 : static_cast<std::int64_t>(std::bit_width(std::uint64_t(n - 1))));
                    int children = 0;
                    for (const std::int64_t child : place.children) {
                        if (child < 0) continue;
                        ++children;
                        const TreePlace below = double_tree_place(child, n, tree, root);
                        EXPECT_EQ(below.parent, node) << n << " " << tree << " " << node;
                        EXPECT_EQ(below.depth, place.depth + 1);
                    }
                    if (children == 2) ++interior[static_cast<std::size_t>(node)];
                }
                EXPECT_EQ(roots, 1) << n;
            }
            for (const int trees : interior) EXPECT_LE(trees, 1) << n;
        }
    }
}

}  // namespace
}  // namespace orrery::sim::algorithms
