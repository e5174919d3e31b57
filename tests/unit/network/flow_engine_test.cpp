// The flow engine against closed forms and against a reference engine.
#include "sim/network/flow_engine.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <string>
#include <vector>

#include "core/error.h"
#include "core/random.h"
#include "tests/unit/network/reference_flow_engine.h"

namespace orrery::sim {
namespace {

constexpr std::int64_t kSecond = 1'000'000'000'000;
constexpr double kGb = 1e9;

using Ends = std::vector<std::pair<std::int64_t, std::int64_t>>;  // tag, end

std::vector<FlowLink> links_of(const std::vector<double>& gb_per_s) {
    std::vector<FlowLink> links;
    for (const double bandwidth : gb_per_s) {
        std::string name = "l";
        name += std::to_string(links.size());
        links.push_back({name, bandwidth * kGb});
    }
    return links;
}

std::int32_t plain_path(FlowEngine& engine, const std::vector<std::int32_t>& links) {
    std::vector<PathLink> path;
    path.reserve(links.size());
    for (const std::int32_t link : links) path.push_back({link, 1});
    return engine.add_path(path);
}

Ends run(FlowEngine& engine) {
    Ends ends;
    engine.run([&](const FlowEnd& end) { ends.emplace_back(end.tag, end.end_ps); });
    return ends;
}

std::string message_of(const std::function<void()>& action) {
    try {
        action();
    } catch (const InputError& error) {
        return error.what();
    }
    return "no error";
}

TEST(FlowEngine, OneFlowTakesLatencyAndBytesOverBandwidth) {
    FlowEngine engine(links_of({10, 5}));
    const std::int32_t path = plain_path(engine, {0, 1});
    engine.start({.tag = 7, .path = path, .bytes = 1'000'000'000, .latency_ps = 3'000'000}, 500);
    // 1e9 bytes at 5e9 bytes/s: 0.2 s.
    EXPECT_EQ(run(engine), (Ends{{7, 500 + 3'000'000 + kSecond / 5}}));
    EXPECT_EQ(engine.now_ps(), 500 + 3'000'000 + kSecond / 5);
}

TEST(FlowEngine, EndsAreRoundedUpToThePicosecond) {
    FlowEngine engine(links_of({3}));
    engine.start({.tag = 1, .path = plain_path(engine, {0}), .bytes = 1}, 0);
    EXPECT_EQ(run(engine), (Ends{{1, 334}}));  // 333 1/3 ps
}

TEST(FlowEngine, FlowsShareALinkWhileBothAreInFlight) {
    FlowEngine engine(links_of({1}));
    const std::int32_t path = plain_path(engine, {0});
    engine.start({.tag = 1, .path = path, .bytes = 1'000'000'000}, 0);
    engine.start({.tag = 2, .path = path, .bytes = 500'000'000}, 0);
    // Half the bandwidth each until flow 2 ends at 1 s. Then flow 1 has 0.5 GB left and the whole link.
    EXPECT_EQ(run(engine), (Ends{{2, kSecond}, {1, 3 * kSecond / 2}}));
}

TEST(FlowEngine, AFlowUsesNoBandwidthDuringItsLatency) {
    FlowEngine engine(links_of({1}));
    const std::int32_t path = plain_path(engine, {0});
    engine.start({.tag = 1, .path = path, .bytes = 1'000'000'000}, 0);
    engine.start({.tag = 2, .path = path, .bytes = 1'000'000'000, .latency_ps = kSecond}, 0);
    EXPECT_EQ(run(engine), (Ends{{1, kSecond}, {2, 2 * kSecond}}));
}

TEST(FlowEngine, WeightsCapsAndCoefficientsLimitRates) {
    // Weights 3 and 1 on 4 GB/s: 3 and 1 GB/s.
    FlowEngine weights(links_of({4}));
    std::int32_t path = plain_path(weights, {0});
    weights.start({.tag = 1, .path = path, .bytes = 3'000'000'000, .weight = 3}, 0);
    weights.start({.tag = 2, .path = path, .bytes = 1'000'000'000}, 0);
    EXPECT_EQ(run(weights), (Ends{{1, kSecond}, {2, kSecond}}));

    // The first flow is capped at 1 of 4 GB/s; the other takes the rest.
    FlowEngine caps(links_of({4}));
    path = plain_path(caps, {0});
    caps.start({.tag = 1, .path = path, .bytes = 2'000'000'000, .most_bytes_per_s = kGb}, 0);
    caps.start({.tag = 2, .path = path, .bytes = 3'000'000'000}, 0);
    EXPECT_EQ(run(caps), (Ends{{2, kSecond}, {1, 2 * kSecond}}));

    // Without links: one flow with a cap, one without.
    FlowEngine nowhere(links_of({1}));
    path = plain_path(nowhere, {});
    nowhere.start({.tag = 1, .path = path, .bytes = 1'000'000'000, .most_bytes_per_s = 2e9}, 0);
    nowhere.start({.tag = 2, .path = path, .bytes = 1'000'000'000, .latency_ps = 5}, 0);
    EXPECT_EQ(run(nowhere), (Ends{{2, 5}, {1, kSecond / 2}}));

    // Each byte of the flow counts twice on link 0 and half on link 1.
    FlowEngine coefficients(links_of({4, 1.5}));
    path = coefficients.add_path(std::vector<PathLink>{{0, 2}, {1, 0.5}});
    coefficients.start({.tag = 1, .path = path, .bytes = 2'000'000'000}, 0);
    EXPECT_EQ(run(coefficients), (Ends{{1, kSecond}}));
}

TEST(FlowEngine, AnEmptyFlowTakesOnlyItsLatency) {
    FlowEngine engine(links_of({1}));
    engine.start({.tag = 1, .path = plain_path(engine, {0}), .bytes = 0, .latency_ps = 9}, 4);
    EXPECT_EQ(run(engine), (Ends{{1, 13}}));
    engine.run();  // nothing to run
    EXPECT_EQ(engine.now_ps(), 13);
}

TEST(FlowEngine, SimultaneousEndsAreReportedInTheOrderOfTheStarts) {
    FlowEngine engine(links_of({1, 1, 1}));
    std::int32_t link = 2;
    for (const std::int64_t tag : {5, 3, 9}) {
        engine.start({.tag = tag, .path = plain_path(engine, {link--}), .bytes = 1000}, 0);
    }
    EXPECT_EQ(run(engine), (Ends{{5, 1'000'000}, {3, 1'000'000}, {9, 1'000'000}}));
}

TEST(FlowEngine, TheEndHandlerMayStartFlows) {
    FlowEngine engine(links_of({1, 2}));
    const std::int32_t slow = plain_path(engine, {0});
    const std::int32_t fast = plain_path(engine, {1});
    engine.start({.tag = 1, .path = slow, .bytes = 1'000'000'000}, 0);
    engine.start({.tag = 2, .path = fast, .bytes = 1'000'000'000}, 0);
    int ended = 0;
    Ends ends;
    engine.run([&](const FlowEnd& end) {
        ends.emplace_back(end.tag, end.end_ps);
        if (++ended == 2) engine.start({.tag = 3, .path = fast, .bytes = 2'000'000'000}, engine.now_ps());
    });
    EXPECT_EQ(ends, (Ends{{2, kSecond / 2}, {1, kSecond}, {3, 2 * kSecond}}));
}

TEST(FlowEngine, ALinkMaySlowDownFailAndRecover) {
    FlowEngine engine(links_of({1}));
    engine.start({.tag = 1, .path = plain_path(engine, {0}), .bytes = 2'000'000'000}, 0);
    engine.set_bandwidth(0, kGb / 2, kSecond);  // 1 GB done
    engine.set_bandwidth(0, 0, 2 * kSecond);    // 1.5 GB done
    engine.set_bandwidth(0, 2 * kGb, 5 * kSecond);
    EXPECT_EQ(run(engine), (Ends{{1, 5 * kSecond + kSecond / 4}}));
}

TEST(FlowEngine, TheErrorForALinkThatStaysDownNamesFlowAndLink) {
    FlowEngine engine(links_of({1, 1}));
    engine.start({.tag = 41, .path = plain_path(engine, {0}), .bytes = 1'000'000'000}, 0);
    engine.start({.tag = 42, .path = plain_path(engine, {0, 1}), .bytes = 1'000'000'000}, 0);
    engine.set_bandwidth(1, 0, kSecond);
    Ends ends;
    const std::string message =
        message_of([&] { engine.run([&](const FlowEnd& end) { ends.emplace_back(end.tag, end.end_ps); }); });
    EXPECT_EQ(message, "flow 42 stands still from 1000000000000 ps on: link l1 has failed and is not restored");
    EXPECT_EQ(ends, (Ends{{41, 3 * kSecond / 2}}));  // the other flow continues, and faster
}

TEST(FlowEngine, ChangesAfterTheLastEndAreIgnored) {
    FlowEngine engine(links_of({1}));
    engine.start({.tag = 1, .path = plain_path(engine, {0}), .bytes = 1000}, 0);
    engine.set_bandwidth(0, 0, 100 * kSecond);
    EXPECT_EQ(run(engine), (Ends{{1, 1'000'000}}));
}

TEST(FlowEngine, ErrorsNameTheWrongInput) {
    for (const double bandwidth :
         {0.0, -1.0, std::numeric_limits<double>::quiet_NaN(), 1e15, std::numeric_limits<double>::infinity()}) {
        EXPECT_NE(message_of([&] {
                      FlowEngine(std::vector<FlowLink>{{"up", bandwidth}});
                  }).find("link up: bytes_per_s"),
                  std::string::npos);
    }
    FlowEngine engine(links_of({1}));
    EXPECT_EQ(message_of([&] {
                  engine.add_path(std::vector<PathLink>{{3, 1}});
              }),
              "path 0: link: got 3; allowed: 0 to 1 - 1");
    for (const double coefficient : {0.0, -2.0, std::numeric_limits<double>::quiet_NaN(), 1e7}) {
        EXPECT_NE(message_of([&] {
                      engine.add_path(std::vector<PathLink>{{0, coefficient}});
                  }).find("coefficient"),
                  std::string::npos);
    }
    const std::int32_t path = plain_path(engine, {0});
    const auto start = [&](const Flow& flow, std::int64_t at_ps = 0) {
        return message_of([&] { engine.start(flow, at_ps); });
    };
    EXPECT_EQ(start({.tag = 3, .path = path + 1}), "flow 3: path: got 1; allowed: an index from add_path");
    EXPECT_EQ(start({.tag = 3, .path = path, .bytes = -1}), "flow 3: bytes: got -1; allowed: 0 or more");
    EXPECT_EQ(start({.tag = 3, .path = path, .latency_ps = -1}), "flow 3: latency_ps: got -1; allowed: 0 or more");
    EXPECT_NE(start({.tag = 3, .path = path, .most_bytes_per_s = 0}).find("most_bytes_per_s"), std::string::npos);
    EXPECT_NE(start({.tag = 3, .path = path, .weight = 0}).find("weight"), std::string::npos);
    EXPECT_NE(start({.tag = 3, .path = path}, -1).find("at_ps"), std::string::npos);
    EXPECT_NE(message_of([&] { engine.set_bandwidth(0, -1, 0); }).find("link l0: bytes_per_s"), std::string::npos);
    EXPECT_NE(message_of([&] { engine.set_bandwidth(1, 1, 0); }).find("link: got 1"), std::string::npos);
    engine.start({.tag = 8, .path = path, .bytes = std::int64_t{1} << 60}, 0);
    EXPECT_NE(message_of([&] { engine.run(); }).find("flow 8 would take more than 106 days"), std::string::npos);
}

TEST(FlowEngine, TooLargeCoefficientsAndWeightsAreRefused) {
    FlowEngine engine(links_of({1}));
    const std::int32_t path = engine.add_path(std::vector<PathLink>{{0, kMostCoefficient}});
    for (std::int64_t tag = 0; tag < 12; ++tag) {
        engine.start({.tag = tag, .path = path, .bytes = 1, .weight = kMostWeight}, 0);
    }
    EXPECT_EQ(message_of([&] { engine.run(); }),
              "flow 9: the sum of coefficient * weight over the flows on link l0 would be more than 9.2e9");
}

/// A random network with flows, flows that start when others end, and changes of links, all derived from the seed.
template <typename Engine>
class RandomRun {
  public:
    explicit RandomRun(std::uint64_t seed) : random_(seed, "flows"), engine_(random_links()) {
        for (int i = 0; i < 10; ++i) {
            std::vector<PathLink> path;
            for (std::int64_t hops = below(4); hops >= 0; --hops) {
                const double coefficient = below(3) == 0 ? 0.25 * static_cast<double>(1 + below(9)) : 1;
                path.push_back({static_cast<std::int32_t>(below(link_count_)), coefficient});
            }
            engine_.add_path(path);
        }
        for (int i = 0; i < 12; ++i) start();
        for (std::int64_t i = below(6); i > 0; --i) {
            const auto link = static_cast<std::int32_t>(below(link_count_));
            const std::int64_t when = below(3'000'000);
            engine_.set_bandwidth(link, below(2) == 0 ? 0 : kGb * static_cast<double>(1 + below(20)), when);
            engine_.set_bandwidth(link, kGb * static_cast<double>(1 + below(20)), when + below(500'000));
        }
    }
    Ends run() {
        Ends ends;
        engine_.run([&](const FlowEnd& end) {
            ends.emplace_back(end.tag, end.end_ps);
            if (tags_ < 60) start();
            if (tags_ < 60 && end.tag % 3 == 0) start();
        });
        EXPECT_EQ(ends.size(), static_cast<std::size_t>(tags_));
        return ends;
    }

  private:
    std::int64_t below(std::int64_t bound) {
        return static_cast<std::int64_t>(random_.below(draws_++, static_cast<std::uint64_t>(bound)));
    }
    std::vector<FlowLink> random_links() {
        std::vector<double> bandwidths;
        for (link_count_ = 1 + below(12); static_cast<std::int64_t>(bandwidths.size()) < link_count_;) {
            bandwidths.push_back(static_cast<double>(1 + below(8)));
        }
        return links_of(bandwidths);
    }
    void start() {
        Flow flow{.tag = tags_++, .path = static_cast<std::int32_t>(below(10))};
        flow.bytes = below(8) == 0 ? below(2) : 1000 * (1 + below(5));  // often equal, so that ends coincide often
        if (below(2) == 0) flow.latency_ps = 1000 * below(300);
        if (below(4) == 0) flow.most_bytes_per_s = kGb * (0.1 + 0.3 * static_cast<double>(below(5)));
        if (below(4) == 0) flow.weight = 1 + below(5);
        engine_.start(flow, engine_.now_ps() + (below(2) == 0 ? 0 : 1000 * below(800)));
    }

    RandomStream random_;
    std::uint64_t draws_ = 0;
    std::int64_t link_count_ = 0;
    std::int64_t tags_ = 0;
    Engine engine_;
};

TEST(FlowEngine, MatchesTheReferenceEngineToThePicosecond) {
    for (std::uint64_t seed = 0; seed < 3000; ++seed) {
        const Ends ends = RandomRun<FlowEngine>(seed).run();
        ASSERT_EQ(ends, RandomRun<ReferenceFlowEngine>(seed).run()) << "seed " << seed;
    }
}

/// A ring all-reduce as one flow per step and rank, where each waits for its predecessors, takes as long as one flow
/// with coefficients.
TEST(FlowEngine, ACollectiveCanBeOneFlow) {
    constexpr std::int64_t kRanks = 8;
    constexpr std::int64_t kSteps = 2 * (kRanks - 1);
    constexpr std::int64_t kChunk = 1'000'000;
    constexpr std::int64_t kLatency = 2'000'000;
    FlowEngine steps(links_of(std::vector<double>(kRanks, 10)));
    std::vector<std::int32_t> paths;
    std::vector<std::int64_t> waits(static_cast<std::size_t>(kRanks * (kSteps + 1)), 2);
    const auto start = [&](std::int64_t step, std::int64_t rank) {
        steps.start({.tag = step * kRanks + rank,
                     .path = paths[static_cast<std::size_t>(rank)],
                     .bytes = kChunk,
                     .latency_ps = kLatency},
                    steps.now_ps());
    };
    for (std::int32_t rank = 0; rank < kRanks; ++rank) paths.push_back(plain_path(steps, {rank}));
    for (std::int64_t rank = 0; rank < kRanks; ++rank) start(0, rank);
    std::int64_t flows = 0;
    steps.run([&](const FlowEnd& end) {
        ++flows;
        const std::int64_t step = end.tag / kRanks + 1;
        for (const std::int64_t next : {end.tag % kRanks, (end.tag + 1) % kRanks}) {
            if (step < kSteps && --waits[static_cast<std::size_t>(step * kRanks + next)] == 0) start(step, next);
        }
    });
    EXPECT_EQ(flows, kSteps * kRanks);

    FlowEngine whole(links_of(std::vector<double>(kRanks, 10)));
    std::vector<PathLink> ring;
    ring.reserve(kRanks);
    for (std::int32_t rank = 0; rank < kRanks; ++rank) ring.push_back({rank, static_cast<double>(kSteps)});
    whole.start({.tag = 0, .path = whole.add_path(ring), .bytes = kChunk, .latency_ps = kSteps * kLatency}, 0);
    whole.run();
    // The levels of links are rounded down, so that the end may be one picosecond late.
    EXPECT_EQ(std::clamp<std::int64_t>(whole.now_ps() - steps.now_ps(), 0, 1), whole.now_ps() - steps.now_ps());
    EXPECT_EQ(steps.now_ps(), kSteps * (kLatency + 100'000'000));  // 1e6 bytes at 1e10 bytes/s
}

}  // namespace
}  // namespace orrery::sim
