// Graceful stop: on SIGINT or SIGTERM the ranks complete the current step, and the run writes its results and
// checkpoint.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <filesystem>
#include <thread>

#include "exec/faults/process_facts.h"
#include "tests/faults/running_job.h"

namespace orrery::test {
namespace {

using nlohmann::json;

const std::vector<std::string> kTrain{"--steps",  "1000000",     "--warm-up",    "0",    "--quiet",
                                      "--record", "record.json", "--checkpoint", "saved"};

std::vector<std::string> train(const std::string& plan) {
    std::vector<std::string> words{"run", plan};
    words.insert(words.end(), kTrain.begin(), kTrain.end());
    return words;
}

class EarlyEnd : public UnderMpirun {
  protected:
    /// Expects that record and checkpoint cover the same steps and that the run can be resumed.
    void expect_saved(const std::string& plan, const std::string& signal) {
        const json record = json::parse(here_.read("record.json"));
        const std::size_t steps = record.at("losses").size();
        EXPECT_GT(steps, 0U);
        EXPECT_LT(steps, 1000000U);
        EXPECT_EQ(record.at("step_seconds").size(), steps);
        EXPECT_EQ(record.at("notes").back(),
                  "ended by " + signal + " after " + std::to_string(steps) + " of 1000000 steps");
        char name[32];
        std::snprintf(name, sizeof name, "saved/step-%08zu", steps);
        EXPECT_TRUE(here_.has(name)) << name;
        expect_done(here_.run(
            {"run", plan, "--steps", "1", "--warm-up", "0", "--quiet", "--resume", "saved", "--record", "after.json"}));
        EXPECT_EQ(json::parse(here_.read("after.json")).at("first_step"), steps);
        std::filesystem::remove(here_.path("record.json"));
        std::filesystem::remove(here_.path("after.json"));
        std::filesystem::remove_all(here_.path("saved"));
    }
};

void expect_graceful_end(const CommandResult& result, int signal) {
    EXPECT_EQ(result.signal, 0);
    EXPECT_EQ(result.exit_code, 128 + signal);
    EXPECT_EQ(result.out, "");
}

TEST_F(EarlyEnd, RanksOfALauncherEndAfterTheStep) {
    for (const auto& [signal, name] : {std::pair{SIGINT, "SIGINT"}, {SIGTERM, "SIGTERM"}}) {
        const CommandResult result = run_and(
            train("four.plan.json"), [signal](pid_t launcher) { kill(launcher, signal); }, {"record.json", "saved"});
        expect_graceful_end(result, signal);
        EXPECT_EQ(result.err, "orrery: " + std::string(name) +
                                  ": the training ends after this step; a second signal ends it at once\n");
        expect_saved("four.plan.json", name);
    }
}

TEST_F(EarlyEnd, OneProcessEndsAfterTheStep) {
    const std::vector<std::string> words = train("one.plan.json");
    CommandResult result;
    std::thread command([&] { result = here_.run(words); });
    std::vector<pid_t> children;
    for (int look = 0; look < 3000 && children.empty(); ++look, usleep(10'000)) {
        children = exec::children_of(getpid());
    }
    ASSERT_EQ(children.size(), 1U);
    wait_for_training(children);
    kill(children.front(), SIGTERM);
    command.join();
    expect_graceful_end(result, SIGTERM);
    EXPECT_EQ(result.err, "");
    expect_saved("one.plan.json", "SIGTERM");
}

// srun and torchrun signal every rank, at slightly different times.
TEST_F(EarlyEnd, RanksOfAnotherLauncherAgreeOnTheStep) {
    for (const useconds_t apart_us : {0U, 1'000U, 200'000U}) {
        CommandResult result;
        std::vector<std::string> words{"-np", "4", orrery_path()};
        const std::vector<std::string> own = train("four.plan.json");
        words.insert(words.end(), own.begin(), own.end());
        std::thread command([&] { result = run_ranks("", words); });
        wait_for_ranks(4);
        for (const pid_t rank : exec::children_of(starter_below(getpid()))) {
            kill(rank, SIGTERM);
            usleep(apart_us);
        }
        command.join();
        EXPECT_EQ(result.exit_code, 128 + SIGTERM) << result.err;
        expect_saved("four.plan.json", "SIGTERM");
    }
}

TEST_F(EarlyEnd, SecondSignalEndsAtOnce) {
    const std::vector<std::string> words{"run", "two.plan.json", "--steps", "10", "--quiet", "--timeout", "0"};
    const CommandResult result = run_and(
        words,
        [](pid_t launcher) {
            kill(launcher, SIGINT);
            usleep(300'000);
            kill(launcher, SIGINT);  // counts as the same signal: a terminal and a parent may both send it
            usleep(900'000);
            kill(launcher, SIGTERM);
        },
        {}, "hang:rank=1,step=0,at=layers.1/forward");
    expect_graceful_end(result, SIGTERM);
    EXPECT_NE(result.err.find("orrery: SIGINT: the training ends after this step"), std::string::npos) << result.err;
    EXPECT_NE(result.err.find("orrery: stopped by signal 15 (SIGTERM)"), std::string::npos) << result.err;
}

TEST_F(EarlyEnd, SignalBeforeTheFirstStepEndsTheJobAtOnce) {
    CommandResult result;
    std::thread command([&] { result = run("stop:rank=1,at=init", {"run", "two.plan.json", "--quiet"}); });
    while (starter_below(getpid()) == 0) usleep(10'000);
    usleep(300'000);
    kill(exec::children_of(getpid()).front(), SIGTERM);
    command.join();
    expect_graceful_end(result, SIGTERM);
    EXPECT_NE(result.err.find("orrery: stopped by signal 15 (SIGTERM)"), std::string::npos) << result.err;
}

TEST_F(EarlyEnd, ValidateEndsAfterTheStep) {
    const CommandResult result =
        run_and({"validate", "two.plan.json", "--steps", "1000000"}, [](pid_t validate) { kill(validate, SIGTERM); });
    expect_graceful_end(result, SIGTERM);
    EXPECT_NE(result.err.find("orrery: SIGTERM: the training ends after this step"), std::string::npos) << result.err;
}

TEST_F(EarlyEnd, ProgressIsShownOnlyOnATerminal) {
    for (const std::string plan : {"one.plan.json", "two.plan.json"}) {
        CommandOptions options = environment("slow:rank=0,step=3,at=layers.1/forward");
        options.on_terminal = true;
        const std::vector<std::string> words{"run", plan, "--steps", "8", "--warm-up", "1"};
        const CommandResult shown = here_.run(words, options);
        EXPECT_EQ(shown.exit_code, 0);
        EXPECT_NE(shown.out.find("\r\x1b[Kstep "), std::string::npos) << shown.out;
        EXPECT_NE(shown.out.find(" of 9, loss "), std::string::npos) << shown.out;
        // The progress line is erased before the summary.
        const std::size_t last = shown.out.rfind("\r\x1b[K");
        EXPECT_EQ(shown.out.find("small (measured)", last), last + 4) << shown.out;
        options.on_terminal = false;
        EXPECT_EQ(here_.run(words, options).err, "");
    }
    expect_done(
        here_.run({"run", "one.plan.json", "--steps", "3", "--warm-up", "0", "--quiet", "--checkpoint", "saved"}));
    CommandOptions options;
    options.on_terminal = true;
    const CommandResult shown =
        here_.run({"run", "one.plan.json", "--steps", "2", "--warm-up", "0", "--resume", "saved"}, options);
    EXPECT_NE(shown.out.find("step 4 (1 of 2), loss "), std::string::npos) << shown.out;
}

}  // namespace
}  // namespace orrery::test
