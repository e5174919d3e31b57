// Fault handling as far as it can be tested without killing ranks: pages, diagnosis, messages, and helpers.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <memory>
#include <thread>

#include "core/error.h"
#include "exec/faults/diagnosis.h"
#include "exec/faults/held_signals.h"
#include "exec/faults/injection.h"
#include "exec/faults/job_folder.h"
#include "exec/faults/place.h"
#include "exec/faults/process_facts.h"
#include "exec/faults/rank_page.h"
#include "exec/faults/recorder.h"
#include "sim/program/run_record.h"
#include "tests/unit/core/test_folder.h"
#include "tests/unit/program/sample_plans.h"

namespace orrery::exec {
namespace {

using program::Stream;

// ---- pages ----------------------------------------------------------------------------------------------------------

TEST(RankPage, PlacesArePackedIntoOneWord) {
    EXPECT_EQ(packed(InstructionPlace{}), 0U);
    EXPECT_FALSE(unpacked(0).exists());
    for (const InstructionPlace place :
         {InstructionPlace{0, 0, 0}, {1, 2, 3}, {(1 << 24) - 2, (1 << 16) - 1, (1 << 24) - 1}}) {
        EXPECT_EQ(unpacked(packed(place)), place);
    }
    const AwaitedOperation awaited =
        unpacked_operation(packed(AwaitedOperation{Stream::pp_up_send_backward, std::int64_t{1} << 50}));
    EXPECT_EQ(awaited.stream, Stream::pp_up_send_backward);
    EXPECT_EQ(awaited.sequence, std::int64_t{1} << 50);
}

class Pages : public testing::Test {
  protected:
    Pages() {
        setenv(kPagesVariable, pages_.path().c_str(), 1);
        setenv("OMPI_COMM_WORLD_RANK", "1", 1);
    }
    ~Pages() override {
        unsetenv(kPagesVariable);
        unsetenv("OMPI_COMM_WORLD_RANK");
    }
    JobPages pages_{2};
};

TEST_F(Pages, LauncherReadsWhatARankWrites) {
    EXPECT_EQ(pages_.read(1).stage, RankStage::absent);
    FlightRecorder recorder;
    ASSERT_TRUE(recorder.is_watched());
    EXPECT_EQ(pages_.read(1).pid, getpid());
    EXPECT_EQ(pages_.read(1).start_ticks, process_facts(getpid()).start_ticks);
    EXPECT_EQ(pages_.read(1).stage, RankStage::starting);
    recorder.enter(RankStage::training);
    EXPECT_TRUE(recorder.begin_step(7));
    recorder.begin({1, 2, 3});
    recorder.finish({1, 2, 3});
    recorder.begin({1, 2, 4});
    recorder.wait_for({Stream::tp, 9});
    recorder.count_messages(2);
    recorder.count_messages(3);
    const RankSnapshot page = pages_.read(1);
    EXPECT_EQ(page.step, 7);
    EXPECT_EQ(page.finished, (InstructionPlace{1, 2, 3}));
    EXPECT_EQ(page.next, (InstructionPlace{1, 2, 4}));
    EXPECT_EQ(page.instructions, 2U);
    EXPECT_EQ(page.messages, 5U);
    EXPECT_EQ(page.awaited.sequence, 9);
    EXPECT_TRUE(page.waits());
    recorder.stop_waiting();
    EXPECT_FALSE(pages_.read(1).waits());
    recorder.fail(kExitBug);
    EXPECT_TRUE(pages_.read(1).has_ended());
    EXPECT_EQ(pages_.read(1).exit_code, kExitBug);
    EXPECT_EQ(pages_.read(0).stage, RankStage::absent);
}

TEST_F(Pages, RankAnswersWhatIsPending) {
    FlightRecorder recorder;
    EXPECT_FALSE(recorder.is_asked());
    EXPECT_FALSE(pages_.ask(1));
    ASSERT_TRUE(recorder.is_asked());
    recorder.answer(std::string(5000, 'x'));  // longer than the page's field
    EXPECT_FALSE(recorder.is_asked());
    EXPECT_TRUE(pages_.ask(1));
    EXPECT_EQ(pages_.read(1).pending, std::string(kPendingBytes - 1, 'x'));
}

TEST_F(Pages, SignalIsRecordedBeforeItEndsTheRank) {
    const pid_t rank = fork();
    if (rank == 0) {
        FlightRecorder recorder;
        recorder.note_signals();
        raise(SIGTERM);
        _exit(0);
    }
    int status = 0;
    ASSERT_EQ(waitpid(rank, &status, 0), rank);
    EXPECT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGTERM);
    EXPECT_EQ(pages_.read(1).signal, SIGTERM);
    EXPECT_GT(pages_.read(1).signal_ns, 0);
}

/// The handler is installed before the launcher can know the process.
TEST_F(Pages, SignalIsRecordedAsSoonAsThePageShowsTheProcess) {
    for (int time = 0; time < 100; ++time) {
        const JobPages fresh(2);
        setenv(kPagesVariable, fresh.path().c_str(), 1);
        const pid_t rank = fork();
        if (rank == 0) {
            const FlightRecorder recorder;
            pause();
            _exit(0);
        }
        while (fresh.read(1).pid != rank) {
        }
        kill(rank, SIGTERM);
        int status = 0;
        ASSERT_EQ(waitpid(rank, &status, 0), rank);
        ASSERT_EQ(fresh.read(1).signal, SIGTERM) << time;
    }
}

TEST_F(Pages, RankWithoutALauncherHasAPrivatePage) {
    setenv("OMPI_COMM_WORLD_RANK", "2", 1);  // out of range: there are two pages
    EXPECT_FALSE(FlightRecorder().is_watched());
    setenv("OMPI_COMM_WORLD_RANK", "1", 1);
    setenv(kPagesVariable, "/nonexistent", 1);
    EXPECT_FALSE(FlightRecorder().is_watched());
    unsetenv(kPagesVariable);
    FlightRecorder recorder;
    EXPECT_FALSE(recorder.is_watched());
    recorder.begin({0, 0, 0});
    EXPECT_EQ(recorder.snapshot().instructions, 1U);
    EXPECT_EQ(recorder.place(), "");  // without a Program instructions have no names
}

TEST_F(Pages, TrainingCannotBeStoppedBeforeTheFirstStep) {
    FlightRecorder recorder;
    EXPECT_FALSE(pages_.stop_training(SIGTERM));
    EXPECT_TRUE(recorder.begin_step(0));
    EXPECT_TRUE(pages_.stop_training(SIGTERM));
    EXPECT_EQ(recorder.stop_signal(), SIGTERM);
    EXPECT_FALSE(recorder.begin_step(1));
    EXPECT_EQ(pages_.read(1).step, 0);
}

// Ranks that do not communicate, with a signal at varying times.
TEST_F(Pages, AllRanksEndAfterTheSameStep) {
    constexpr int kRanks = 3;
    constexpr std::int64_t kFirst = 40;  // as if resumed from a checkpoint
    for (int time = 0; time < 50; ++time) {
        JobPages pages(kRanks);
        setenv(kPagesVariable, pages.path().c_str(), 1);
        std::vector<std::unique_ptr<FlightRecorder>> recorders;
        for (int rank = 0; rank < kRanks; ++rank) {
            setenv("OMPI_COMM_WORLD_RANK", std::to_string(rank).c_str(), 1);
            recorders.push_back(std::make_unique<FlightRecorder>());
        }
        std::vector<std::int64_t> ended(kRanks);
        std::vector<std::thread> ranks;
        for (int rank = 0; rank < kRanks; ++rank) {
            ranks.emplace_back([&, rank] {
                std::int64_t step = kFirst;
                while (recorders[static_cast<std::size_t>(rank)]->begin_step(step)) {
                    ++step;
                    if (step % 7 == rank) std::this_thread::yield();
                }
                ended[static_cast<std::size_t>(rank)] = step;
            });
        }
        usleep(static_cast<useconds_t>(100 * time));
        while (!pages.stop_training(SIGINT)) {
        }
        for (std::thread& rank : ranks) rank.join();
        EXPECT_GT(ended[0], kFirst);
        EXPECT_EQ(ended, std::vector<std::int64_t>(kRanks, ended[0]));
    }
}

TEST_F(Pages, LossesOfTheLastStepsAreKept) {
    FlightRecorder recorder;
    for (int step = 0; step < 20; ++step) recorder.finish_step(1.5 * step);
    EXPECT_EQ(pages_.read(1).steps_done, 20);
    EXPECT_EQ(pages_.loss_sum(1, 19), 1.5 * 19);
    EXPECT_EQ(pages_.loss_sum(1, 20 - kLossesInPage), 1.5 * (20 - kLossesInPage));
    EXPECT_EQ(recorder.last_loss_sum(), 1.5 * 19);
}

// ---- diagnosis ------------------------------------------------------------------------------------------------------

constexpr double kTimeout_s = 30;

RankView computing() {
    RankView rank{.page = {.pid = 1, .stage = RankStage::training, .step = 3}, .exists = true};
    rank.page.next = {0, 0, 0};
    return rank;
}
RankView waiting(double quiet_s) {
    RankView rank = computing();
    rank.page.awaited = {Stream::dp, 1};
    rank.quiet_s = rank.idle_s = quiet_s;
    return rank;
}
RankView done(double quiet_s) {
    RankView rank = computing();
    rank.page.stage = RankStage::done;
    rank.quiet_s = rank.idle_s = quiet_s;
    return rank;
}

void expect_trouble(const std::vector<RankView>& ranks, Trouble trouble, int rank) {
    const auto verdict = find_trouble(ranks, kTimeout_s);
    ASSERT_TRUE(verdict.has_value());
    EXPECT_EQ(verdict->trouble, trouble);
    EXPECT_EQ(verdict->rank, rank);
}
void expect_no_trouble(const std::vector<RankView>& ranks, double timeout_s = kTimeout_s) {
    EXPECT_FALSE(find_trouble(ranks, timeout_s).has_value());
}

TEST(FindTrouble, StoppedRankIsFoundNotTheRanksThatWait) {
    RankView stopped = computing();
    stopped.is_stopped = true;
    stopped.quiet_s = stopped.idle_s = 29;
    expect_no_trouble({waiting(100), stopped, waiting(100)});
    stopped.quiet_s = stopped.idle_s = 30;
    expect_trouble({waiting(100), stopped, waiting(100)}, Trouble::stopped, 1);
    expect_no_trouble({waiting(100), stopped}, 0);
    stopped.page.awaited = {Stream::dp, 1};  // stopped while it waited
    expect_trouble({waiting(100), stopped}, Trouble::stopped, 1);
}

TEST(FindTrouble, SlowRankIsNoTroubleForTenTimeouts) {
    RankView slow = computing();
    slow.quiet_s = 299;  // in a single instruction, but with CPU time
    slow.idle_s = 1;
    expect_no_trouble({waiting(299), slow});
    slow.quiet_s = 300;
    expect_trouble({waiting(300), slow}, Trouble::endless, 1);
}

TEST(FindTrouble, RankThatSleepsInAnInstructionHangs) {
    RankView asleep = computing();
    asleep.quiet_s = 40;
    asleep.idle_s = 29;
    expect_no_trouble({asleep, waiting(40)});
    asleep.idle_s = 30;
    expect_trouble({asleep, waiting(40)}, Trouble::hangs, 0);
    asleep.page.stage = RankStage::finishing;  // a file system may be slow
    expect_no_trouble({asleep});
    asleep.page.stage = RankStage::saving;
    expect_no_trouble({asleep, waiting(40)});
    asleep.quiet_s = 300;
    expect_trouble({asleep, waiting(40)}, Trouble::endless, 0);
}

TEST(FindTrouble, DeadlockIfAllRanksWait) {
    expect_no_trouble({waiting(100), waiting(29)});
    expect_trouble({waiting(100), waiting(30)}, Trouble::deadlock, -1);
    expect_trouble({waiting(100), done(100)}, Trouble::deadlock, -1);
    expect_no_trouble({waiting(100), computing()});
    RankView exchanging = computing();
    exchanging.page.exchanging = true;
    exchanging.quiet_s = exchanging.idle_s = 30;
    expect_trouble({waiting(100), exchanging}, Trouble::deadlock, -1);
}

/// A rank that sets up communicators makes one call that may take minutes.
TEST(FindTrouble, RanksThatSetUpCommunicatorsHaveTenTimesAsLong) {
    const auto connecting = [](double quiet_s) {
        RankView rank = waiting(quiet_s);
        rank.page.stage = RankStage::connecting;
        rank.page.awaited = {};
        return rank;
    };
    expect_no_trouble({connecting(299), connecting(299)});
    expect_no_trouble({connecting(299), waiting(400)});
    expect_trouble({connecting(300), waiting(30)}, Trouble::deadlock, -1);
}

TEST(FindTrouble, JobOrRankThatDoesNotEnd) {
    expect_no_trouble({done(0), done(0)});
    expect_no_trouble({done(100), done(9)});
    expect_trouble({done(100), done(10)}, Trouble::does_not_end, -1);
    RankView failed = computing();
    failed.page.stage = RankStage::failed;
    failed.quiet_s = 9;
    expect_no_trouble({waiting(0), failed});
    failed.quiet_s = 10;
    expect_trouble({waiting(0), failed}, Trouble::does_not_end, 1);
}

TEST(FindTrouble, DeadRankIsFoundWithoutATimeout) {
    RankView dead = computing();
    dead.exists = false;
    dead.gone_s = 1.9;
    EXPECT_FALSE(find_trouble(std::vector{waiting(0), dead}, 0).has_value());
    dead.gone_s = 2;
    const auto verdict = find_trouble(std::vector{waiting(0), dead}, 0);
    ASSERT_TRUE(verdict.has_value());
    EXPECT_EQ(verdict->trouble, Trouble::died);
    EXPECT_EQ(verdict->rank, 1);
    dead.page.stage = RankStage::done;
    EXPECT_FALSE(find_trouble(std::vector{waiting(0), dead}, 0).has_value());
}

TEST(FindTrouble, RankThatNeverStarts) {
    RankView absent;
    absent.quiet_s = 299;
    expect_no_trouble({absent, waiting(299)});
    absent.quiet_s = 300;
    expect_trouble({waiting(300), absent}, Trouble::absent, 1);
    expect_no_trouble({absent, absent});  // if no rank starts, mpirun reports it
}

TEST(FirstToDie, IsTheRankWithoutASignalOrWithTheEarliest) {
    std::vector<RankSnapshot> ranks(3, RankSnapshot{.pid = 1, .stage = RankStage::training});
    ranks[0].signal = ranks[1].signal = ranks[2].signal = SIGTERM;
    ranks[0].signal_ns = 30;
    ranks[1].signal_ns = 10;
    ranks[2].signal_ns = 20;
    EXPECT_EQ(find_first_to_die(ranks, {})->rank, 1);
    ranks[2].signal = 0;
    EXPECT_EQ(find_first_to_die(ranks, {})->rank, 2);
    ranks[0].signal = 0;  // exited by itself after rank 2 had died
    EXPECT_EQ(find_first_to_die(ranks, std::vector{1, 2, 0})->rank, 2);
    ranks[0].signal = SIGTERM;
    ranks[2].stage = RankStage::done;
    EXPECT_EQ(find_first_to_die(ranks, {})->rank, 1);
    for (RankSnapshot& rank : ranks) rank.stage = RankStage::done;
    EXPECT_FALSE(find_first_to_die(ranks, {}).has_value());
}

TEST(DescribeDeath, SignalsAndExitCodes) {
    EXPECT_EQ(describe_death(0, 137).find("was killed by signal 9 (SIGKILL)"), 0U);
    EXPECT_EQ(describe_death(SIGSEGV, 1), "was killed by signal 11 (SIGSEGV)");
    EXPECT_EQ(describe_death(0, 3), "ended with exit code 3 before its work was done");
}

// ---- messages -------------------------------------------------------------------------------------------------------

program::Program small_program() {
    return program::lower(program::samples::make_plan({.dp = 2}));
}

TEST(Place, NamesInstructionsAndTheAwaitedOperation) {
    const program::Program program = small_program();
    RankSnapshot page{.stage = RankStage::training, .step = 2};
    EXPECT_EQ(describe_place(program, 0, page), "in step 2");
    page.next = {0, 1, 0};
    const std::string next = program::key_of(program, 0, {.action = 0, .segment = 1, .instruction = 0});
    EXPECT_EQ(describe_place(program, 0, page), "step 2, nothing finished yet, next " + next);
    page.finished = {0, 0, 0};
    const std::string finished = program::key_of(program, 0, {.action = 0, .segment = 0, .instruction = 0});
    EXPECT_EQ(describe_place(program, 0, page), "step 2, last finished " + finished + ", next " + next);
    EXPECT_EQ(describe_bystander(program, 0, page), "step 2, at " + next);
    // The first operation of a step on dp has the same description in every step.
    page.awaited = {Stream::dp, 1};
    const std::string first = describe_bystander(program, 0, page);
    EXPECT_NE(first.find("waits for "), std::string::npos);
    EXPECT_NE(first.find(" of ranks 0 1"), std::string::npos);
    const auto& rank_class = program.classes.front();
    std::int64_t operations = 0;
    for (const auto& action : rank_class.actions) {
        for (const auto& segment : rank_class.segment_lists[action.segments]) {
            operations += program.bodies[segment.body].stream_counts[Stream::dp];
        }
    }
    page.awaited.sequence = 1 + 5 * operations;
    EXPECT_EQ(describe_bystander(program, 0, page), first);
    page.stage = RankStage::saving;  // between two steps
    EXPECT_EQ(describe_place(program, 0, page),
              "while it wrote the checkpoint after step " + std::to_string(page.step));
    page.stage = RankStage::finishing;
    EXPECT_EQ(describe_place(program, 0, page), "after its last step");
}

TEST(Explain, NamesTheCulpritThenTheOthers) {
    const program::Program program = small_program();
    std::vector<RankSnapshot> ranks(2, RankSnapshot{.stage = RankStage::training, .step = 1, .next = {0, 0, 0}});
    ranks[0].awaited = {Stream::dp, 1};
    ranks[0].pending = "dp: operation 1\nand more\n";
    const std::string text = explain({Trouble::stopped, 1}, ranks, 30, "", &program);
    EXPECT_EQ(
        text.find("rank 1 does not respond for 30 s, its process is stopped: step 1, nothing finished yet, next "), 0U);
    EXPECT_NE(text.find("\n  rank 0: step 1, waits for "), std::string::npos);
    EXPECT_NE(text.find("\n    dp: operation 1\n    and more"), std::string::npos);
    const std::string unknown = explain({Trouble::died, 0}, ranks, 30, "was killed by signal 9", nullptr);
    EXPECT_EQ(unknown.find("rank 0 was killed by signal 9: in step 1\n  rank 1: in step 1"), 0U);
    const std::vector<RankSnapshot> many(100);
    EXPECT_NE(explain({Trouble::died, 0}, many, 30, "died", nullptr).find("and 83 more ranks"), std::string::npos);
}

// ---- helpers --------------------------------------------------------------------------------------------------------

TEST(Injection, ReadsFaults) {
    const Fault fault = parse_fault("kill:rank=2,step=7,at=layers.0/forward");
    EXPECT_EQ(fault.kind, FaultKind::kill);
    EXPECT_EQ(fault.rank, 2);
    EXPECT_EQ(fault.step, 7);
    EXPECT_EQ(fault.at, "layers.0/forward");
    for (const char* wrong : {"", "kill", "kill:", "kill:step=1", "kill:rank=-1", "kill:rank=1x", "melt:rank=1",
                              "kill:rank=1,at=", "kill:rank=99999999999"}) {
        EXPECT_NE(message_of<InputError>([&] { (void)parse_fault(wrong); }).find("ORRERY_FAULT"), std::string::npos)
            << wrong;
    }
}

TEST(ProcessFacts, OfARunningAStoppedAndADeadProcess) {
    EXPECT_TRUE(process_facts(getpid()).exists);
    EXPECT_TRUE(process_facts(getpid()).runs);
    const pid_t child = fork();
    if (child == 0) {
        for (;;) pause();
    }
    const std::vector<pid_t> children = children_of(getpid());
    EXPECT_NE(std::find(children.begin(), children.end(), child), children.end());
    kill(child, SIGSTOP);
    int status = 0;
    ASSERT_EQ(waitpid(child, &status, WUNTRACED), child);
    EXPECT_TRUE(process_facts(child).is_stopped);
    kill(child, SIGKILL);
    ASSERT_EQ(waitid(P_PID, static_cast<id_t>(child), nullptr, WEXITED | WNOWAIT), 0);
    EXPECT_FALSE(process_facts(child).exists) << "a zombie";
    ASSERT_EQ(waitpid(child, &status, 0), child);
    EXPECT_FALSE(process_facts(child).exists);
}

TEST(HeldSignals, AreHeldUntilWaitReturnsThem) {
    const HeldSignals signals;
    EXPECT_EQ(signals.wait(0), 0);
    raise(SIGTERM);
    EXPECT_EQ(signals.wait(1000), SIGTERM);
    // A library's thread, in which no signal is blocked, may get it.
    std::thread([] { raise(SIGHUP); }).join();
    EXPECT_EQ(signals.wait(1000), SIGHUP);
    raise(SIGINT);  // never waited for: discarded with the object
}

TEST(JobFolder, IsRemovedByItsOwnerOrByTheNextLauncher) {
    std::string kept, abandoned = "/dev/shm/orrery-job-XXXXXX";
    if (mkdtemp(abandoned.data()) == nullptr) GTEST_SKIP() << "no /dev/shm";
    {
        const JobFolder one;
        kept = one.path();
        EXPECT_TRUE(std::filesystem::is_directory(kept));
        EXPECT_FALSE(std::filesystem::exists(abandoned));
        const JobFolder other;
        EXPECT_NE(other.path(), kept);
        EXPECT_TRUE(std::filesystem::is_directory(kept)) << "the owner is still alive";
    }
    EXPECT_FALSE(std::filesystem::exists(kept));
}

}  // namespace
}  // namespace orrery::exec
