// `orrery collectives`, and predictions of and fits to measured collectives (`validate` and `calibrate --collectives`).
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>

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

TEST(ValidateCollectives, PredictsRowsAndSkipsUnpredictableOnes) {
    const Workplace here;
    here.write("measured.csv", std::string(kMeasured));
    const CommandResult result = here.run({"validate", "--collectives", "measured.csv", "--json"});
    expect_done(result);
    const auto schemas = house::repository_schemas(ORRERY_SOURCE_DIR);
    EXPECT_EQ(schemas.check(result.out), "");
    const json document = json::parse(result.out);
    ASSERT_EQ(document.at("rows").size(), 3U);
    EXPECT_GT(document.at("rows")[0].at("predicted_time_us").get<double>(), 0);
    EXPECT_EQ(document.at("rows")[0].at("measured_time_us"), 26.1);
    EXPECT_EQ(document.at("rows")[1].at("predicted_time_us"), 0);  // one rank moves no bytes
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
    const auto schemas = house::repository_schemas(ORRERY_SOURCE_DIR);
    EXPECT_EQ(schemas.check(result.out), "");
    return json::parse(result.out);
}

TEST(Collectives, PrintsATableBySize) {
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

TEST(Collectives, UsesTheChannelsOfAGraphFile) {
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

TEST(Collectives, RefusesImpossibleCombinations) {
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

TEST(Collectives, SizesElementsAndSwitches) {
    const Workplace here;
    const json steps = table_of(here, {"hgx-h200", "-b", "1M", "-e", "4M", "-i", "1M", "-d", "uint8"});
    ASSERT_EQ(steps.at("rows").size(), 4U);
    EXPECT_EQ(steps.at("dtype"), "uint8");
    EXPECT_EQ(steps.at("rows")[2].at("bytes"), 3 << 20);
    EXPECT_EQ(steps.at("rows")[2].at("elements"), 3 << 20);
    const auto algorithm = [&](std::vector<std::string> more) {
        more.insert(more.begin(), {"hgx-h200", "-b", "1G", "-e", "1G"});
        return table_of(here, more).at("rows")[0].at("algorithm").get<std::string>();
    };
    EXPECT_EQ(algorithm({"-d", "fp16"}), "nvls");
    EXPECT_EQ(algorithm({"-d", "uint8"}), "ring");  // switches do not reduce uint8
    EXPECT_EQ(algorithm({"--no-nvls"}), "ring");
    EXPECT_EQ(algorithm({"--ranks", "32"}), "ring");  // has more bandwidth between nodes than a tree
    EXPECT_EQ(algorithm({"--ranks", "32", "--sharp"}), "nvls");
    // Sizes are whole elements: 10 bytes become one fp64.
    EXPECT_EQ(table_of(here, {"hgx-h200", "-b", "10", "-e", "10", "-d", "fp64"}).at("rows")[0].at("bytes"), 8);
    const auto refused = [&](std::vector<std::string> arguments, const std::vector<std::string>& words) {
        arguments.insert(arguments.begin(), {"collectives", "hgx-h200"});
        expect_refused(here.run(arguments), 2, words);
    };
    refused({"-d", "half"}, {"--dtype"});
    refused({"-i", "1M", "-f", "2"}, {"--increment", "--factor"});
    refused({"-b", "1", "-e", "1G", "-i", "8"}, {"--increment", "10000"});
    refused({"--nccl-version", "latest"}, {"--nccl-version", "2.27.7"});
    refused({"--collective-library", "gloo"}, {"--collective-library", "NCCL"});
}

TEST(Collectives, LibraryOfCpuNodes) {
    const Workplace here;
    json cluster = json::parse(here.read("local.cluster.json"));
    const json nodes = json::parse(here.run({"clusters", "dgx-h100", "--json"}).out);
    cluster["name"] = "cpu-nodes";
    cluster["nodes"] = 4;
    cluster["nics_per_node"] = 1;
    cluster["nic"] = nodes.at("nic");
    cluster["host_link"] = nodes.at("host_link");
    cluster["fabric"] = "single_switch";
    here.write("cpu.json", cluster);
    const auto library = [&](std::vector<std::string> more) {
        more.insert(more.begin(), {"cpu.json", "--devices", "0,2,4,6", "-b", "1M", "-e", "1M"});
        return table_of(here, more).at("rows")[0].at("protocol").get<std::string>();
    };
    EXPECT_EQ(library({}), "openmpi");
    EXPECT_EQ(library({"--collective-library", "gloo"}), "gloo");
    EXPECT_EQ(library({"--collective-library", "orrery"}), "orrery");
}

/// A CSV of the predicted times of a node of H200s, a tenth slower.
std::string slower_by_a_tenth(const Workplace& here) {
    std::string csv = "device,nccl_version,op,dtype,num_gpus,bytes,time_us\n";
    for (const char* op : {"all_reduce", "all_gather"}) {
        for (const char* ranks : {"2", "8"}) {
            const json table = table_of(
                here, {"hgx-h200", "--op", op, "--ranks", ranks, "-b", "1K", "-e", "1G", "-f", "4", "-d", "fp16"});
            for (const json& row : table.at("rows")) {
                csv += "NVIDIA H200,2.29.2," + std::string(op) + ",half," + ranks + "," +
                       std::to_string(row.at("bytes").get<std::int64_t>()) + "," +
                       std::to_string(1.1 * row.at("time_us").get<double>()) + "\n";
            }
        }
    }
    return csv;
}

TEST(CalibrateCollectives, PrintsFiguresAndErrors) {
    const Workplace here;
    here.write("measured.csv", slower_by_a_tenth(here));
    const CommandResult result =
        here.run({"calibrate", "--collectives", "measured.csv", "--profile", "h200-sxm-141gb", "--json"});
    expect_done(result);
    const auto schemas = house::repository_schemas(ORRERY_SOURCE_DIR);
    EXPECT_EQ(schemas.check(result.out), "");
    const json fit = json::parse(result.out);
    const auto mean = [&](const char* stage) {
        return fit.at("errors").at(stage).at("from_1_mib").at("mean_absolute_error").get<double>();
    };
    EXPECT_NEAR(mean("before"), 0.1 / 1.1, 0.001);
    EXPECT_LT(mean("after"), 0.01);
    EXPECT_LT(mean("left_out"), 0.09);
    for (const json& figure : fit.at("figures")) {
        if (figure.at("key") == "base_us") {
            EXPECT_NEAR(figure.at("fitted").get<double>() / figure.at("before").get<double>(), 1.1, 0.01);
        }
        EXPECT_TRUE(figure.at("key") != "grouped_share" || figure.at("held"));
    }
    const CommandResult text = here.run({"calibrate", "--collectives", "measured.csv", "--profile", "h200-sxm-141gb"});
    expect_done(text);
    EXPECT_NE(text.out.find("held: too few rows move it"), std::string::npos) << text.out;
}

TEST(CalibrateCollectives, RefusesWhatItCannotFit) {
    const Workplace here;
    here.write("measured.csv", std::string(kMeasured));
    const auto refused = [&](std::vector<std::string> arguments, const std::vector<std::string>& words) {
        arguments.insert(arguments.begin(), {"calibrate", "--collectives", "measured.csv"});
        expect_refused(here.run(arguments), 2, words);
    };
    refused({}, {"--profile"});
    refused({"--profile", "h200"}, {"--profile", "h200-sxm-141gb"});
    refused({"--profile", "h200-sxm-141gb"}, {"1 rows", "at least 4"});
    refused({"--profile", "h200-sxm-141gb", "--output", "x.json"}, {"--output"});
}

/// Files of measured collectives that a developer has next to the repository; empty if one is missing.
std::vector<std::string> shared_measurements() {
    const char* shared = std::getenv("ORRERY_SHARED");
    const std::string folder = shared != nullptr ? shared : std::string(ORRERY_SOURCE_DIR) + "/../shared";
    std::vector<std::string> files;
    for (const char* name : {"/samples/measured/nccl_collectives_measured.csv",
                             "/samples/measured/allreduce_busbw_published.csv", "/validation/collectives.json"}) {
        if (!std::filesystem::exists(folder + name)) return {};
        files.push_back(folder + name);
    }
    return files;
}

TEST(SharedCollectives, ArePredictedWell) {
    const std::vector<std::string> files = shared_measurements();
    if (files.empty()) GTEST_SKIP() << "no measured collectives; set ORRERY_SHARED";
    const Workplace here;
    for (const std::string& file : files) {
        const json document = json::parse(here.run({"validate", "--collectives", file, "--json"}).out);
        const bool one_kind = file == files.front();  // has enough rows of each device to judge it alone
        for (const json& group : document.at("summary").at("groups")) {
            const std::string regime = group.at("regime"), device = group.at("device");
            if (!one_kind && device != "all") continue;
            const double mean = group.at("mean_absolute_error"), median = group.at("median_absolute_error");
            EXPECT_LE(mean, regime == "one_node" ? 0.08 : regime == "across_nodes" ? 0.1 : 0.15) << file << device;
            EXPECT_TRUE(regime != "one_node" || median <= 0.05) << file << " " << device;
        }
    }
}

/// The figures in the catalogue equal those that the command fits.
TEST(SharedCollectives, GiveTheCataloguesFigures) {
    const std::vector<std::string> files = shared_measurements();
    if (files.empty()) GTEST_SKIP() << "no measured collectives; set ORRERY_SHARED";
    const Workplace here;
    for (const char* profile :
         {"a100-sxm-80gb", "h100-sxm-80gb", "h200-sxm-141gb", "b200-sxm", "b300-sxm", "gb200", "l40s", "rtx-pro-6000",
          "infiniband-ndr", "efa-400", "efa-v4-400", "roce-400", "gpudirect-tcpx-200", "gpudirect-tcpxo-200"}) {
        std::vector<std::string> arguments{"calibrate", "--profile", profile, "--json"};
        for (const std::string& file : files) arguments.insert(arguments.end(), {"--collectives", file});
        const json fit = json::parse(here.run(arguments).out);
        EXPECT_LE(fit.at("figures").size(), 12U) << profile;
        for (const json& figure : fit.at("figures")) {
            const double before = figure.at("before"), fitted = figure.at("fitted");
            EXPECT_NEAR(fitted / before, 1, 0.02) << profile << " " << figure.at("key");
        }
    }
}

TEST(Collectives, AnyAlgorithmIsPricedOnIdleLinks) {
    const auto run = [](const char* cluster, const char* ranks, const char* algorithm,
                        const std::vector<std::string>& more = {}) {
        std::vector<std::string> words{"collectives", cluster, "--ranks", ranks,        "-b",          "64M",
                                       "-e",          "64M",   "--op",    "all_reduce", "--algorithm", algorithm};
        words.insert(words.end(), more.begin(), more.end());
        return orrery(words);
    };
    for (const char* algorithm : {"halving_doubling", "direct", "hierarchical", "double_binary_tree", "collnet"}) {
        const CommandResult result = run("dgx-h100", "64", algorithm);
        expect_done(result);
        EXPECT_NE(result.out.find(algorithm), std::string::npos) << result.out;
    }
    expect_refused(run("dgx-h100", "63", "hierarchical"), 2,
                   {"hierarchical", "the same number of members on each node"});
    expect_refused(run("dgx-h100", "64", "bruck"), 2, {"bruck", "all_reduce"});
    expect_refused(run("dgx-h100", "64", "bcube", {"--protocol", "LL"}), 2, {"bcube", "NCCL's own"});
}

}  // namespace
}  // namespace orrery::test
