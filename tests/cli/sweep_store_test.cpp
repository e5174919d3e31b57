// Sweeps that keep their results in a file: --db, --shard and `orrery merge`.
#include <gtest/gtest.h>
#include <signal.h>
#include <spawn.h>
#include <sqlite3.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <memory>
#include <thread>

#include "tests/cli/checks.h"

namespace orrery::test {
namespace {

struct CloseDatabase {
    void operator()(sqlite3* database) const { (void)sqlite3_close(database); }
};

/// Runs a statement; returns the first value of its last row, or -1.
std::int64_t in_database(const std::string& path, const std::string& statement) {
    sqlite3* opened = nullptr;
    const int code = sqlite3_open_v2(path.c_str(), &opened, SQLITE_OPEN_READWRITE, nullptr);
    const std::unique_ptr<sqlite3, CloseDatabase> database(opened);
    if (code != SQLITE_OK) return -1;
    (void)sqlite3_busy_timeout(opened, 10000);
    std::int64_t value = -1;
    const auto take = [](void* into, int columns, char** values, char**) {
        if (columns > 0 && values[0] != nullptr) *static_cast<std::int64_t*>(into) = std::stoll(values[0]);
        return 0;
    };
    (void)sqlite3_exec(opened, statement.c_str(), take, &value, nullptr);
    return value;
}

std::int64_t points_in(const std::string& path) {
    return in_database(path, "SELECT count(*) FROM points");
}

std::string numbers(int last) {
    std::string list = "1";
    for (int i = 2; i <= last; ++i) list += "," + std::to_string(i);
    return list;
}

/// A sweep of tiny-gpt with 20 values of one input and `others` of another.
std::vector<std::string> sweep(int others) {
    return {"whatif", "small.plan.json",
            "--set",  "cluster.nic.latency_us=" + numbers(20),
            "--set",  "cluster.device.launch_us=" + numbers(others)};
}

std::vector<std::string> operator+(std::vector<std::string> words, const std::vector<std::string>& more) {
    words.insert(words.end(), more.begin(), more.end());
    return words;
}

struct PlannedWorkplace : Workplace {
    PlannedWorkplace() { write("small.plan.json", small_plan(2)); }
};

std::string told(const std::string& file, std::int64_t kept, std::int64_t computed, const std::string& shard = "") {
    return file + ": " + std::to_string(kept) + " of the " + std::to_string(kept + computed) + " points" + shard +
           " were there, " + std::to_string(computed) + " computed\n";
}

/// Starts orrery in the folder, kills it when its file has `count` points, and returns how many it then has.
std::int64_t kill_at(const Workplace& here, const std::vector<std::string>& words, const std::string& file,
                     std::int64_t count) {
    std::vector<std::string> all{"/bin/sh", "-c", "cd \"$0\" && exec \"$@\" > /dev/null 2>&1", here.path("")};
    all.push_back(orrery_path());
    all.insert(all.end(), words.begin(), words.end());
    std::vector<char*> arguments;
    for (std::string& word : all) arguments.push_back(word.data());
    arguments.push_back(nullptr);
    pid_t child = 0;
    EXPECT_EQ(posix_spawn(&child, "/bin/sh", nullptr, nullptr, arguments.data(), environ), 0);
    int status = 0;
    while (points_in(here.path(file)) < count && waitpid(child, &status, WNOHANG) == 0) {
        std::this_thread::sleep_for(std::chrono::milliseconds(2));
    }
    (void)kill(child, SIGKILL);
    (void)waitpid(child, &status, 0);
    EXPECT_TRUE(WIFSIGNALED(status)) << "the sweep was done before it was killed";
    return points_in(here.path(file));
}

TEST(SweepStore, AKilledSweepGoesOnAndRepeatsNothing) {
    const PlannedWorkplace here;
    const std::vector<std::string> words = sweep(50);
    const CommandResult whole =
        here.run(words + std::vector<std::string>{"--csv", "whole.csv", "--output", "whole.json"});
    expect_done(whole);
    const std::int64_t kept = kill_at(here, words + std::vector<std::string>{"--db", "all.db"}, "all.db", 200);
    ASSERT_GE(kept, 200);
    const CommandResult resumed =
        here.run(words + std::vector<std::string>{"--db", "all.db", "--csv", "again.csv", "--output", "again.json"});
    EXPECT_EQ(resumed.exit_code, 0);
    EXPECT_EQ(resumed.err, told("all.db", kept, 1001 - kept));
    EXPECT_EQ(resumed.out, whole.out);
    EXPECT_EQ(here.read("again.csv"), here.read("whole.csv"));
    EXPECT_EQ(here.read("again.json"), here.read("whole.json"));
    EXPECT_EQ(points_in(here.path("all.db")), 1001);
}

TEST(SweepStore, ShardsTogetherAreTheSweep) {
    const PlannedWorkplace here;
    const std::vector<std::string> words = sweep(4);
    const CommandResult whole = here.run(words + std::vector<std::string>{"--csv", "whole.csv", "--threads", "1"});
    expect_done(whole);
    std::vector<std::string> merge{"merge"};
    for (int shard = 1; shard <= 3; ++shard) {
        const std::string number = std::to_string(shard);
        const CommandResult part =
            here.run(words + std::vector<std::string>{"--db", number + ".db", "--shard", number + "/3"});
        EXPECT_EQ(part.exit_code, 0);
        EXPECT_EQ(part.out, "");
        EXPECT_EQ(part.err, told(number + ".db", 0, 27, " of shard " + number + "/3"));
        merge.push_back(number + ".db");
    }
    merge.insert(merge.end(), {"--db", "all.db"});
    const CommandResult merged = here.run(merge);
    expect_done(merged);
    EXPECT_EQ(merged.out, "all.db: 81 points added from 3 files\n");
    EXPECT_EQ(here.run(merge).out, "all.db: 0 points added from 3 files\n");
    for (const char* threads : {"1", "2", "8"}) {
        const CommandResult all =
            here.run(words + std::vector<std::string>{"--db", "all.db", "--csv", "all.csv", "--threads", threads});
        EXPECT_EQ(all.err, told("all.db", 81, 0));
        EXPECT_EQ(all.out, whole.out);
        EXPECT_EQ(here.read("all.csv"), here.read("whole.csv"));
        const std::string fresh = std::string("fresh") + threads + ".db";
        EXPECT_EQ(here.run(words + std::vector<std::string>{"--db", fresh, "--threads", threads}).out, whole.out);
    }
}

TEST(SweepStore, ValuesThatAreTheSameInTheFileAreOnePoint) {
    const PlannedWorkplace here;
    const std::vector<std::string> set{"whatif", "small.plan.json", "--db", "all.db", "--set"};
    EXPECT_EQ(here.run(set + std::vector<std::string>{"cluster.device.launch_us=1x,2,4"}).err, told("all.db", 0, 3));
    // Another sweep takes what it has in common with this one.
    EXPECT_EQ(here.run(set + std::vector<std::string>{"cluster.device.launch_us=2.0,3,4"}).err, told("all.db", 3, 1));
}

TEST(SweepStore, ScaleKeepsItsPoints) {
    const Workplace here;
    const std::vector<std::string> words{
        "scale",     "--model",          "gpt2",   "--cluster",      "dgx-h100", "--seq", "512", "--gpus",
        "1,3,8..32", "--implementation", "orrery", "--global-batch", "64"};
    const CommandResult plain = here.run(words + std::vector<std::string>{"--csv", "plain.csv"});
    expect_done(plain);
    EXPECT_EQ(here.run(words + std::vector<std::string>{"--db", "s.db", "--shard", "2/2"}).err,
              told("s.db", 0, 2, " of shard 2/2"));
    const CommandResult kept = here.run(words + std::vector<std::string>{"--db", "s.db", "--csv", "kept.csv"});
    EXPECT_EQ(kept.err, told("s.db", 2, 3));
    EXPECT_EQ(kept.out, plain.out);
    EXPECT_EQ(here.read("kept.csv"), here.read("plain.csv"));
    // Prices do not change plans; another micro-batch does.
    EXPECT_EQ(here.run(words + std::vector<std::string>{"--db", "s.db", "--usd-per-gpu-hour", "7"}).err,
              told("s.db", 5, 0));
    EXPECT_EQ(here.run(words + std::vector<std::string>{"--db", "s.db", "--micro-batch", "1"}).err, told("s.db", 0, 5));
    expect_refused(here.run(words + std::vector<std::string>{"--db", "s.db", "--fixed-plan"}), 2,
                   {"--db", "s.db", "--fixed-plan"});
    expect_refused(here.run(words + std::vector<std::string>{"--db", "s.db", "--by-technique"}), 2,
                   {"--db", "s.db", "--by-technique"});
}

TEST(SweepStore, ResultsOfAnotherBuildAreNotTaken) {
    const PlannedWorkplace here;
    const std::vector<std::string> words = sweep(1) + std::vector<std::string>{"--db", "all.db"};
    EXPECT_EQ(here.run(words).err, told("all.db", 0, 21));
    (void)in_database(here.path("all.db"), "UPDATE inputs SET text = replace(text, '\"build\":\"', '\"build\":\"x')");
    EXPECT_EQ(here.run(words).err, told("all.db", 0, 21));
    EXPECT_EQ(points_in(here.path("all.db")), 42);
}

TEST(SweepStore, DifferentResultsOfAPointAreNotMerged) {
    const PlannedWorkplace here;
    (void)here.run(sweep(1) + std::vector<std::string>{"--db", "a.db"});
    (void)here.run(sweep(2) + std::vector<std::string>{"--db", "b.db"});
    (void)in_database(here.path("b.db"),
                      "UPDATE points SET result = '{}' WHERE point = (SELECT max(point) FROM points WHERE point LIKE "
                      "'%launch_us=1.0 %')");
    expect_refused(here.run({"merge", "a.db", "b.db", "--db", "all.db"}), 2,
                   {"b.db", "launch_us=1.0", "another result"});
    EXPECT_FALSE(here.has("all.db"));
    // A file that is there stays as it is.
    expect_refused(here.run({"merge", "b.db", "--db", "a.db"}), 2, {"b.db", "another result"});
    EXPECT_EQ(points_in(here.path("a.db")), 21);
}

TEST(SweepStore, RefusesWhatItCannotUse) {
    const PlannedWorkplace here;
    const std::vector<std::string> words = sweep(1);
    here.write("text.db", std::string("no database at all, but long enough to have had a header of one"));
    expect_refused(here.run(words + std::vector<std::string>{"--db", "text.db"}), 2, {"text.db", "--db"});
    expect_refused(here.run(words + std::vector<std::string>{"--db", "none/all.db"}), 2, {"none/all.db", "--db"});
    expect_refused(here.run({"merge", "missing.db", "--db", "all.db"}), 2, {"missing.db"});
    expect_refused(here.run({"merge", "text.db", "--db", "all.db"}), 2, {"text.db"});
    EXPECT_FALSE(here.has("all.db"));
    here.write("empty.db", std::string());
    (void)in_database(here.path("empty.db"), "CREATE TABLE mine(x)");
    expect_refused(here.run(words + std::vector<std::string>{"--db", "empty.db"}), 2, {"empty.db", "another kind"});
    for (const char* shard : {"0/2", "3/2", "1", "1/", "a/b", "1/2/3"}) {
        expect_refused(here.run(words + std::vector<std::string>{"--db", "all.db", "--shard", shard}), 2,
                       {"--shard", shard, "I/N"});
    }
    expect_refused(here.run(words + std::vector<std::string>{"--shard", "1/2"}), 2, {"--shard", "only with --db"});
    expect_refused(here.run(words + std::vector<std::string>{"--db", "all.db", "--shard", "1/2", "--csv", "x.csv"}), 2,
                   {"--csv", "--shard", "orrery merge"});
    expect_refused(here.run({"merge", "all.db", "--db", "all.db"}), 2, {"--db", "different file"});
}

}  // namespace
}  // namespace orrery::test
