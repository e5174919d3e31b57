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
    expect_refused(here.run({"validate", "--collectives", "measured.csv"}), 2, {"measured.csv", "row 4", "bytes", "'x'"});
    expect_refused(here.run({"validate", "--collectives", "nowhere.csv"}), 2, {"nowhere.csv"});
    expect_refused(here.run({"validate", "--each", "a.json"}), 2, {"--collectives"});
    expect_refused(here.run({"validate", "--collectives", "measured.csv", "--rows", "measured.csv"}), 2, {"--rows"});
}

}  // namespace
}  // namespace orrery::test
