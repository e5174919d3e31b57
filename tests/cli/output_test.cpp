// Outputs of the commands: help with working examples, JSON that conforms to its schemas.
#include <gtest/gtest.h>

#include <sstream>

#include "tests/cli/checks.h"
#include "tests/house/json_schema.h"

namespace orrery::test {
namespace {

using nlohmann::json;

/// The words after "Example:" in a command's help, without "orrery"; the line may be wrapped.
std::vector<std::string> example_of(const std::string& help) {
    const std::size_t at = help.find("Example: orrery ");
    if (at == std::string::npos) return {};
    std::istringstream words(help.substr(at + std::string("Example: orrery ").size()));
    std::vector<std::string> result;
    for (std::string word; words >> word;) result.push_back(word);
    return result;
}

class Help : public testing::TestWithParam<const char*> {};

TEST_P(Help, ShowsAnExample) {
    const CommandResult result = orrery({GetParam(), "--help"});
    expect_done(result);
    const std::vector<std::string> example = example_of(result.out);
    ASSERT_FALSE(example.empty()) << result.out;
    EXPECT_EQ(example.front(), GetParam());
    const CommandResult all = orrery({"--help"});
    expect_done(all);
    EXPECT_NE(all.out.find(GetParam()), std::string::npos);
}

/// Each numeric option has limits, which the help shows.
TEST_P(Help, NumbersHaveARange) {
    std::istringstream help(orrery({GetParam(), "--help"}).out);
    for (std::string line; std::getline(help, line);) {
        const std::string flag = line.substr(0, line.find("  ", line.find_first_not_of(' ') + 1));
        if (flag.find_first_not_of(' ') == std::string::npos || flag[flag.find_first_not_of(' ')] != '-') continue;
        const bool is_number = flag.find("INT") != std::string::npos || flag.find("FLOAT") != std::string::npos;
        EXPECT_TRUE(!is_number || line.find(" in [") != std::string::npos) << line;
    }
}

/// For commands that take long or measure the machine, only the files of the example are checked.
TEST_P(Help, ExampleWorks) {
    const Workplace here;
    std::filesystem::create_symlink(std::string(ORRERY_SOURCE_DIR) + "/examples", here.path("examples"));
    const std::vector<std::string> example = example_of(orrery({GetParam(), "--help"}).out);
    for (const std::string& word : example) {
        EXPECT_TRUE(!word.starts_with("examples/") || here.has(word)) << word;
    }
    const std::string command = GetParam();
    if (command == "run" || command == "validate" || command == "calibrate") return;
    const CommandResult result = here.run(example);
    expect_done(result);
    EXPECT_NE(result.out, "");
}

INSTANTIATE_TEST_SUITE_P(Commands, Help,
                         testing::Values("plan", "simulate", "run", "validate", "calibrate", "backends", "models",
                                         "clusters", "implementations", "topo", "collectives"),
                         [](const auto& one) { return std::string(one.param); });

TEST(Output, EveryExamplePlanCanBeSimulated) {
    const Workplace here;
    int plans = 0;
    for (const auto& entry : std::filesystem::directory_iterator(std::string(ORRERY_SOURCE_DIR) + "/examples")) {
        if (!entry.path().string().ends_with(".plan.json")) continue;
        SCOPED_TRACE(entry.path().string());
        ++plans;
        expect_done(here.run({"simulate", entry.path().string()}));
    }
    EXPECT_GT(plans, 0);
}

TEST(Output, Version) {
    const CommandResult result = orrery({"--version"});
    expect_done(result);
    EXPECT_TRUE(result.out.starts_with("orrery ")) << result.out;
}

TEST(Output, JsonConformsToItsSchema) {
    const Workplace here;
    here.write("small.plan.json", small_plan(2, 2, 2));
    for (const std::vector<std::string>& command :
         {std::vector<std::string>{"plan", "--model", "tiny-gpt", "--cluster", "dgx-h100", "--gpus", "8",
                                   "--global-batch", "8", "--seq", "32", "--output", "best.plan.json", "--json"},
          {"plan", "--model", "mixtral-8x7b", "--cluster", "dgx-h100", "--gpus", "8", "--global-batch", "64", "--seq",
           "4096", "--space", "full", "--top", "1", "--json"},
          {"simulate", "small.plan.json", "--record", "simulated.json", "--json"},
          {"simulate", "small.plan.json", "--explain", "--json"},
          {"simulate", "small.plan.json", "--first-step", "--full", "--explain", "--json"},
          {"backends", "--json"},
          {"models", "--json"},
          {"implementations", "--json"},
          {"implementations", "torch-dp", "--json"},
          {"models", "llama3-8b", "--json"},
          {"clusters", "--json"},
          {"clusters", "dgx-h100", "--json"},
          {"clusters", "local", "--json"},
          {"clusters", std::string(ORRERY_SOURCE_DIR) + "/docs/results/h100-2026-11-27/gpu.cluster.json", "--kernels",
           "--json"},
          {"topo", "local", "--json"},
          {"topo", "dgx-h100", "--gpus", "512", "--paths", "0", "9", "--json"}}) {
        SCOPED_TRACE(testing::PrintToString(command));
        const CommandResult result = here.run(command);
        expect_done(result);
        EXPECT_EQ(house::repository_schemas(ORRERY_SOURCE_DIR).check(result.out), "");
    }
    EXPECT_EQ(house::repository_schemas(ORRERY_SOURCE_DIR).check(here.read("best.plan.json")), "");
    EXPECT_EQ(house::repository_schemas(ORRERY_SOURCE_DIR).check(here.read("simulated.json")), "");
    expect_done(here.run({"simulate", "best.plan.json"}));
}

TEST(Output, ExplanationSumsToTheStep) {
    const Workplace here;
    here.write("small.plan.json", small_plan(2, 2, 2));
    const CommandResult result = here.run({"simulate", "small.plan.json", "--explain", "--json"});
    expect_done(result);
    const json explanation = json::parse(result.out);
    const json record = json::parse(here.run({"simulate", "small.plan.json", "--json"}).out);
    const std::int64_t step = explanation.at("step_ps").get<std::int64_t>();
    EXPECT_DOUBLE_EQ(static_cast<double>(step) * 1e-12, record.at("step_time_s").get<double>());
    std::vector<json> breakdowns = {explanation.at("mean")};
    for (const json& one : explanation.at("classes")) breakdowns.push_back(one);
    ASSERT_EQ(breakdowns.size(), 3U) << "the mean and two stages";
    for (const json& one : breakdowns) {
        std::int64_t sum = 0;
        for (const json& part : one.at("parts_ps")) sum += part.get<std::int64_t>();
        EXPECT_EQ(sum, step);
    }
    for (const json& one : explanation.at("memory")) {
        std::int64_t sum = 0;
        for (const json& part : one.at("bytes")) sum += part.get<std::int64_t>();
        EXPECT_EQ(sum, one.at("live_peak_bytes"));
    }
    const CommandResult text = here.run({"simulate", "small.plan.json", "--explain"});
    expect_done(text);
    for (const char* part : {"matrix products", "exposed tp", "pipeline bubble", "Critical path", "live peak"}) {
        EXPECT_NE(text.out.find(part), std::string::npos) << part << "\n" << text.out;
    }
}

TEST(Output, ExplanationNamesTheRatesInUse) {
    const Workplace here;
    here.write("small.plan.json", small_plan(2, 2));
    const CommandResult result = here.run({"simulate", "small.plan.json", "--explain", "--json"});
    expect_done(result);
    const json rates = json::parse(result.out).at("rates");
    const auto find = [&](const std::string& ending) {
        for (const json& rate : rates) {
            if (rate.at("name").get<std::string>().ends_with(ending)) return rate;
        }
        ADD_FAILURE() << ending << " in " << rates;
        return json();
    };
    const json products = find("/products"), fp8 = find("/fp8");
    EXPECT_EQ(products.at("kind"), "fitted");
    EXPECT_NE(products.at("source").get<std::string>().find("orrery calibrate --rows: "), std::string::npos);
    EXPECT_GT(products.at("prior").get<double>(), 0);
    EXPECT_GE(products.at("information").get<double>(), 0.5);
    EXPECT_EQ(fp8.at("elasticity"), 0);
    const json host = find("/host_step_ms");
    EXPECT_GT(host.at("elasticity").get<double>(), 0.01);
    const CommandResult text = here.run({"simulate", "small.plan.json", "--explain"});
    expect_done(text);
    EXPECT_NE(text.out.find("Rates that determine the step time"), std::string::npos) << text.out;
    EXPECT_NE(text.out.find(host.at("name").get<std::string>()), std::string::npos) << text.out;
    EXPECT_EQ(text.out.find("/fp8"), std::string::npos) << text.out;
}

TEST(Output, StrictRefusesAssumptionsAndNamesThem) {
    const Workplace here;
    here.write("gpus.plan.json", small_plan(2, 2));
    std::string measured = local_plan(2).dump();
    for (const std::string assumed = "\"fallback\""; measured.find(assumed) != std::string::npos;) {
        measured.replace(measured.find(assumed), assumed.size(), "\"measured\"");
    }
    here.write("local.plan.json", measured);
    expect_refused(here.run({"simulate", "gpus.plan.json", "--strict"}), 2,
                   {"gpus.plan.json: --strict", "assumptions", "rate implementation/"});
    expect_refused(here.run({"plan", "--model", "gpt2", "--cluster", "pcie-rtx-4090", "--gpus", "1", "--global-batch",
                             "64", "--seq", "1024", "--strict"}),
                   2, {"--strict", "/device/matmul_efficiency"});
    expect_done(here.run({"simulate", "local.plan.json", "--strict"}));
    expect_refused(here.run({"simulate", "local.plan.json", "local.plan.json", "--cluster", "dgx-h100", "--strict"}), 2,
                   {"--strict", "one plan"});
    expect_refused(here.run({"plan", "--model", "tiny-gpt", "--cluster", "dgx-h100", "--gpus", "8", "--global-batch",
                             "8", "--seq", "32", "--strict"}),
                   2, {"the best plan: --strict", "assumptions"});
}

TEST(Output, DdpsFirstStepHasOneBucket) {
    const Workplace here;
    json plan = small_plan(4);
    plan["model"] = "gpt2";  // its gradients are larger than one bucket
    here.write("small.plan.json", plan);
    std::vector<json> spans;
    for (const std::vector<std::string>& more : {std::vector<std::string>{}, {"--first-step"}}) {
        std::vector<std::string> command = {"simulate", "small.plan.json", "--record", "record.json"};
        command.insert(command.end(), more.begin(), more.end());
        expect_done(here.run(command));
        const json record = json::parse(here.read("record.json"));
        json& on_dp = spans.emplace_back(json::array());
        for (const json& span : record.at("ranks").at(0).at("spans")) {
            if (span.at("stream") == "dp") on_dp.push_back(span);
        }
    }
    EXPECT_LT(spans[1].size(), spans[0].size());
    EXPECT_EQ(spans[1].size(), 1U);
}

TEST(Output, SummaryNamesTheMesh) {
    const Workplace here;
    json plan = small_plan(2, 2, 2);
    plan["parallelism"]["data_parallel"] = "zero1";
    plan["training"]["memory"] = {{"recompute", "full"}};
    here.write("small.plan.json", plan);
    const CommandResult result = here.run({"simulate", "small.plan.json"});
    expect_done(result);
    for (const char* part : {"rank order tp,cp,ep,dp,pp; tp 2, cp 1, dp 2, pp 2", "zero1: optimizer states sharded",
                             "1f1b, 1 chunk a rank", "recomputation full"}) {
        EXPECT_NE(result.out.find(part), std::string::npos) << part << "\n" << result.out;
    }
}

TEST(Output, MoreTensorRanksThanKeyValueHeads) {
    const Workplace here;
    const CommandResult result =
        here.run({"plan", "--model", "tiny-llama", "--cluster", "dgx-h100", "--gpus", "4", "--tp", "4",
                  "--global-batch", "4", "--seq", "32", "--precision", "fp16", "--output", "best.plan.json"});
    expect_done(result);
    const json plan = json::parse(here.read("best.plan.json"));
    EXPECT_EQ(plan.at("parallelism").at("tp"), 4);
    EXPECT_GT(4, plan.at("model").at("kv_heads").get<int>());
}

TEST(Output, TraceIsJson) {
    const Workplace here;
    here.write("small.plan.json", small_plan(1, 1, 2));
    expect_done(here.run({"simulate", "small.plan.json", "--trace", "trace.json"}));
    const json trace = json::parse(here.read("trace.json"));
    EXPECT_GT(trace.at("traceEvents").size(), 100U);
}

TEST(Output, FullSimulationGivesTheSame) {
    const Workplace here;
    for (const auto& [dp, tp, pp] : {std::tuple{2, 2, 2}, {8, 2, 2}, {1, 4, 4}}) {
        json plan = small_plan(dp, tp, pp);
        if (tp > 1) plan["parallelism"]["sequence_parallel"] = true;
        here.write("small.plan.json", plan);
        const CommandResult classes = here.run({"simulate", "small.plan.json", "--json"});
        const CommandResult full = here.run({"simulate", "small.plan.json", "--full", "--json"});
        expect_done(classes);
        expect_done(full);
        json one = json::parse(classes.out), other = json::parse(full.out);
        EXPECT_EQ(other.at("ranks").size(), static_cast<std::size_t>(dp * tp * pp));
        std::int64_t ranks = 0;
        for (const json& rank : one.at("ranks")) ranks += rank.at("multiplicity").get<std::int64_t>();
        EXPECT_EQ(ranks, dp * tp * pp);
        for (json* record : {&one, &other}) record->erase("ranks");
        EXPECT_EQ(one, other);
        EXPECT_GT(one.at("step_time_s").get<double>(), 0);
    }
}

TEST(Output, AClosedPipeIsAnError) {
    const CommandResult result = orrery({"models"}, {.output_closed = true});
    EXPECT_EQ(result.signal, 0);
    expect_refused(result, 1, {"cannot write to standard output"});
}

}  // namespace
}  // namespace orrery::test
