// `orrery run` and `validate` with several processes: errors before the start, and failures.
#include <gtest/gtest.h>

#include "tests/cli/checks.h"
#include "tests/house/json_schema.h"

namespace orrery::test {
namespace {

using nlohmann::json;

/// Expects a refusal or failure with one line, no process left and no file written.
void expect_job_refused(const Workplace& here, const std::vector<std::string>& command, int exit_code,
                        const std::vector<std::string>& words, const CommandOptions& options = {}) {
    SCOPED_TRACE(testing::PrintToString(command));
    const std::vector<std::string> before = here.names();
    std::vector<std::string> orphans;
    expect_refused(here.run(command, options, &orphans), exit_code, words);
    EXPECT_TRUE(orphans.empty()) << orphans.front();
    EXPECT_EQ(here.names(), before);
}

TEST(Run, RefusesFeaturesThatAreSimulatedOnly) {
    const Workplace here;
    // Without mpirun in PATH, so the refusal comes before anything is started.
    const CommandOptions no_mpirun{.environment = {"PATH=" + here.path("")}};
    json plan = small_plan(2);
    plan["training"]["precision"] = "tf32";
    here.write("tf32.plan.json", plan);
    for (const char* command : {"run", "validate"}) {
        expect_job_refused(here, {command, "tf32.plan.json"}, 2,
                           {"tf32.plan.json: /training/precision: got tf32; allowed: \"fp32\", \"bf16\""}, no_mpirun);
    }
}

TEST(Run, PlansOfOtherImplementationsAreLoweredAgain) {
    const Workplace here;
    json plan = small_plan(2);
    plan["implementation"] = "megatron-lm-2022";
    here.write("megatron.plan.json", plan);
    const CommandResult result = here.run({"run", "megatron.plan.json", "--on-cpu", "--steps", "1", "--warm-up", "0"});
    EXPECT_EQ(result.exit_code, 0) << result.err;
    const std::string line = "is for megatron-lm-2022 and is run by orrery, which differs in ";
    EXPECT_NE(result.err.find(line), std::string::npos) << result.err;
    EXPECT_EQ(result.err.find(line), result.err.rfind(line)) << "printed more than once: " << result.err;
}

TEST(Run, DetailsShowEachStage) {
    const Workplace here;
    here.write("p.plan.json", small_plan(1, 1, 4));
    const std::vector<std::string> run{"run", "p.plan.json", "--on-cpu", "--steps", "1", "--warm-up", "0"};
    std::vector<std::string> details = run;
    details.emplace_back("--details");
    const CommandResult brief = here.run(run), each = here.run(details);
    EXPECT_NE(brief.out.find("of 4 stages (--details: of each)"), std::string::npos) << brief.out << brief.err;
    EXPECT_EQ(each.out.find("--details"), std::string::npos) << each.out;
    EXPECT_NE(each.out.find("stage 2"), std::string::npos) << each.out << each.err;
}

TEST(Run, PlansForGpusNeedAGpuOrOnCpu) {
    const Workplace here;
    here.write("gpu.plan.json", small_plan());
    if (std::filesystem::exists("/dev/nvidiactl")) GTEST_SKIP() << "this machine has a GPU";
    for (const char* command : {"run", "validate"}) {
        expect_job_refused(here, {command, "gpu.plan.json"}, 2,
                           {"gpu.plan.json: /cluster: got dgx-h100; allowed: a cluster of CPUs", "--on-cpu"});
    }
    expect_done(here.run({"run", "gpu.plan.json", "--on-cpu", "--steps", "1", "--warm-up", "0", "--quiet"}));
}

TEST(Run, TheBackendMayBeNamed) {
    const Workplace here;
    here.write("gpu.plan.json", small_plan());
    here.write("two.plan.json", small_plan(2));
    here.write("cpu.plan.json", local_plan());
    for (const char* plan : {"gpu.plan.json", "two.plan.json", "cpu.plan.json"}) {
        expect_done(here.run({"run", plan, "--backend", "cpu", "--steps", "1", "--warm-up", "0", "--quiet"}));
    }
    expect_refused(here.run({"run", "cpu.plan.json", "--backend", "cuda"}), 2,
                   {"cpu.plan.json: /cluster: got", "allowed: a cluster of GPUs with --backend cuda"});
    expect_refused(here.run({"run", "gpu.plan.json", "--backend", "tpu"}), 2, {"--backend", "tpu", "cpu", "cuda"});
    expect_refused(here.run({"run", "gpu.plan.json", "--backend", "cpu", "--emulated"}), 2,
                   {"--backend: got cpu; allowed: cuda, because --emulated emulates GPUs"});
    expect_refused(here.run({"run", "gpu.plan.json", "--backend", "cuda", "--on-cpu"}), 2, {"--on-cpu", "--backend"});
    // A paced run computes nothing, on whatever machine.
    expect_refused(here.run({"run", "gpu.plan.json", "--backend", "cuda", "--paced", "record.json"}), 2,
                   {"--backend", "--paced"});
    expect_refused(here.run({"run", "gpu.plan.json", "--on-cpu", "--paced", "record.json"}), 2,
                   {"--on-cpu", "--paced"});
    if (std::filesystem::exists("/dev/nvidiactl")) return;
    expect_refused(here.run({"run", "gpu.plan.json", "--backend", "cuda"}), 2,
                   {"gpu.plan.json: /cluster: got dgx-h100; allowed: a cluster of CPUs"});
}

TEST(Run, DeterministicRunsHaveTheSameLossesToTheLastBit) {
    const Workplace here;
    json plan = local_plan(2, 2);
    plan["parallelism"]["sequence_parallel"] = true;
    here.write("four.plan.json", plan);
    std::vector<std::vector<double>> losses;
    for (const char* record : {"first.json", "second.json"}) {
        expect_done(here.run({"run", "four.plan.json", "--deterministic", "--steps", "4", "--warm-up", "0", "--quiet",
                              "--record", record}));
        losses.push_back(json::parse(here.read(record)).at("losses").get<std::vector<double>>());
    }
    EXPECT_EQ(losses[0].size(), 4U);
    EXPECT_EQ(losses[0], losses[1]);
}

TEST(Run, RefusesDataBeforeItStarts) {
    const Workplace here;
    const CommandOptions no_mpirun{.environment = {"PATH=" + here.path("")}};
    json plan = small_plan(2);
    plan["model"] = "gpt2";
    plan["training"]["data"] = "absent.txt";
    here.write("data.plan.json", plan);
    for (const char* command : {"run", "validate"}) {
        expect_job_refused(here, {command, "data.plan.json"}, 2,
                           {"data.plan.json: /training/data: absent.txt: cannot be read"}, no_mpirun);
    }
    plan["training"]["data"] = here.write("short.txt", std::string("short"));
    here.write("data.plan.json", plan);
    expect_job_refused(here, {"run", "data.plan.json"}, 2,
                       {"data.plan.json: /training/data: short.txt", "5 bytes", "at least", "34 bytes"}, no_mpirun);
}

TEST(Run, RefusesOutputsThatCannotBeWrittenBeforeItStarts) {
    const Workplace here;
    const CommandOptions no_mpirun{.environment = {"PATH=" + here.path("")}};
    here.write("dp2.plan.json", local_plan(2));
    for (const char* option : {"--record", "--trace", "--gradients"}) {
        expect_job_refused(here, {"run", "dp2.plan.json", option, "absent/file"}, 2,
                           {"absent/file: " + std::string(option), "allowed: a file in an existing folder"}, no_mpirun);
    }
}

TEST(Run, LongRunsKeepTheSpansOfTheirLastSteps) {
    const Workplace here;
    here.write("small.plan.json", local_plan(1, 1));
    expect_done(here.run({"run", "small.plan.json", "--steps", "80", "--quiet", "--record", "r.json"}));
    const json record = json::parse(here.read("r.json"));
    EXPECT_EQ(record.at("step_seconds").size(), 80U);
    EXPECT_EQ(record.at("losses").size(), 82U);
    EXPECT_GT(record.at("ranks").at(0).at("spans").size(), 10U);
}

TEST(Run, NeedsMpirun) {
    const Workplace here;
    here.write("dp2.plan.json", local_plan(2));
    expect_job_refused(here, {"run", "dp2.plan.json"}, 2, {"PATH", "no mpirun found", "openmpi-bin"},
                       {.environment = {"PATH=" + here.path("")}});
}

TEST(Run, UnderMpirunOfAnotherSize) {
    const Workplace here;
    const std::string two = here.path(here.write("dp2.plan.json", local_plan(2)));
    const std::string one = here.path(here.write("one.plan.json", local_plan()));
    const auto under_mpirun = [&](int ranks, const std::string& plan) {
        return run_command({"mpirun", "--quiet", "--oversubscribe", "-np", std::to_string(ranks), orrery_path(), "run",
                            plan, "--steps", "1", "--quiet"},
                           {.environment = mpirun_environment()});
    };
    expect_refused(under_mpirun(3, two), 2, {"world size: got 3; allowed: dp * tp * pp * cp = 2 ranks"});
    expect_refused(under_mpirun(1, two), 2, {"world size: got 1; allowed: dp * tp * pp * cp = 2 ranks"});
    expect_refused(under_mpirun(2, one), 2, {"world size: got 2; allowed: dp * tp * pp * cp = 1 ranks"});
    expect_done(under_mpirun(2, two));
}

/// An error that every rank finds is printed once, before any rank trains.
TEST(Run, UnderMpirunOneRankReportsTheError) {
    const Workplace here;
    const std::string good = here.path(here.write("dp2.plan.json", local_plan(2)));
    json plan = local_plan(2);
    plan["training"]["precision"] = "tf32";
    const std::string bad = here.path(here.write("tf32.plan.json", plan));
    const auto under_mpirun = [&](const std::vector<std::string>& arguments) {
        std::vector<std::string> words{"mpirun", "--quiet", "--oversubscribe", "-np", "2", orrery_path(), "run"};
        words.insert(words.end(), arguments.begin(), arguments.end());
        return run_command(words, {.environment = mpirun_environment()});
    };
    expect_refused(under_mpirun({here.path("absent.json")}), 2, {"absent.json: cannot be read"});
    expect_refused(under_mpirun({bad}), 2,
                   {"tf32.plan.json: /training/precision: got tf32; allowed: \"fp32\", \"bf16\""});
    expect_refused(under_mpirun({good, "--record", here.path("absent/r.json")}), 2, {"absent/r.json: --record"});
}

/// Tasks of srun without --mpi=pmix would each train as a world of one rank, or fail inside MPI.
TEST(Run, TasksThatCannotRendezvousAreRefused) {
    const Workplace here;
    here.write("dp2.plan.json", local_plan(2));
    const auto task = [&](const std::string& number) {
        return here.run({"run", "dp2.plan.json"},
                        {.environment = {"SLURM_PROCID=" + number, "SLURM_STEP_ID=0", "SLURM_STEP_NUM_TASKS=2"}});
    };
    expect_refused(task("0"), 2, {"srun: got 2 tasks without PMIx", "allowed: srun --mpi=pmix"});
    const CommandResult silent = task("1");
    EXPECT_EQ(silent.exit_code, 2);
    EXPECT_EQ(silent.out + silent.err, "");
}

/// On one rank and on two, a failing job prints one line and leaves nothing behind.
TEST(Run, FailsInOneLine) {
    const Workplace here;
    for (const int dp : {1, 2}) {
        SCOPED_TRACE(dp);
        json plan = local_plan(dp);
        plan["training"]["optimizer"] = {{"learning_rate", 1e24}};
        here.write("wild.plan.json", plan);
        expect_job_refused(here, {"run", "wild.plan.json", "--steps", "5", "--record", "r.json"}, 1,
                           {"the loss of step", "is not finite"});
        plan = local_plan(dp);
        plan["model"] = "megatron-1t";
        here.write("huge.plan.json", plan);
        expect_job_refused(here, {"run", "huge.plan.json", "--steps", "1", "--record", "r.json"}, 1,
                           {"stage 0 needs", "GiB", "of free memory"});
    }
}

TEST(Run, OutputsConformToTheirSchemas) {
    const house::SchemaSet schemas = house::repository_schemas(ORRERY_SOURCE_DIR);
    const Workplace here;
    json plan = local_plan(1, 2);
    here.write("tp2.plan.json", plan);
    const CommandResult run = here.run({"run", "tp2.plan.json", "--steps", "2", "--warm-up", "1", "--record", "r.json",
                                        "--trace", "t.json", "--json"});
    expect_done(run);
    EXPECT_EQ(schemas.check(run.out), "");
    EXPECT_EQ(run.out, here.read("r.json"));
    EXPECT_EQ(json::parse(run.out).at("losses").size(), 3U);
    EXPECT_EQ(json::parse(run.out).at("step_seconds").size(), 2U);
    EXPECT_GT(json::parse(here.read("t.json")).at("traceEvents").size(), 100U);

    const CommandResult validate =
        here.run({"validate", "tp2.plan.json", "--steps", "2", "--warm-up", "1", "--traces", "traces", "--json"});
    expect_done(validate);
    EXPECT_EQ(schemas.check(validate.out), "");
    EXPECT_TRUE(here.has("traces/small.trace.json"));
}

TEST(Run, TrainsOnText) {
    const Workplace here;
    json plan = local_plan(2);
    plan["model"] = json::parse(orrery({"models", "tiny-gpt", "--json"}).out);
    plan["model"]["vocab"] = 256;
    std::string text;
    for (int i = 0; i < 200; ++i) text += "The planets turn, and the gears with them. ";
    plan["training"]["data"] = here.write("text.txt", text);
    plan["training"]["optimizer"] = {{"learning_rate", 3e-3}};
    here.write("text.plan.json", plan);
    const CommandResult result = here.run({"run", "text.plan.json", "--steps", "30", "--json"});
    expect_done(result);
    const auto losses = json::parse(result.out).at("losses").get<std::vector<double>>();
    EXPECT_NEAR(losses.front(), 5.5, 0.2);  // ln 256
    EXPECT_LT(losses.back(), 3.5);
}

}  // namespace
}  // namespace orrery::test
