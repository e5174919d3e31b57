// `orrery plan --explain`, `--guide`, `--shortlist`, `--pick`, and the message if nothing fits.
#include <gtest/gtest.h>

#include <filesystem>

#include "tests/cli/checks.h"
#include "tests/house/json_schema.h"

namespace orrery::test {
namespace {

using nlohmann::json;
using WordList = std::vector<std::string>;

WordList plan_of_gpt2(const WordList& more) {
    WordList words{"plan", "--model",        "gpt2", "--cluster", "dgx-h100", "--gpus", "8", "--schedule",
                   "1f1b", "--global-batch", "32",   "--seq",     "512",      "--top",  "1"};
    words.insert(words.end(), more.begin(), more.end());
    return words;
}

std::string against_schema(const std::string& text) {
    return house::repository_schemas(ORRERY_SOURCE_DIR).check(text);
}

TEST(PlanAnswers, ExplainAndGuide) {
    const Workplace here;
    const CommandResult text = here.run(plan_of_gpt2({"--explain", "--guide"}));
    expect_done(text);
    for (const char* part : {"What limits rank 1", "computation", "memory:", "Single changes of the plan",
                             "Changes of the inputs", "Does the model train on one device?", "zero3 over 8 devices",
                             "Is a pipeline needed?", "Recommended", "rank 1 of the search"}) {
        EXPECT_NE(text.out.find(part), std::string::npos) << part << "\n" << text.out;
    }
    const CommandResult result = here.run(plan_of_gpt2({"--explain", "--guide", "--json"}));
    expect_done(result);
    EXPECT_EQ(against_schema(result.out), "");
    const json document = json::parse(result.out);
    double sum = 0;
    for (const json& share : document.at("explanation").at("shares")) sum += share.get<double>();
    EXPECT_NEAR(sum, 1, 1e-9);
    const json plans = json::parse(here.run(plan_of_gpt2({"--json"})).out);
    EXPECT_DOUBLE_EQ(document.at("explanation").at("best").at("step_time_s").get<double>(),
                     plans.at("plans").at(0).at("step_time_s").get<double>());
}

TEST(PlanAnswers, NothingFits) {
    const Workplace here;
    const WordList words{
        "plan",           "--model", "llama3-70b", "--cluster", "dgx-h100",         "--gpus",       "4",
        "--global-batch", "16",      "--seq",      "2048",      "--implementation", "megatron-core"};
    expect_refused(here.run(words), 3,
                   {"no feasible plan: llama3-70b", "the nearest, ", "GiB on stage", "states", "activations",
                    "the smallest cluster found on which a plan fits has"});
    WordList with_json = words;
    with_json.emplace_back("--json");
    const CommandResult result = here.run(with_json);
    EXPECT_EQ(result.exit_code, 3);
    EXPECT_EQ(against_schema(result.out), "");
    const json nothing = json::parse(result.out).at("nothing_fits");
    EXPECT_FALSE(nothing.at("memory").at("fits").get<bool>());
    const auto devices = nothing.at("smallest_cluster").at("devices").get<std::int64_t>();
    EXPECT_GT(devices, nothing.at("smallest_cluster").at("largest_without_fit").get<std::int64_t>());
    WordList larger = words;
    larger[6] = std::to_string(devices);
    expect_done(here.run(larger));
}

/// Plans for two ranks of the made-up machine.
WordList shortlist_words(const std::string& folder) {
    return {"plan", "--model",        "tiny-gpt", "--cluster",    "local", "--ranks",
            "2",    "--global-batch", "4",        "--seq",        "32",    "--top",
            "1",    "--shortlist",    "2",        "--output-dir", folder};
}

TEST(PlanShortlist, WritesAWholeFolder) {
    const Workplace here;
    const CommandResult result = here.run(shortlist_words("list"));
    expect_done(result);
    EXPECT_NE(result.out.find("Shortlist in list"), std::string::npos) << result.out;
    EXPECT_EQ(against_schema(here.read("list/shortlist.json")), "");
    const json index = json::parse(here.read("list/shortlist.json"));
    ASSERT_EQ(index.at("choices").size(), 2U);
    for (const json& choice : index.at("choices")) {
        EXPECT_EQ(against_schema(here.read("list/" + choice.at("plan_file").get<std::string>())), "");
        const std::string script = here.path("list/" + choice.at("launch_file").get<std::string>());
        EXPECT_NE(std::filesystem::status(script).permissions() & std::filesystem::perms::owner_exec,
                  std::filesystem::perms::none);
    }
    EXPECT_GE(index.at("choices").at(1).at("distance_from_first").get<double>(), 1);
    for (const std::string& name : here.names()) EXPECT_EQ(name.find(".part"), std::string::npos) << name;
    // A second time it would overwrite.
    expect_refused(here.run(shortlist_words("list")), 2, {"--output-dir: got list", "does not exist yet, or is empty"});
    EXPECT_EQ(json::parse(here.read("list/shortlist.json")), index);
}

TEST(PlanShortlist, NodesOfAClusterGetBatchScripts) {
    const Workplace here;
    WordList words = plan_of_gpt2({"--shortlist", "1", "--output-dir", "list", "--implementation", "orrery"});
    words[6] = "16";
    expect_done(here.run(words));
    const json index = json::parse(here.read("list/shortlist.json"));
    EXPECT_EQ(index.at("choices").at(0).at("launch_file"), "1.sbatch");
    const std::string script = here.read("list/1.sbatch");
    for (const char* part : {"#SBATCH", "srun", "--record", "1.record.json"}) {
        EXPECT_NE(script.find(part), std::string::npos) << part << "\n" << script;
    }
}

TEST(PlanShortlist, RefusesBadFolders) {
    const Workplace here;
    here.write("file", std::string("text"));
    expect_refused(here.run(plan_of_gpt2({"--shortlist", "2"})), 2, {"--shortlist", "--output-dir"});
    expect_refused(here.run(plan_of_gpt2({"--output-dir", "list"})), 2, {"--output-dir", "only with --shortlist"});
    expect_refused(here.run(plan_of_gpt2({"--shortlist", "2", "--output-dir", "file"})), 2, {"--output-dir: got file"});
    expect_refused(here.run(plan_of_gpt2({"--shortlist", "2", "--output-dir", "no/list"})), 2,
                   {"--output-dir: got no/list", "in an existing folder"});
    expect_refused(here.run(plan_of_gpt2({"--shortlist", "0", "--output-dir", "list"})), 2, {"--shortlist"});
    EXPECT_FALSE(here.has("list"));
}

class Pick : public testing::Test {
  protected:
    void SetUp() override {
        expect_done(here.run(shortlist_words("list")));
        for (const char* number : {"1", "2"}) {
            const std::string plan = std::string("list/") + number + ".plan.json";
            expect_done(here.run({"simulate", plan, "--record", record(number)}));
        }
    }
    static std::string record(const std::string& number) { return "list/" + number + ".record.json"; }
    /// Makes a record that looks measured, with steps of this length.
    void measure(const std::string& number, double step_s, std::size_t steps = 20) const {
        json document = json::parse(here.read(record(number)));
        document["maker"] = "executed";
        document["step_time_s"] = document["step_time_p5_s"] = document["step_time_p95_s"] = step_s;
        document["step_seconds"] = std::vector<double>(steps, step_s);
        document.erase("step_time_interval90_s");
        document["environment"] = {{"backend", "cpu"}, {"processor", "a"}};
        here.write(record(number), document);
    }
    void edit(const std::string& number, const std::string& pointer, const json& value) const {
        json document = json::parse(here.read(record(number)));
        document[json::json_pointer(pointer)] = value;
        here.write(record(number), document);
    }
    Workplace here;
};

TEST_F(Pick, TakesTheFastestMeasuredPlan) {
    measure("1", 3.0);
    measure("2", 2.0);
    const CommandResult text = here.run({"plan", "--pick", record("1"), record("2"), "--output", "best.plan.json"});
    expect_done(text);
    for (const char* part : {"picked: choice 2", "50.0% slower: this regret is avoided", "best.plan.json"}) {
        EXPECT_NE(text.out.find(part), std::string::npos) << part << "\n" << text.out;
    }
    EXPECT_EQ(here.read("best.plan.json"), here.read("list/2.plan.json"));
    const CommandResult result = here.run({"plan", "--pick", record("2"), record("1"), "--json"});
    expect_done(result);
    EXPECT_EQ(against_schema(result.out), "");
    EXPECT_EQ(json::parse(result.out).at("picked"), 2);
    EXPECT_DOUBLE_EQ(json::parse(result.out).at("regret_avoided").get<double>(), 0.5);
}

TEST_F(Pick, LeavesOutWhatDidNotComplete) {
    measure("1", 3.0);
    measure("2", 2.0, 5);
    const CommandResult result = here.run({"plan", "--pick", record("1"), record("2")});
    expect_done(result);
    for (const char* part : {"picked: choice 1", "ended after 5 of 20 steps"}) {
        EXPECT_NE(result.out.find(part), std::string::npos) << part << "\n" << result.out;
    }
    const CommandResult alone = here.run({"plan", "--pick", record("1")});
    expect_done(alone);
    EXPECT_NE(alone.out.find("no record"), std::string::npos) << alone.out;
    measure("1", 3.0, 5);
    expect_refused(here.run({"plan", "--pick", record("1"), record("2")}), 2, {"/step_seconds", "20 steps"});
}

TEST_F(Pick, SaysThatPredictionsAreNotMeasurements) {
    const CommandResult result = here.run({"plan", "--pick", record("1"), record("2")});
    expect_done(result);
    EXPECT_NE(result.out.find("nothing was measured"), std::string::npos) << result.out;
    EXPECT_NE(result.out.find("picked: choice 1"), std::string::npos) << result.out;
}

TEST_F(Pick, RefusesRecordsThatCannotBeCompared) {
    const WordList both{"plan", "--pick", record("1"), record("2")};
    measure("1", 3.0);
    expect_refused(here.run(both), 2, {record("2"), "/maker", "predicted", "measured"});
    measure("2", 2.0);
    expect_refused(here.run({"plan", "--pick", record("1"), record("1")}), 2, {record("1"), "one record of each plan"});
    edit("2", "/environment/processor", "b");
    expect_refused(here.run(both), 2, {record("2"), "/environment/processor: got b", "same kind of machine"});
    measure("2", 2.0);
    edit("1", "/environment/backend", "paced");
    expect_refused(here.run(both), 2, {record("1"), "/environment/backend: got paced"});
    measure("1", 3.0);
    edit("2", "/plan", "another");
    expect_refused(here.run(both), 2, {record("2"), "/plan", "another", "a plan of the shortlist"});
}

TEST_F(Pick, RefusesWrongFilesAndOptions) {
    expect_refused(here.run({"plan", "--pick", "list/1.plan.json"}), 2, {"list/1.plan.json", "orrery.run_record/1"});
    expect_refused(here.run({"plan", "--pick", "none.json"}), 2, {"shortlist.json"});
    here.write("alone.record.json", here.read(record("1")));
    expect_refused(here.run({"plan", "--pick", "alone.record.json"}), 2, {"shortlist.json"});
    expect_done(here.run({"plan", "--pick", "alone.record.json", "--output-dir", "list"}));
    expect_refused(here.run({"plan", "--pick", record("1"), "--model", "gpt2"}), 2, {"--pick", "--model"});
    expect_refused(here.run({"plan", "--pick", record("1"), "--output", record("1")}), 2, {"--output"});
    expect_refused(here.run({"plan", "--gpus", "8"}), 2, {"--model is required"});
    json index = json::parse(here.read("list/shortlist.json"));
    index["choices"][0]["speed"] = 1;
    here.write("list/shortlist.json", index);
    expect_refused(here.run({"plan", "--pick", record("1")}), 2, {"shortlist.json", "/choices/0/speed", "unknown key"});
}

TEST(PlanShortlist, LaunchScriptsWriteTheRecords) {
    const Workplace here;
    expect_done(here.run(shortlist_words("list")));
    for (const char* number : {"1", "2"}) {
        const CommandResult run = run_command({"/bin/sh", here.path(std::string("list/") + number + ".sh")},
                                              {.environment = {"ORRERY=" + orrery_path()}});
        EXPECT_EQ(run.exit_code, 0) << run.err;
    }
    const CommandResult result = here.run({"plan", "--pick", "list/1.record.json", "list/2.record.json"});
    expect_done(result);
    EXPECT_NE(result.out.find("picked: choice"), std::string::npos) << result.out;
    EXPECT_EQ(result.out.find("nothing was measured"), std::string::npos) << result.out;
}

}  // namespace
}  // namespace orrery::test
