#include "reports/trace.h"

#include <gtest/gtest.h>

#include <map>
#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "core/error.h"
#include "tests/unit/reports/sample.h"

namespace orrery::reports {
namespace {

using nlohmann::json;

json parsed(const std::string& text) {
    json document = json::parse(text);
    EXPECT_TRUE(document.at("traceEvents").is_array());
    return document;
}

std::map<int, std::string> process_names(const json& document) {
    std::map<int, std::string> names;
    for (const json& event : document.at("traceEvents")) {
        if (event.at("name") == "process_name") names[event.at("pid")] = event.at("args").at("name");
    }
    return names;
}

TEST(Trace, SideBySideByRank) {
    const json document = parsed(trace_json(sample::program(), sample::predicted(), sample::measured()));
    const auto names = process_names(document);
    const std::map<int, std::string> expected = {{0, "predicted rank 0"}, {1, "measured rank 0"},
                                                 {2, "measured rank 1"},  {3, "predicted rank 2"},
                                                 {4, "measured rank 2"},  {5, "measured rank 3"}};
    EXPECT_EQ(names, expected);
    int labels_with_multiplicity = 0;
    for (const json& event : document.at("traceEvents")) {
        if (event.at("name") != "process_labels") continue;
        const std::string label = event.at("args").at("labels");
        labels_with_multiplicity += label.find("represents 2 equal ranks") != std::string::npos ? 1 : 0;
    }
    EXPECT_EQ(labels_with_multiplicity, 2);
}

TEST(Trace, EventsCarryKeyAndTimes) {
    const program::Program program = sample::program();
    const program::RunRecord measured = sample::measured();
    const json document = parsed(trace_json(program, measured));
    int found = 0;
    for (const json& event : document.at("traceEvents")) {
        if (event.at("ph") != "X" || event.at("pid") != 0 || event.at("name") != "tp.reduce") continue;
        ++found;
        EXPECT_DOUBLE_EQ(event.at("ts").get<double>(), 8.0);
        EXPECT_DOUBLE_EQ(event.at("dur").get<double>(), 5.0);
        EXPECT_EQ(event.at("cat"), "forward,tp");
        EXPECT_EQ(event.at("args").at("ready_ps"), 8'000'000);
        EXPECT_EQ(event.at("args").at("begin_ps"), 10'000'000);
        EXPECT_EQ(event.at("args").at("end_ps"), 13'000'000);
        EXPECT_EQ(event.at("args").at("key"), program::key_of(program, 0, measured.ranks[0].spans[1]));
    }
    EXPECT_EQ(found, 1);
}

TEST(Trace, EveryLaneIsNamedAndNeverOverlaps) {
    program::RunRecord record = sample::measured();
    // Times that are not whole nanoseconds, a span that starts before the previous one ends, and a start before the
    // step.
    auto& spans = record.ranks[0].spans;
    spans = {{0, 0, 0, -1'500, -1'500, 2'999}, {0, 0, 0, 2'998, 2'998, 10'001}, {0, 0, 0, 10'001, 10'001, 10'002}};
    const json document = parsed(trace_json(sample::program(), record));
    std::map<std::pair<int, int>, std::vector<std::pair<double, double>>> lanes;
    std::map<std::pair<int, int>, std::string> names;
    for (const json& event : document.at("traceEvents")) {
        if (event.at("name") == "thread_name") {
            names[{event.at("pid"), event.at("tid")}] = event.at("args").at("name");
        } else if (event.at("ph") == "X") {
            lanes[{event.at("pid"), event.at("tid")}].emplace_back(event.at("ts"), event.at("dur"));
        }
    }
    ASSERT_FALSE(lanes.empty());
    for (const auto& [lane, slices] : lanes) {
        EXPECT_EQ(names.count(lane), 1U);
        for (std::size_t i = 1; i < slices.size(); ++i) {
            EXPECT_GE(slices[i].first, slices[i - 1].first + slices[i - 1].second - 1e-9);
        }
    }
    const auto& first = lanes.at({0, 0});
    ASSERT_EQ(first.size(), 3U);
    EXPECT_DOUBLE_EQ(first[0].first, -0.002);
    EXPECT_DOUBLE_EQ(first[0].second, 0.004);
    EXPECT_DOUBLE_EQ(first[1].first, 0.002);
    EXPECT_DOUBLE_EQ(first[1].second, 0.008);
    EXPECT_DOUBLE_EQ(first[2].second, 0.0);
}

TEST(Trace, NothingToTrace) {
    program::RunRecord record = sample::predicted();
    for (program::RankRecord& rank : record.ranks) rank.spans.clear();
    EXPECT_THROW((void)trace_json(sample::program(), record), InputError);
}

TEST(Trace, SameInputSameBytes) {
    EXPECT_EQ(trace_json(sample::program(), sample::predicted(), sample::measured()),
              trace_json(sample::program(), sample::predicted(), sample::measured()));
}

}  // namespace
}  // namespace orrery::reports
