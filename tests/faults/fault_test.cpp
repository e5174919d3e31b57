// `orrery run` when a rank dies, hangs, throws or meets NaN: the exit code, who is named with which instructions, and
// that nothing of the job is left: no process, no shared memory, no temporary file.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/file.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <functional>
#include <set>
#include <thread>

#include "exec/faults/process_facts.h"
#include "tests/cli/checks.h"

namespace orrery::test {
namespace {

using nlohmann::json;
namespace fs = std::filesystem;

constexpr std::chrono::seconds kSoon{30};  // on a machine that does much else

/// Folders of launchers in shared memory that are held by none.
std::set<std::string> abandoned_folders() {
    std::set<std::string> found;
    std::error_code ignored;
    for (const auto& entry : fs::directory_iterator("/dev/shm", ignored)) {
        if (!entry.path().filename().string().starts_with("orrery-job-")) continue;
        const int folder = open(entry.path().c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        if (folder < 0) continue;
        if (flock(folder, LOCK_EX | LOCK_NB) == 0) found.insert(entry.path().string());
        close(folder);
    }
    return found;
}

/// Another job's may be about to be locked, or to be removed.
void expect_nothing_abandoned() {
    std::set<std::string> left;
    for (int look = 0; look < 50; ++look) {
        left = abandoned_folders();
        if (left.empty()) return;
        usleep(20'000);
    }
    ADD_FAILURE() << *left.begin() << " was left";
}

class Faults : public testing::Test {
  protected:
    Faults() {
        fs::create_directory(here_.path("tmp"));
        here_.write("four.plan.json", local_plan(2, 2));
        here_.write("two.plan.json", local_plan(2));
    }

    /// Runs a plan, or whatever the words say, with a fault; nothing may be left afterwards.
    CommandResult run(const std::string& fault, const std::vector<std::string>& words) {
        SCOPED_TRACE(fault);
        const std::vector<std::string> before = here_.names();
        std::vector<std::string> orphans;
        const auto begin = std::chrono::steady_clock::now();
        const CommandResult result = here_.run(words, environment(fault), &orphans);
        EXPECT_LT(std::chrono::steady_clock::now() - begin, kSoon);
        EXPECT_TRUE(orphans.empty()) << orphans.front() << " outlived the job";
        EXPECT_EQ(here_.names(), before);
        EXPECT_TRUE(fs::is_empty(here_.path("tmp"))) << *fs::directory_iterator(here_.path("tmp"));
        expect_nothing_abandoned();
        return result;
    }

    /// One rank, without mpirun. Open MPI keeps a daemon for it, which goes, and its files, a moment later.
    CommandResult run_alone(const std::string& fault) {
        std::vector<std::string> orphans;
        const CommandResult result =
            here_.run({"run", "one.plan.json", "--steps", "5"}, {.environment = {"ORRERY_FAULT=" + fault}}, &orphans);
        EXPECT_TRUE(orphans.empty()) << orphans.front() << " outlived the job";
        return result;
    }

    CommandOptions environment(const std::string& fault) const {
        return {
            .environment = {"TMPDIR=" + here_.path("tmp"), fault.empty() ? "ORRERY_FAULT" : "ORRERY_FAULT=" + fault}};
    }

    /// Of the plan for four ranks.
    void expect_fails(const std::string& fault, int exit_code, const std::vector<std::string>& words,
                      const std::string& timeout = "0") {
        SCOPED_TRACE(fault);
        expect_says(run(fault, {"run", "four.plan.json", "--steps", "10", "--warm-up", "0", "--record", "r.json",
                                "--timeout", timeout}),
                    exit_code, words);
    }

    static void expect_says(const CommandResult& result, int exit_code, const std::vector<std::string>& words) {
        EXPECT_EQ(result.signal, 0);
        EXPECT_EQ(result.exit_code, exit_code);
        EXPECT_EQ(result.out, "");
        for (const std::string& word : words) {
            EXPECT_NE(result.err.find(word), std::string::npos) << "no " << word << " in: " << result.err;
        }
    }

    /// Runs a command and does `interfere` with its process once its ranks have had time to train.
    CommandResult run_and(const std::vector<std::string>& words, const std::function<void(pid_t)>& interfere) {
        CommandResult result;
        std::thread command([&] { result = run("", words); });
        wait_for_ranks();
        const std::vector<pid_t> children = exec::children_of(getpid());
        EXPECT_EQ(children.size(), 1U);
        if (!children.empty()) interfere(children.front());
        command.join();
        return result;
    }

    /// The mpirun that the process, or a child of it, has started; 0: none yet.
    static pid_t mpirun_below(pid_t process) {
        for (const pid_t child : exec::children_of(process)) {
            std::string name;
            std::getline(std::ifstream("/proc/" + std::to_string(child) + "/comm"), name);
            const pid_t found = name == "mpirun" ? child : mpirun_below(child);
            if (found != 0) return found;
        }
        return 0;
    }
    /// Returns once mpirun has ranks, which compute for longer than they start.
    static void wait_for_ranks() {
        for (int look = 0; look < 3000; ++look) {
            const pid_t mpirun = mpirun_below(getpid());
            if (mpirun != 0 && exec::children_of(mpirun).size() > 1) break;
            usleep(10'000);
        }
        usleep(700'000);
    }

    Workplace here_;
};

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

TEST_F(Faults, RankThatIsStoppedIsNamedAndNotThoseThatWait) {
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

/// Longer than the timeout in one instruction, while all others wait.
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

TEST_F(Faults, ExceptionIsSaidOnceWithItsRankAndInstructions) {
    const std::string at = ",step=1,at=layers.3/forward";
    const auto expect_one_line = [&](const std::string& kind, int exit_code, const std::string& words) {
        const CommandResult result = run(kind + ":rank=2" + at, {"run", "four.plan.json", "--steps", "500"});
        expect_refused(result, exit_code, {"orrery: rank 2: " + words + ": step 1, ", "next layers.3/forward/c0/mb0/"});
    };
    expect_one_line("fail", 1, "thrown on purpose");
    expect_one_line("oom", 1, "out of memory");
    expect_one_line("bug", 70, "this is a bug of ours: thrown on purpose");
    here_.write("one.plan.json", local_plan());
    const CommandResult alone = run_alone("fail:rank=0" + at);
    expect_refused(alone, 1, {"rank 0: thrown on purpose: step 1, ", "next layers.3/forward/c0/mb"});
}

TEST_F(Faults, LossThatIsNotFiniteNamesRankStepAndTensor) {
    const CommandResult two = run("nan:rank=1,step=2", {"run", "two.plan.json", "--steps", "5"});
    expect_refused(two, 1,
                   {"rank 1: the loss of step 2 is not finite: element 0 of ", " is nan: step 2", "next head/"});
    here_.write("one.plan.json", local_plan());
    const CommandResult one = run_alone("nan:rank=0,step=2");
    expect_refused(one, 1, {"rank 0: the loss of step 2 is not finite: element 0 of ", " is nan: step 2"});
}

TEST_F(Faults, StepsCountOnWhereARunGoesOn) {
    here_.write("one.plan.json", local_plan());
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
    // After the last loss of the step: only gradients can tell.
    const CommandResult result =
        run("nan:rank=1,step=2,at=head/backward/c0/mb3", {"run", "clips.plan.json", "--steps", "5"});
    expect_refused(result, 1, {": the gradient norm of step 2 is not finite: element ", " is nan: step 2"});
}

/// A rank that was reading another's memory when that one went may say so, in Open MPI's words, before.
void expect_stopped(const CommandResult& result, int signal) {
    EXPECT_EQ(result.signal, 0);
    EXPECT_EQ(result.exit_code, 128 + signal);
    EXPECT_EQ(result.out, "");
    EXPECT_NE(result.err.find("orrery: stopped by signal " + std::to_string(signal)), std::string::npos) << result.err;
}

TEST_F(Faults, UserWhoEndsTheCommandEndsTheJob) {
    const std::vector<std::string> command{"run", "four.plan.json", "--steps", "1000000", "--quiet"};
    for (const int signal : {SIGINT, SIGTERM}) {
        const CommandResult result = run_and(command, [&](pid_t launcher) { kill(launcher, signal); });
        expect_stopped(result, signal);
    }
    here_.write("tp2.plan.json", local_plan(1, 2));
    const CommandResult result =
        run_and({"validate", "tp2.plan.json", "--steps", "1000000"}, [](pid_t validate) { kill(validate, SIGTERM); });
    expect_stopped(result, SIGTERM);
}

TEST_F(Faults, KilledMpirunTakesItsRanksAlong) {
    const CommandResult result = run_and({"run", "four.plan.json", "--steps", "1000000", "--quiet"},
                                         [](pid_t launcher) { kill(mpirun_below(launcher), SIGKILL); });
    expect_says(result, 1, {"orrery: "});
}

// Under the user's own mpirun nobody reads along: the ranks find out by themselves.

class UnderMpirun : public Faults {
  protected:
    CommandResult run_ranks(const std::string& fault, const std::vector<std::string>& words) {
        std::vector<std::string> all{"mpirun", "--quiet", "--oversubscribe"};
        all.insert(all.end(), words.begin(), words.end());
        CommandOptions options{.environment = mpirun_environment()};
        if (!fault.empty()) options.environment.push_back("ORRERY_FAULT=" + fault);
        options.working_folder = here_.path("");
        std::vector<std::string> orphans;
        const CommandResult result = run_command(all, options, &orphans);
        EXPECT_TRUE(orphans.empty()) << orphans.front() << " outlived the job";
        return result;
    }
};

TEST_F(UnderMpirun, NeighbourNamesTheRankThatIsStopped) {
    const CommandResult result = run_ranks("stop:rank=1,step=3,at=tp.reduce",
                                           {"-np", "4", orrery_path(), "run", "four.plan.json", "--timeout", "2"});
    expect_says(result, 1, {"orrery: rank 1 does not respond for 2 s, when last heard of: "});
}

TEST_F(UnderMpirun, RankThatHangsSaysSoItself) {
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

TEST_F(Faults, FaultsThatAreNoneAreRefused) {
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
