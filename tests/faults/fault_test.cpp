// `orrery run` when a rank dies, hangs, throws or computes NaN: the exit code, the rank and instructions in the
// message, and that the job leaves no process, shared memory or temporary file behind.
#include <gtest/gtest.h>
#include <signal.h>

#include <chrono>

#include "tests/faults/running_job.h"

namespace orrery::test {
namespace {

using nlohmann::json;

const char* const kPlaces[] = {"init", "layers.1/forward", "tp.reduce"};

TEST_F(Faults, RankThatIsKilledIsNamedWithItsInstructions) {
    for (const int rank : {0, 2, 3}) {
        for (const std::string place : kPlaces) {
            const std::string who = "rank=" + std::to_string(rank);
            const std::string says = "orrery: rank " + std::to_string(rank) + " was killed by signal 9 (SIGKILL)";
            if (place == "init") {
                expect_fails("kill:" + who + ",at=init", 1, {says, "while it started"});
            } else {
                const std::string next = place == "tp.reduce" ? "tp.reduce" : "next layers.1/forward/c0/mb0/";
                expect_fails("kill:" + who + ",step=1,at=" + place, 1,
                             {says, "step 1, last finished ", next, "\n  rank 1: "});
            }
        }
    }
}

TEST_F(Faults, StoppedRankIsNamedNotTheRanksThatWait) {
    int rank = 0;
    for (const std::string place : kPlaces) {
        const std::string number = std::to_string(rank);
        expect_fails(
            "stop:rank=" + number + (place == "init" ? "" : ",step=1") + ",at=" + place, 1,
            {"orrery: rank " + number + " does not respond for 2 s, its process is stopped: ",
             place == "init" ? "while it started" : "step 1, last finished ", place == "init" ? "" : "waits for "},
            "2");
        rank = rank == 0 ? 2 : 3;
    }
}

TEST_F(Faults, RankThatSleepsInAnInstructionHangs) {
    expect_fails("hang:rank=2,step=1,at=layers.2/backward", 1,
                 {"orrery: rank 2 hangs: for 2 s it neither computed nor waited for a message: step 1, last finished ",
                  "next layers.2/backward/c0/mb0/", "waits for a message from rank 2"},
                 "2");
}

/// The rank computes one instruction for longer than the timeout, while all others wait.
TEST_F(Faults, SlowRankIsNoFault) {
    expect_done(run("slow:rank=1,step=1,at=layers.0/forward",
                    {"run", "four.plan.json", "--steps", "2", "--quiet", "--timeout", "1"}));
}

TEST_F(Faults, RankThatCrashesOrLeavesIsNamed) {
    expect_fails("crash:rank=1,step=1,at=head/backward", 1,
                 {"orrery: rank 1 was killed by signal 11 (SIGSEGV): step 1, last finished ", "next head/backward"});
    expect_fails("exit:rank=3,step=1,at=head/backward", 1,
                 {"orrery: rank 3 ended with exit code 3 before its work was done: step 1", "next head/backward"});
}

TEST_F(Faults, ExceptionIsReportedOnceWithItsRankAndInstructions) {
    const std::string at = ",step=1,at=layers.3/forward";
    const auto expect_one_line = [&](const std::string& kind, int exit_code, const std::string& words) {
        const CommandResult result = run(kind + ":rank=2" + at, {"run", "four.plan.json", "--steps", "500"});
        expect_refused(result, exit_code, {"orrery: rank 2: " + words + ": step 1, ", "next layers.3/forward/c0/mb0/"});
    };
    expect_one_line("fail", 1, "thrown on purpose");
    expect_one_line("oom", 1, "out of memory");
    expect_one_line("bug", 70, "this is a bug in Orrery: thrown on purpose");
    const CommandResult alone = run_alone("fail:rank=0" + at);
    expect_refused(alone, 1, {"rank 0: thrown on purpose: step 1, ", "next layers.3/forward/c0/mb"});
}

TEST_F(Faults, LossThatIsNotFiniteNamesRankStepAndTensor) {
    const CommandResult two = run("nan:rank=1,step=2", {"run", "two.plan.json", "--steps", "5"});
    expect_refused(two, 1,
                   {"rank 1: the loss of step 2 is not finite: element 0 of ", " is nan: step 2", "next head/"});
    const CommandResult one = run_alone("nan:rank=0,step=2");
    expect_refused(one, 1, {"rank 0: the loss of step 2 is not finite: element 0 of ", " is nan: step 2"});
}

TEST_F(Faults, StepNumbersContinueInAResumedRun) {
    expect_done(
        here_.run({"run", "one.plan.json", "--warm-up", "0", "--steps", "3", "--checkpoint", "saved", "--quiet"}));
    const CommandResult result = here_.run({"run", "one.plan.json", "--steps", "5", "--resume", "saved"},
                                           {.environment = {"ORRERY_FAULT=nan:rank=0,step=4"}});
    expect_refused(result, 1, {"rank 0: the loss of step 4 is not finite: element 0 of ", " is nan: step 4"});
}

TEST_F(Faults, GradientNormThatIsNotFiniteStopsTheStep) {
    json plan = local_plan(2);
    plan["training"]["optimizer"] = {{"clip_norm", 1.0}};
    here_.write("clips.plan.json", plan);
    // The fault comes after the last loss of the step, so only the gradients show it.
    const CommandResult result =
        run("nan:rank=1,step=2,at=head/backward/c0/mb3", {"run", "clips.plan.json", "--steps", "5"});
    expect_refused(result, 1, {": the gradient norm of step 2 is not finite: element ", " is nan: step 2"});
}

TEST_F(Faults, KillingMpirunEndsItsRanks) {
    const CommandResult result = run_and({"run", "four.plan.json", "--steps", "1000000", "--quiet"},
                                         [](pid_t launcher) { kill(starter_below(launcher), SIGKILL); });
    expect_says(result, 1, {"orrery: mpirun was killed by signal 9 (SIGKILL)"});
}

TEST_F(Faults, StoppedMpirunIsDetectedWithinTheTimeout) {
    const auto begin = std::chrono::steady_clock::now();
    const CommandResult result = run_and({"run", "four.plan.json", "--steps", "1000000", "--quiet", "--timeout", "2"},
                                         [](pid_t launcher) { kill(starter_below(launcher), SIGSTOP); });
    EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(15));
    expect_says(result, 1, {"orrery: mpirun does not respond for 2 s, its process is stopped"});
}

TEST_F(UnderMpirun, NeighbourNamesTheRankThatIsStopped) {
    const CommandResult result = run_ranks("stop:rank=1,step=3,at=tp.reduce",
                                           {"-np", "4", orrery_path(), "run", "four.plan.json", "--timeout", "2"});
    expect_says(result, 1, {"orrery: rank 1 does not respond for 2 s, when last heard of: "});
}

TEST_F(UnderMpirun, HangingRankReportsItself) {
    const CommandResult result = run_ranks("hang:rank=2,step=1,at=layers.2/backward",
                                           {"-np", "4", orrery_path(), "run", "four.plan.json", "--timeout", "2"});
    expect_says(result, 1, {"orrery: rank 2 hangs: ", "step 1, last finished ", "next layers.2/backward/c0/mb0/"});
}

TEST_F(UnderMpirun, SlowRankIsNoFault) {
    expect_done(run_ranks("slow:rank=1,step=1,at=layers.0/forward", {"-np", "4", orrery_path(), "run", "four.plan.json",
                                                                     "--steps", "2", "--quiet", "--timeout", "1"}));
}

TEST_F(UnderMpirun, PlanFilesThatDifferAreRefusedBeforeTraining) {
    json other = local_plan(2, 2);
    other["training"]["global_batch_size"] = 16;
    here_.write("other.plan.json", other);
    const auto mixed = [&](const std::string& second) {
        return run_ranks(
            "", {"-np", "2", orrery_path(), "run", "four.plan.json", ":", "-np", "2", orrery_path(), "run", second});
    };
    expect_refused(mixed("other.plan.json"), 2,
                   {"rank 2: other.plan.json on ", ": /training/global_batch_size: got 16; allowed: 8"});
    expect_refused(mixed("two.plan.json"), 2, {"rank 2: two.plan.json on ", ": /parallelism/tp: got 1; allowed: 2"});
}

TEST_F(Faults, InvalidFaultsAreRefused) {
    for (const auto& [fault, words] : std::vector<std::pair<std::string, std::string>>{
             {"melt:rank=0", "got melt; allowed: kill, stop"},
             {"kill", "got kill; allowed: a fault with rank=R"},
             {"kill:rank=x", "ORRERY_FAULT: rank: got x; allowed: 0, 1"},
             {"kill:rank=0,when=1", "got when=1; allowed: rank=R, step=S, at=TEXT"}}) {
        expect_refused(run(fault, {"run", "four.plan.json"}), 2, {"environment: ORRERY_FAULT", words});
    }
}

}  // namespace
}  // namespace orrery::test
