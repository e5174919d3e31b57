// `orrery run` without MPI starts the ranks itself: what it says and returns when one of them dies, hangs or throws, or
// when the user ends it, and that nothing is left behind. tests/faults does the same with mpirun.
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>

#include "exec/faults/process_facts.h"
#include "tests/emulator/emulated_faults.h"

namespace orrery::test {
namespace {

using nlohmann::json;

class LaunchedFaults : public EmulatedFaults {
  protected:
    void expect_ends(const std::string& fault, int exit_code, const std::vector<std::string>& words,
                     const std::string& timeout = "0") {
        SCOPED_TRACE(fault);
        const CommandResult result = run(fault, {"run", "two.plan.json", "--steps", "10", "--warm-up", "0", "--record",
                                                 "r.json", "--timeout", timeout});
        expect_says(result, exit_code, words);
        EXPECT_EQ(result.err.find("mpirun"), std::string::npos) << result.err;
        EXPECT_EQ(result.err.find("has ended"), std::string::npos) << "another rank reports, too: " << result.err;
    }
};

TEST_F(LaunchedFaults, RanksTrainAsOneRankDoes) {
    here_.write("one.plan.json", [] {
        json plan = gpu_plan(1);
        plan["training"]["global_batch_size"] = 2;
        return plan;
    }());
    std::vector<std::vector<double>> losses;
    for (const std::string name : {"one", "two"}) {
        const CommandResult result =
            run("", {"run", name + ".plan.json", "--steps", "2", "--warm-up", "0", "--record", name + ".json"},
                {name + ".json"});
        expect_done(result);
        EXPECT_EQ(result.out.find("small (on emulated GPUs)"), 0U) << result.out;
        EXPECT_NE(result.out.find("loss by step: "), std::string::npos) << result.out;
        losses.push_back(json::parse(here_.read(name + ".json")).at("losses").get<std::vector<double>>());
    }
    ASSERT_EQ(losses[0].size(), losses[1].size());
    for (std::size_t step = 0; step < losses[0].size(); ++step) EXPECT_NEAR(losses[0][step], losses[1][step], 1e-4);
}

TEST_F(LaunchedFaults, RankThatIsKilledIsNamedWithItsInstructions) {
    for (const int rank : {0, 1}) {
        const std::string who = "rank=" + std::to_string(rank);
        const std::string says = "orrery: rank " + std::to_string(rank) + " was killed by signal 9 (SIGKILL)";
        const std::string other = "\n  rank " + std::to_string(1 - rank) + ": ";
        expect_ends("kill:" + who + ",at=init", 1, {says, "while it started", other});
        expect_ends("kill:" + who + ",step=1,at=layers.1/forward", 1,
                    {says, "step 1, last finished ", "next layers.1/forward/c0/mb0/", other});
        expect_ends("kill:" + who + ",step=1,at=dp.", 1, {says, "step 1, last finished ", "dp.", other});
    }
}

TEST_F(LaunchedFaults, RankThatCrashesOrLeavesIsNamed) {
    expect_ends("crash:rank=1,step=1,at=head/backward", 1,
                {"orrery: rank 1 was killed by signal 11 (SIGSEGV): step 1, last finished ", "next head/backward"});
    expect_ends("exit:rank=0,step=1,at=head/backward", 1,
                {"orrery: rank 0 ended with exit code 3 before its work was done: step 1", "next head/backward"});
}

TEST_F(LaunchedFaults, ExceptionIsReportedOnceWithItsRank) {
    const auto expect_one_line = [&](const std::string& kind, int exit_code, const std::string& words) {
        const CommandResult result =
            run(kind + ":rank=1,step=1,at=layers.1/forward", {"run", "two.plan.json", "--steps", "500"});
        expect_refused(result, exit_code, {"orrery: rank 1: " + words + ": step 1, ", "next layers.1/forward/c0/mb0/"});
    };
    expect_one_line("fail", 1, "thrown on purpose");
    expect_one_line("bug", 70, "this is a bug in Orrery: thrown on purpose");
}

TEST_F(LaunchedFaults, RankThatHangsOrIsStoppedIsNamed) {
    expect_ends("hang:rank=1,step=1,at=layers.1/forward", 1,
                {"orrery: rank 1 hangs: for 2 s it neither computed nor waited for a message: step 1, ",
                 "next layers.1/forward/c0/mb0/", "\n  rank 0: ", "runs on the device"},
                "2");
    expect_ends("stop:rank=0,step=1,at=dp.", 1,
                {"orrery: rank 0 does not respond for 2 s, its process is stopped: step 1, "}, "2");
    expect_ends("stop:rank=1,at=init", 1,
                {"orrery: rank 1 does not respond for 2 s, its process is stopped: while it started"}, "2");
}

TEST_F(LaunchedFaults, RankThatComputesNanIsNamed) {
    expect_ends("nan:rank=1,step=1,at=layers.0/forward", 1, {"orrery: rank 1: the loss of step 1 is not finite"});
}

/// The host is ahead of the device, and must not save what it has not seen.
TEST_F(LaunchedFaults, NanIsNotSaved) {
    const CommandResult result = run(
        "nan:rank=0,step=2,at=layers.0/forward",
        {"run", "two.plan.json", "--steps", "6", "--warm-up", "0", "--checkpoint", "saved", "--checkpoint-every", "1"},
        {"saved"});
    expect_says(result, 1, {"rank 0: the loss of step 2 is not finite"});
    EXPECT_TRUE(std::filesystem::exists(here_.path("saved/step-00000002")));
    EXPECT_FALSE(std::filesystem::exists(here_.path("saved/step-00000003")));
}

TEST_F(LaunchedFaults, StarterThatIsKilledEndsTheJob) {
    const CommandResult result = run_and({"run", "two.plan.json", "--steps", "1000000", "--quiet"},
                                         [](pid_t launcher) { kill(starter_below(launcher), SIGKILL); });
    expect_says(result, 1, {"orrery: the starter of the ranks was killed by signal 9 (SIGKILL)"});
}

TEST_F(LaunchedFaults, StarterThatIsStoppedIsDetected) {
    const CommandResult result = run_and({"run", "two.plan.json", "--steps", "1000000", "--quiet", "--timeout", "2"},
                                         [](pid_t launcher) { kill(starter_below(launcher), SIGSTOP); });
    expect_says(result, 1, {"orrery: the starter of the ranks does not respond for 2 s, its process is stopped"});
}

TEST_F(LaunchedFaults, NoRankOutlivesALauncherThatIsKilled) {
    const CommandResult result = run_and({"run", "two.plan.json", "--steps", "1000000", "--quiet"},
                                         [](pid_t launcher) { kill(launcher, SIGKILL); });
    EXPECT_EQ(result.signal, SIGKILL);
}

TEST_F(LaunchedFaults, SignalEndsTheTrainingAfterTheStep) {
    for (const auto& [signal, name] : {std::pair{SIGINT, "SIGINT"}, {SIGTERM, "SIGTERM"}}) {
        const std::vector<std::string> words{"run",     "two.plan.json", "--steps", "1000000",      "--warm-up", "0",
                                             "--quiet", "--record",      "r.json",  "--checkpoint", "saved"};
        const CommandResult result =
            run_and(words, [signal = signal](pid_t launcher) { kill(launcher, signal); }, {"r.json", "saved"});
        EXPECT_EQ(result.signal, 0);
        EXPECT_EQ(result.exit_code, 128 + signal);
        EXPECT_EQ(result.out, "");
        EXPECT_EQ(result.err, "orrery: " + std::string(name) +
                                  ": the training ends after this step; a second signal ends it at once\n");
        const json record = json::parse(here_.read("r.json"));
        const std::size_t steps = record.at("losses").size();
        EXPECT_GT(steps, 0U);
        EXPECT_EQ(record.at("notes").back(),
                  "ended by " + std::string(name) + " after " + std::to_string(steps) + " of 1000000 steps");
        std::filesystem::remove(here_.path("r.json"));
        std::filesystem::remove_all(here_.path("saved"));
    }
}

TEST_F(LaunchedFaults, SignalBeforeTheFirstStepEndsTheJobAtOnce) {
    CommandResult result;
    std::thread command([&] { result = run("stop:rank=1,at=init", {"run", "two.plan.json", "--quiet"}); });
    while (starter_below(getpid()) == 0) usleep(10'000);
    usleep(300'000);
    kill(exec::children_of(getpid()).front(), SIGTERM);
    command.join();
    EXPECT_EQ(result.exit_code, 128 + SIGTERM);
    EXPECT_NE(result.err.find("orrery: stopped by signal 15 (SIGTERM)"), std::string::npos) << result.err;
}

TEST_F(LaunchedFaults, ErrorsOfThePlanAreReportedBeforeRanksStart) {
    here_.write("cpu.plan.json", local_plan(2));
    expect_refused(run("", {"run", "cpu.plan.json"}), 2, {"cpu.plan.json", "built without MPI"});
    expect_refused(run("", {"run", "two.plan.json", "--record", "absent/r.json"}), 2, {"absent/r.json: --record"});
}

/// Each of them would otherwise start a job of its own.
TEST_F(LaunchedFaults, TasksOfALauncherForMpiAreRefused) {
    for (const auto& variables : std::vector<std::vector<std::string>>{
             {"OMPI_COMM_WORLD_SIZE=2", "OMPI_COMM_WORLD_RANK=0"},
             {"SLURM_PROCID=0", "SLURM_STEP_ID=0", "SLURM_STEP_NUM_TASKS=2", "OMPI_COMM_WORLD_SIZE"}}) {
        CommandOptions options = environment("");
        options.environment.insert(options.environment.end(), variables.begin(), variables.end());
        expect_refused(here_.run({"run", "two.plan.json"}, options), 2,
                       {"got 2 tasks", "built without MPI", "RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT"});
    }
    CommandOptions alone = environment("");
    alone.environment.emplace_back("OMPI_COMM_WORLD_SIZE=1");
    alone.environment.emplace_back("OMPI_COMM_WORLD_LOCAL_RANK=0");  // not that of the ranks that it starts
    expect_done(here_.run({"run", "two.plan.json", "--steps", "1", "--warm-up", "0", "--quiet"}, alone));
}

}  // namespace
}  // namespace orrery::test
