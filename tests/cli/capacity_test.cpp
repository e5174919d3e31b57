// `orrery capacity`.
#include <gtest/gtest.h>

#include <cmath>

#include "tests/cli/checks.h"
#include "tests/house/json_schema.h"

namespace orrery::test {
namespace {

using nlohmann::json;

CommandResult capacity(const Workplace& here, const std::vector<std::string>& flags) {
    std::vector<std::string> words{"capacity",
                                   "--model",
                                   "gpt2",
                                   "--seq",
                                   "1024",
                                   "--implementation",
                                   "megatron-core",
                                   "--tokens",
                                   "3T",
                                   "--global-batch",
                                   "4096",
                                   "--tp",
                                   "1",
                                   "--pp",
                                   "1"};
    words.insert(words.end(), flags.begin(), flags.end());
    return here.run(words);
}

json document_of(const CommandResult& result) {
    EXPECT_EQ(result.err, "");
    static const house::SchemaSet schemas = house::repository_schemas(ORRERY_SOURCE_DIR);
    EXPECT_EQ(schemas.check(result.out), "");
    return json::parse(result.out);
}

json answer_of(const CommandResult& result) {
    expect_done(result);
    return document_of(result).at("answers").at(0);
}

TEST(Capacity, FindsTheSmallestClusterThatIsInTime) {
    const Workplace here;
    const json answer = answer_of(capacity(here, {"--cluster", "dgx-h100", "--by", "36h", "--json"}));
    EXPECT_EQ(answer.at("limit"), "deadline");
    const json& best = answer.at("best");
    EXPECT_LE(best.at("days_needed"), 1.5);
    EXPECT_LT(best.at("days_p10"), best.at("days_p50"));
    EXPECT_LT(best.at("days_p50"), best.at("days_p90"));
    EXPECT_EQ(best.at("days_needed"), best.at("days_p90"));
    EXPECT_LT(best.at("goodput"), 1);
    const json& point = best.at("point");
    EXPECT_EQ(best.at("devices").get<int>(), point.at("devices").get<int>() + best.at("spare_devices").get<int>());
    // Its steps alone take days_ideal.
    const double steps = std::ceil(3e12 / (4096 * 1024));
    EXPECT_NEAR(best.at("days_ideal").get<double>(), steps * point.at("step_time_s").get<double>() / 86400, 1e-9);
    EXPECT_NEAR(best.at("usd").get<double>(),
                2.95 * 24 * best.at("days_p50").get<double>() * best.at("devices").get<double>(), 1e-6);
    for (const json& size : answer.at("explored")) {
        if (size.at("devices") < best.at("devices")) {
            EXPECT_GT(size.at("days_needed"), 1.5);
        }
    }
}

TEST(Capacity, TheLimitThatBindsIsNamed) {
    const Workplace here;
    const auto limit_of = [&](std::vector<std::string> flags) {
        flags.insert(flags.end(), {"--cluster", "dgx-h100", "--by", "36h", "--json"});
        const CommandResult result = capacity(here, flags);
        EXPECT_EQ(result.exit_code, 3);
        const json answer = document_of(result).at("answers").at(0);
        EXPECT_EQ(answer.at("meets"), false);
        return answer.at("limit").get<std::string>();
    };
    EXPECT_EQ(limit_of({"--gpus-at-most", "8"}), "devices");
    EXPECT_EQ(limit_of({"--max-mw", "0.006"}), "megawatts");
    EXPECT_EQ(limit_of({"--max-usd", "10"}), "usd");
    EXPECT_EQ(limit_of({"--gpus-at-most", "4"}), "devices");  // less than a node
    const CommandResult text = capacity(here, {"--cluster", "dgx-h100", "--by", "36h", "--gpus-at-most", "8"});
    EXPECT_NE(text.out.find("8 devices are too few: the job would be done in"), std::string::npos) << text.out;
}

TEST(Capacity, TwiceThePriceIsTwiceTheDollars) {
    const Workplace here;
    const auto usd_at = [&](const char* price) {
        return answer_of(
                   capacity(here, {"--cluster", "dgx-h100", "--by", "36h", "--json", "--usd-per-gpu-hour", price}))
            .at("best")
            .at("usd")
            .get<double>();
    };
    EXPECT_DOUBLE_EQ(usd_at("4"), 2 * usd_at("2"));
}

TEST(Capacity, DatesAndClustersAreCompared) {
    const Workplace here;
    const CommandResult result = capacity(here, {"--cluster", "dgx-h100,dgx-a100", "--by", "2027-03-11", "--start",
                                                 "2027-03-01", "--threads", "1", "--output", "answer.json"});
    expect_done(result);
    const json document = json::parse(here.read("answer.json"));
    EXPECT_EQ(document.at("goal").at("days"), 10);
    EXPECT_EQ(document.at("answers").size(), 2U);
    EXPECT_NE(result.out.find("\ndone on 2027-03-"), std::string::npos) << result.out;
    const CommandResult again = capacity(here, {"--cluster", "dgx-h100,dgx-a100", "--by", "2027-03-11", "--start",
                                                "2027-03-01", "--threads", "2", "--output", "again.json"});
    EXPECT_EQ(again.out, result.out);
    EXPECT_EQ(here.read("again.json"), here.read("answer.json"));
}

TEST(Capacity, MoreFailuresTakeMoreDevicesOrTime) {
    const Workplace here;
    const auto best_with = [&](const std::vector<std::string>& more) {
        std::vector<std::string> flags{"--cluster", "dgx-h100", "--by", "36h", "--json"};
        flags.insert(flags.end(), more.begin(), more.end());
        return answer_of(capacity(here, flags)).at("best");
    };
    const json few = best_with({"--gpu-hours-per-interruption", "1000000"});
    const json many = best_with({"--gpu-hours-per-interruption", "600", "--replaced-share", "0.1"});
    EXPECT_GT(few.at("goodput"), 0.99);
    EXPECT_LT(many.at("goodput"), few.at("goodput"));
    EXPECT_EQ(few.at("spare_devices"), 0);
    const json slow = best_with({"--checkpoint-gb-per-s", "0.01"});
    EXPECT_NEAR(slow.at("checkpoint_s").get<double>(), slow.at("checkpoint_gb").get<double>() / 0.01, 1e-6);
    // 16-bit weights, fp32 master weights and two moments: 14 bytes a parameter.
    EXPECT_NEAR(slow.at("checkpoint_gb").get<double>(), 14 * 0.124, 0.05);
}

TEST(Capacity, RefusesWhatItCannotRead) {
    const Workplace here;
    const auto refused = [&](const std::vector<std::string>& flags, const std::vector<std::string>& words) {
        std::vector<std::string> all{"--cluster", "dgx-h100"};
        all.insert(all.end(), flags.begin(), flags.end());
        expect_refused(capacity(here, all), 2, words);
    };
    refused({"--by", "soon"}, {"--by", "soon", "90d"});
    refused({"--by", "9d", "--exclude", "megatron-core"}, {"--exclude"});
    expect_refused(here.run({"capacity", "--model", "gpt2", "--cluster", "dgx-h100", "--tokens", "1B", "--by", "9d",
                             "--global-batch", "8", "--seq", "1024", "--tp", "7"}),
                   2, {"--tp", "7", "heads"});
    refused({"--by", "-3d"}, {"--by"});
    refused({"--by", "2027-02-30"}, {"--by"});
    refused({"--by", "2027-03-31"}, {"--start"});
    refused({"--by", "2027-03-31", "--start", "2027-04-01"}, {"--by", "after --start"});
    refused({"--by", "90d", "--start", "tomorrow"}, {"--start", "tomorrow"});
    refused({"--by", "90d", "--probability", "1.5"}, {"--probability"});
    expect_refused(here.run({"capacity", "--model", "gpt2", "--cluster", "dgx-h100", "--tokens", "many", "--by", "9d",
                             "--global-batch", "8", "--seq", "1024"}),
                   2, {"--tokens", "many", "15T"});
    expect_refused(here.run({"capacity", "--model", "gpt2", "--cluster", "pcie-t4", "--tokens", "1B", "--by", "9d",
                             "--global-batch", "8", "--seq", "1024", "--max-usd", "100"}),
                   2, {"--max-usd", "--usd-per-gpu-hour"});
}

}  // namespace
}  // namespace orrery::test
