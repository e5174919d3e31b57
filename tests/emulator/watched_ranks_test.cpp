// Ranks that another launcher has started, such as torchrun: nobody watches them, so they watch each other.
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <thread>

#include "exec/faults/process_facts.h"
#include "tests/emulator/emulated_faults.h"
#include "tests/emulator/like_torchrun.h"

namespace orrery::test {
namespace {

class WatchedRanks : public EmulatedFaults {
  protected:
    /// Starts the ranks as a launcher does, calls `interfere` with their processes when all of them train, and waits.
    std::vector<CommandResult> run_ranks(int ranks, const std::string& fault, const std::vector<std::string>& options,
                                         const std::function<void(const std::vector<pid_t>&)>& interfere = {}) {
        std::vector<CommandResult> results(static_cast<std::size_t>(ranks));
        std::vector<std::thread> threads;
        std::vector<pid_t> processes;
        for (int rank = 0; rank < ranks; ++rank) {
            std::vector<std::string> words{"run", ranks == 2 ? "two.plan.json" : "three.plan.json"};
            words.insert(words.end(), options.begin(), options.end());
            CommandOptions with = environment(fault);
            const std::vector<std::string> own =
                launcher_.variables(static_cast<std::size_t>(rank), static_cast<std::size_t>(ranks));
            with.environment.insert(with.environment.end(), own.begin(), own.end());
            const std::size_t before = exec::children_of(getpid()).size();
            threads.emplace_back([this, words, with, &result = results[static_cast<std::size_t>(rank)]] {
                result = here_.run(words, with);
            });
            while (exec::children_of(getpid()).size() == before) usleep(1000);
        }
        if (interfere) {
            processes = exec::children_of(getpid());
            std::sort(processes.begin(), processes.end());
            EXPECT_EQ(processes.size(), results.size());
            wait_for_training(processes);
            interfere(processes);
        }
        for (std::thread& thread : threads) thread.join();
        return results;
    }

    /// Expects that one rank of `results`, and no other, says all of the words, and that all but `culprit` end with 1.
    static void expect_said_once(const std::vector<CommandResult>& results, std::size_t culprit,
                                 const std::vector<std::string>& words) {
        std::string said;
        for (std::size_t rank = 0; rank < results.size(); ++rank) {
            said += results[rank].err;
            if (rank == culprit) continue;
            EXPECT_EQ(results[rank].exit_code, 1) << "rank " << rank;
        }
        EXPECT_TRUE(said.starts_with("orrery: ")) << said;
        EXPECT_EQ(said.find('\n'), said.size() - 1) << said;
        for (const std::string& word : words) EXPECT_NE(said.find(word), std::string::npos) << word << " in: " << said;
    }

  private:
    /// Stands for the store of torchrun's agent, which listens at MASTER_PORT.
    const LikeTorchrun launcher_;
};

const std::vector<std::string> kLong{"--steps", "1000000", "--quiet"};
const std::vector<std::string> kImpatient{"--steps", "1000000", "--quiet", "--timeout", "2"};

TEST_F(WatchedRanks, RankThatIsKilledEndsTheJob) {
    for (const std::size_t killed : {std::size_t{0}, std::size_t{1}}) {
        // Run and its processes must end long before the timeout of 30 s.
        const std::vector<CommandResult> results =
            run_ranks(2, "", kLong, [killed](const std::vector<pid_t>& ranks) { kill(ranks[killed], SIGKILL); });
        EXPECT_EQ(results[killed].signal, SIGKILL);
        expect_said_once(
            results, killed,
            {"orrery: rank " + std::to_string(killed) + " has ended before its work was done, when last heard of: ",
             "; reported by rank " + std::to_string(1 - killed)});
    }
}

TEST_F(WatchedRanks, DeathIsNoticedWithoutATimeoutToo) {
    const std::vector<CommandResult> results =
        run_ranks(3, "exit:rank=2,step=1", {"--steps", "1000000", "--quiet", "--timeout", "0"});
    EXPECT_EQ(results[2].exit_code, 3);
    expect_said_once(results, 2, {"orrery: rank 2 has ended before its work was done", "; reported by rank 0"});
}

TEST_F(WatchedRanks, FailureOfOneRankIsReportedOnce) {
    for (const std::string rank : {"0", "2"}) {
        expect_said_once(run_ranks(3, "fail:rank=" + rank + ",step=1", kLong), 3,
                         {"orrery: rank " + rank + ": thrown on purpose: step 1, "});
    }
}

TEST_F(WatchedRanks, RankThatIsStoppedIsNamed) {
    for (const std::size_t stopped : {std::size_t{0}, std::size_t{1}}) {
        const std::vector<CommandResult> results = run_ranks(2, "", kImpatient, [&](const std::vector<pid_t>& ranks) {
            kill(ranks[stopped], SIGSTOP);
            while (exec::process_facts(ranks[1 - stopped]).exists) usleep(10'000);
            kill(ranks[stopped], SIGCONT);  // it learns that the job has ended, and says nothing
        });
        expect_said_once(results, 2,
                         {"orrery: rank " + std::to_string(stopped) + " does not respond for 2 s, when last heard of: ",
                          "; reported by rank " + std::to_string(1 - stopped)});
    }
}

TEST_F(WatchedRanks, RankThatHangsInACollectiveReportsItself) {
    expect_said_once(run_ranks(2, "hang:rank=1,step=1,at=dp.", kImpatient), 2,
                     {"orrery: rank 1 hangs: for 2 s it neither computed nor waited for a message: step 1, ", "dp."});
}

TEST_F(WatchedRanks, SlowRankIsNoFault) {
    const std::vector<CommandResult> results =
        run_ranks(2, "slow:rank=1,step=1", {"--steps", "3", "--quiet", "--timeout", "1"});
    for (const CommandResult& result : results) expect_done(result);
}

// torchrun passes a signal on to all ranks.
TEST_F(WatchedRanks, SignalEndsTheTrainingAfterTheStep) {
    const std::vector<CommandResult> results = run_ranks(2, "", kLong, [](const std::vector<pid_t>& ranks) {
        for (const pid_t rank : ranks) kill(rank, SIGTERM);
    });
    for (const CommandResult& result : results) {
        EXPECT_EQ(result.exit_code, 128 + SIGTERM);
        EXPECT_EQ(result.err, "");
    }
}

}  // namespace
}  // namespace orrery::test
