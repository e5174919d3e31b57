// Compares closed forms with the schedules' transfers, run as flows on an idle uniform network.
#include "tests/unit/network/closed_form.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <string>
#include <vector>

#include "core/error.h"
#include "sim/network/flow_engine.h"
#include "tests/unit/network/collective_kinds.h"
#include "tests/unit/network/schedules/schedule.h"

namespace orrery::sim::algorithms {
namespace {

using program::CommKind;

constexpr double kBytesPerSecond = 1e9;
constexpr std::int64_t kStepPs = 6'000'000;
/// Large enough that parts with one byte more make no difference.
constexpr std::int64_t kBytes = 3'000'000'000;
constexpr double kTolerance = 1e-6;

/// Every rank has one port out and one port in; switches have unlimited bandwidth.
class UniformNetwork {
  public:
    explicit UniformNetwork(std::int64_t ranks) : ranks_(ranks), engine_(links(ranks)) {}

    std::int32_t path(Party from, Party to) {
        std::vector<PathLink> ports;
        if (from < ranks_) ports.push_back({static_cast<std::int32_t>(2 * from), 1});
        if (to < ranks_) ports.push_back({static_cast<std::int32_t>(2 * to + 1), 1});
        const auto [found, is_new] = paths_.try_emplace({from, to}, 0);
        if (is_new) found->second = engine_.add_path(ports);
        return found->second;
    }
    FlowEngine& engine() { return engine_; }
    [[nodiscard]] double alpha_ps(const Transfer& t) const {
        return (t.from < ranks_ && t.to < ranks_ ? 1.0 : 0.5) * static_cast<double>(kStepPs);
    }

  private:
    static std::vector<FlowLink> links(std::int64_t ranks) {
        std::vector<FlowLink> result;
        for (std::int64_t rank = 0; rank < ranks; ++rank) {
            result.push_back({"out of " + std::to_string(rank), kBytesPerSecond});
            result.push_back({"into " + std::to_string(rank), kBytesPerSecond});
        }
        return result;
    }
    std::int64_t ranks_ = 0;
    FlowEngine engine_;
    std::map<std::pair<Party, Party>, std::int32_t> paths_;
};

/// Round by round: all transfers of a round start together when the last one of the round before has ended.
double seconds_by_rounds(const Schedule& schedule) {
    UniformNetwork network(schedule.ranks());
    std::int64_t end = 0;
    for (std::int64_t round = 0; round < schedule.rounds(); ++round) {
        const std::int64_t start = end;
        // Several slices between two ranks in one round are one message.
        std::map<std::pair<Party, Party>, std::pair<std::int64_t, double>> messages;
        for (Party party = 0; party < schedule.parties(); ++party) {
            schedule.sends(round, party, [&](const Transfer& t) {
                auto& [bytes, alpha] = messages[{t.from, t.to}];
                bytes += t.slice.bytes;
                alpha = network.alpha_ps(t);
            });
        }
        for (const auto& [ends, message] : messages) {
            network.engine().start({.path = network.path(ends.first, ends.second),
                                    .bytes = message.first,
                                    .latency_ps = static_cast<std::int64_t>(message.second)},
                                   start);
        }
        network.engine().run([&](const FlowEnd& ended) { end = std::max(end, ended.end_ps); });
    }
    return static_cast<double>(end) * 1e-12;
}

/// All rounds at once: one flow with the load of every port, after the latency of all rounds.
double seconds_streamed(const Schedule& schedule) {
    UniformNetwork network(schedule.ranks());
    std::map<std::int32_t, double> carried;
    double latency_ps = 0;
    for (std::int64_t round = 0; round < schedule.rounds(); ++round) {
        double alpha_ps = 0;
        for (Party party = 0; party < schedule.parties(); ++party) {
            schedule.sends(round, party, [&](const Transfer& t) {
                alpha_ps = network.alpha_ps(t);
                const auto share = static_cast<double>(t.slice.bytes) / static_cast<double>(kBytes);
                if (t.from < schedule.ranks()) carried[static_cast<std::int32_t>(2 * t.from)] += share;
                if (t.to < schedule.ranks()) carried[static_cast<std::int32_t>(2 * t.to + 1)] += share;
            });
        }
        latency_ps += alpha_ps;
    }
    std::vector<PathLink> ports;
    for (const auto& [link, coefficient] : carried) ports.push_back({link, coefficient});
    const std::int32_t path = network.engine().add_path(ports);
    network.engine().start({.path = path, .bytes = kBytes, .latency_ps = static_cast<std::int64_t>(latency_ps)}, 0);
    std::int64_t end = 0;
    network.engine().run([&](const FlowEnd& ended) { end = ended.end_ps; });
    return static_cast<double>(end) * 1e-12;
}

void expect_time_of_transfers(Algorithm algorithm, CommKind kind, const Group& group, std::int64_t chunks) {
    SCOPED_TRACE(std::string(name_of(algorithm)) + " " + std::string(program::name_of(kind)) + ", " +
                 std::to_string(group.nodes()) + " nodes, " + std::to_string(group.ranks()) + " ranks, " +
                 std::to_string(chunks) + " chunks");
    const Schedule schedule = make_schedule(algorithm, {kind, kBytes, 0, {}}, group, chunks);
    const double executed =
        row_of(algorithm).manner.streamed ? seconds_streamed(schedule) : seconds_by_rounds(schedule);
    const double expected =
        closed_form(algorithm, kind, group, chunks)
            .seconds(static_cast<double>(kBytes), static_cast<double>(kStepPs) * 1e-12, 1 / kBytesPerSecond);
    EXPECT_NEAR(executed, expected, kTolerance * expected);
}

void expect_all_times(Algorithm algorithm, const Group& group) {
    for (const CommKind kind : kKinds) {
        if (!why_not(algorithm, kind, group).empty()) continue;
        for (const std::int64_t chunks : {1, 4}) {
            if (chunks == 1 || (row_of(algorithm).manner.chunks && !row_of(algorithm).manner.streamed)) {
                expect_time_of_transfers(algorithm, kind, group, chunks);
            }
        }
    }
}

class ClosedFormOf : public testing::TestWithParam<Algorithm> {};

TEST_P(ClosedFormOf, EqualsTheTimeOfItsTransfersOnAFlatGroup) {
    for (std::int64_t n = 1; n <= 33; ++n) expect_all_times(GetParam(), Group::flat(n));
}

TEST_P(ClosedFormOf, EqualsTheTimeOfItsTransfersOnNodes) {
    for (const auto& [nodes, members] : std::vector<std::pair<std::int64_t, std::int64_t>>{
             {1, 2}, {1, 3}, {1, 8}, {2, 1}, {2, 2}, {2, 4}, {3, 2}, {3, 3}, {4, 4}, {5, 3}, {6, 2}, {4, 8}, {9, 2}}) {
        expect_all_times(GetParam(), Group::even(nodes, members));
    }
}

INSTANTIATE_TEST_SUITE_P(All, ClosedFormOf, testing::ValuesIn(all_algorithms()),
                         [](const auto& algorithm) { return std::string(name_of(algorithm.param)); });

/// Bytes that each party sends and receives.
std::vector<std::pair<std::int64_t, std::int64_t>> volumes(const Schedule& schedule) {
    std::vector<std::pair<std::int64_t, std::int64_t>> result(static_cast<std::size_t>(schedule.parties()));
    for (std::int64_t round = 0; round < schedule.rounds(); ++round) {
        for (Party party = 0; party < schedule.parties(); ++party) {
            schedule.sends(round, party, [&](const Transfer& t) {
                result[static_cast<std::size_t>(t.from)].first += t.slice.bytes;
                result[static_cast<std::size_t>(t.to)].second += t.slice.bytes;
            });
        }
    }
    return result;
}

TEST(Volumes, BandwidthOptimalAlgorithmsMoveTheMinimum) {
    struct Case {
        Algorithm algorithm;
        CommKind kind;
        std::int64_t passes;
    };
    for (const Case& c : std::vector<Case>{{Algorithm::ring, CommKind::all_reduce, 2},
                                           {Algorithm::ring, CommKind::all_gather, 1},
                                           {Algorithm::ring, CommKind::reduce_scatter, 1},
                                           {Algorithm::hierarchical, CommKind::all_reduce, 2},
                                           {Algorithm::hierarchical, CommKind::all_gather, 1},
                                           {Algorithm::direct, CommKind::all_reduce, 2},
                                           {Algorithm::direct, CommKind::all_to_all, 1},
                                           {Algorithm::pairwise, CommKind::all_to_all, 1},
                                           {Algorithm::bcube, CommKind::all_reduce, 2},
                                           {Algorithm::bruck, CommKind::all_gather, 1},
                                           {Algorithm::pat, CommKind::all_gather, 1},
                                           {Algorithm::pat, CommKind::reduce_scatter, 1},
                                           {Algorithm::halving_doubling, CommKind::all_reduce, 2}}) {
        for (const Group& group : {Group::even(2, 4), Group::even(4, 4), Group::flat(32), Group::flat(2)}) {
            const std::int64_t n = group.ranks();
            const std::int64_t bytes = n * n * 12;
            for (const auto& [sent, received] : volumes(make_schedule(c.algorithm, {c.kind, bytes, 0, {}}, group))) {
                EXPECT_EQ(sent, c.passes * (n - 1) * bytes / n) << name_of(c.algorithm) << " " << n;
                EXPECT_EQ(received, sent) << name_of(c.algorithm) << " " << n;
            }
        }
    }
}

TEST(ClosedForm, AgreesWithHandComputedExamples) {
    // Ring all-reduce of 8: 14 steps, 14/8 of the message. 1 MB at 1 GB/s with 2 us a step: 28 us + 1.75 ms.
    const ClosedForm ring = closed_form(Algorithm::ring, CommKind::all_reduce, Group::flat(8));
    EXPECT_DOUBLE_EQ(ring.seconds(1e6, 2e-6, 1e-9), 28e-6 + 1.75e-3);
    // Four nodes of 8 with double trees: 7 links along the chain and 2 levels, up and down; (14 + 2) / 8.
    const ClosedForm tree = closed_form(Algorithm::double_binary_tree, CommKind::all_reduce, Group::even(4, 8));
    EXPECT_EQ(tree.steps, 18);
    EXPECT_EQ(tree.factor, 2);
    EXPECT_EQ(closed_form(Algorithm::nvls, CommKind::all_reduce, Group::even(1, 8)).factor, 1.125);
    EXPECT_EQ(closed_form(Algorithm::bruck, CommKind::all_to_all, Group::flat(8)).factor, 12.0 / 8);
    EXPECT_EQ(closed_form(Algorithm::bcube, CommKind::all_reduce, Group::flat(12)).steps, 6);
    EXPECT_EQ(closed_form(Algorithm::ring, CommKind::all_reduce, Group::flat(1)).steps, 0);
    EXPECT_THROW((void)closed_form(Algorithm::ring, CommKind::broadcast, Group::flat(8)), BugError);
}

}  // namespace
}  // namespace orrery::sim::algorithms
