// `orrery validate --collectives`: measured collectives, predicted; nothing is run.
#include <gtest/gtest.h>

#include "tests/cli/checks.h"
#include "tests/house/json_schema.h"

namespace orrery::test {
namespace {

using nlohmann::json;

const char* const kMeasured =
    "device,nccl_version,op,dtype,num_gpus,bytes,time_us\n"
    "NVIDIA H200,2.29.2,all_reduce,half,8,1048576,26.1\n"
    "NVIDIA H200,2.29.2,all_gather,half,1,1048576,2.5\n"
    "AMD MI300X,2.29.2,all_reduce,half,8,512,6.5\n";

TEST(ValidateCollectives, PredictsEachAndSkipsWhatItCannot) {
    const Workplace here;
    here.write("measured.csv", std::string(kMeasured));
    const CommandResult result = here.run({"validate", "--collectives", "measured.csv", "--json"});
    expect_done(result);
    const auto schemas = house::SchemaSet::load(std::string(ORRERY_SOURCE_DIR) + "/docs/schema");
    EXPECT_EQ(schemas.check(result.out), "");
    const json document = json::parse(result.out);
    ASSERT_EQ(document.at("rows").size(), 3U);
    EXPECT_GT(document.at("rows")[0].at("predicted_time_us").get<double>(), 0);
    EXPECT_EQ(document.at("rows")[0].at("measured_time_us"), 26.1);
    EXPECT_EQ(document.at("rows")[1].at("predicted_time_us"), 0);  // one rank: no bytes, no time
    EXPECT_NE(document.at("rows")[2].at("skipped").get<std::string>().find("MI300X"), std::string::npos);
    const CommandResult text = here.run({"validate", "--collectives", "measured.csv", "--each"});
    expect_done(text);
    EXPECT_NE(text.out.find("one node, 1 MiB and more"), std::string::npos) << text.out;
    EXPECT_NE(text.out.find("1,048,576"), std::string::npos) << text.out;
}

TEST(ValidateCollectives, BadInputNamesFileRowAndColumn) {
    const Workplace here;
    here.write("measured.csv", std::string(kMeasured) + "NVIDIA H200,2.29.2,all_reduce,half,8,x,26.1\n");
    expect_refused(here.run({"validate", "--collectives", "measured.csv"}), 2,
                   {"measured.csv", "row 4", "bytes", "'x'"});
    expect_refused(here.run({"validate", "--collectives", "nowhere.csv"}), 2, {"nowhere.csv"});
    expect_refused(here.run({"validate", "--each", "a.json"}), 2, {"--collectives"});
    expect_refused(here.run({"validate", "--collectives", "measured.csv", "--rows", "measured.csv"}), 2, {"--rows"});
}

json table_of(const Workplace& here, std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(), "collectives");
    arguments.emplace_back("--json");
    const CommandResult result = here.run(arguments);
    expect_done(result);
    const auto schemas = house::SchemaSet::load(std::string(ORRERY_SOURCE_DIR) + "/docs/schema");
    EXPECT_EQ(schemas.check(result.out), "");
    return json::parse(result.out);
}

TEST(Collectives, TableBySize) {
    const Workplace here;
    const json table = table_of(here, {"dgx-h100", "--ranks", "16", "-b", "1M", "-e", "16M", "-f", "4"});
    EXPECT_EQ(table.at("nodes"), 2);
    ASSERT_EQ(table.at("rows").size(), 3U);
    const json& last = table.at("rows")[2];
    EXPECT_EQ(last.at("bytes"), 16 << 20);
    const double algbw = last.at("algbw_gb_per_s");
    EXPECT_NEAR(algbw, (16 << 20) / last.at("time_us").get<double>() / 1e3, 1e-9);
    EXPECT_NEAR(last.at("busbw_gb_per_s").get<double>(), algbw * 2 * 15 / 16, 1e-9);
    const json ring = table_of(here, {"dgx-h100", "--devices", "0,1,8,9", "--algorithm", "ring", "--protocol", "LL128",
                                      "--channels", "4", "-b", "1M", "-e", "1M"});
    EXPECT_EQ(ring.at("rows")[0].at("algorithm"), "ring");
    EXPECT_EQ(ring.at("rows")[0].at("protocol"), "LL128");
    EXPECT_EQ(ring.at("rows")[0].at("channels"), 4);
    EXPECT_EQ(table_of(here, {"dgx-a100", "--ranks", "1"}).at("rows")[0].at("time_us"), 0);
    const CommandResult text = here.run({"collectives", "hgx-h200", "-b", "1G", "-e", "1G"});
    expect_done(text);
    EXPECT_NE(text.out.find("nvls"), std::string::npos) << text.out;
}

TEST(Collectives, ByAGraphFile) {
    const Workplace here;
    std::string channel = "<channel>";
    for (int gpu = 0; gpu < 8; ++gpu) channel += "<gpu dev=\"" + std::to_string(gpu) + "\"/>";
    channel += "</channel>";
    here.write("g.xml",
               "<graphs version=\"1\"><graph id=\"0\" pattern=\"4\" nchannels=\"2\" speedintra=\"20\" "
               "typeintra=\"NVL\" typeinter=\"PIX\">" +
                   channel + channel +
                   "</graph><graph id=\"3\" pattern=\"5\" nchannels=\"0\" typeintra=\"NVL\" "
                   "typeinter=\"PIX\"/></graphs>");
    const json row =
        table_of(here, {"dgx-h100", "--graph", "g.xml", "--algorithm", "ring", "-b", "1G", "-e", "1G"}).at("rows")[0];
    EXPECT_EQ(row.at("channels"), 2);
    const auto refused = [&](std::vector<std::string> arguments, const std::vector<std::string>& words) {
        arguments.insert(arguments.begin(), {"collectives", "dgx-h100"});
        expect_refused(here.run(arguments), 2, words);
    };
    refused({"--graph", "g.xml", "--algorithm", "nvls"}, {"nvls", "no channels"});
    refused({"--graph", "g.xml", "--ranks", "4"}, {"g.xml", "<gpu> of a channel: got 8; allowed: 4"});
    refused({"--graph", "g.xml", "--ranks", "16"}, {"g.xml", "without a <net>"});
    refused({"--graph", "g.xml", "--channels", "4"}, {"--graph", "--channels"});
    refused({"--graph", "none.xml"}, {"none.xml"});
    here.write("t.xml", std::string("<system version=\"1\"><cpu numaid=\"0\"><pci busid=\"0000:11:00.0\" "
                                    "class=\"0x030200\"><gpu dev=\"0\" sm=\"90\"/></pci></cpu></system>"));
    refused({"--graph", "t.xml"}, {"t.xml", "NCCL graph XML"});
}

TEST(Collectives, RefusesWhatCannotBe) {
    const Workplace here;
    const auto refused = [&](std::vector<std::string> arguments, const std::vector<std::string>& words) {
        arguments.insert(arguments.begin(), "collectives");
        expect_refused(here.run(arguments), 2, words);
    };
    refused({"dgx-h100", "--algorithm", "pat"}, {"PAT"});
    refused({"pcie-l40s", "--protocol", "LL128"}, {"NVLink"});
    refused({"dgx-h100", "--gpus", "8", "--devices", "0,99"}, {"--devices", "99"});
    refused({"dgx-h100", "--devices", "0,0"}, {"--devices", "twice"});
    refused({"dgx-h100", "--ranks", "9", "--gpus", "8"}, {"--ranks", "9"});
    refused({"dgx-h100", "-b", "1X"}, {"--begin", "1X"});
    refused({"dgx-h100", "-b", "2M", "-e", "1M"}, {"--end"});
    refused({"dgx-h100", "--op", "alltoallv"}, {"--op"});
    refused({"dgx-h100", "--op", "send", "--ranks", "3"}, {"2 for a send"});
    refused({"nowhere"}, {"nowhere"});
}

}  // namespace
}  // namespace orrery::test
