// Interrupted checkpoints: each system call fails (full disk, I/O error), or the process is killed before each system
// call or at a random moment. Afterwards either the old or the new checkpoint exists, and it is complete.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/file.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstring>
#include <random>
#include <thread>

#include "core/file.h"
#include "exec/checkpoint/folder.h"
#include "exec/checkpoint/manifest.h"
#include "exec/checkpoint/slice_file.h"
#include "tests/cli/checks.h"

namespace orrery::test {
namespace {

namespace fs = std::filesystem;
using exec::checkpoint_name;
using exec::checkpoint_steps;
using nlohmann::json;

constexpr bool kSanitized =
#ifdef __SANITIZE_ADDRESS__
    true;
#else
    false;
#endif

/// The contents of all files in the folder by name, including hidden files.
std::map<std::string, std::string> contents(const fs::path& folder) {
    std::map<std::string, std::string> files;
    for (const auto& entry : fs::recursive_directory_iterator(folder)) {
        const std::string name = fs::relative(entry.path(), folder).string();
        files[name] = entry.is_directory() ? "" : read_text_file(entry.path().string());
    }
    return files;
}

/// Expects that all checksums of the checkpoint are right.
void expect_sound(const std::string& path) {
    SCOPED_TRACE(path);
    const std::string manifest_path = path + "/" + exec::kManifestName;
    const exec::Manifest manifest = exec::manifest_from_json_text(read_text_file(manifest_path), manifest_path);
    for (const exec::StoredFile& stored : manifest.files) {
        std::vector<std::byte> bytes(static_cast<std::size_t>(stored.bytes));
        ASSERT_NO_THROW(exec::SliceReader(path + "/" + stored.name, stored, manifest.chunk_bytes)
                            .read(0, stored.bytes, bytes.data()));
    }
}

/// A run that resumes from the checkpoint of step 2 and writes that of step 3, and the expected contents of both.
class Interrupted : public testing::Test {
  protected:
    static constexpr std::int64_t kOld = 2, kNew = 3;

    void prepare(const json& plan) {
        here_.write("plan.json", plan);
        expect_done(here_.run({"run", "plan.json", "--warm-up", "0", "--steps", "3", "--checkpoint", "whole",
                               "--checkpoint-every", "1", "--quiet"}));
        ASSERT_EQ(checkpoint_steps(here_.path("whole")), (std::vector<std::int64_t>{kOld, kNew}));
    }

    /// Runs the third step with a failure of call number `call` under `below`, a path in the folder of checkpoints.
    CommandResult third_step(int call, int error, const std::string& below = "") {
        fs::remove_all(here_.path("c"));
        fs::remove(here_.path("log"));
        fs::create_directory(here_.path("c"));
        fs::copy(here_.path("whole/" + checkpoint_name(kOld)), here_.path("c/" + checkpoint_name(kOld)));
        const std::string folder = fs::canonical(here_.path("c")).string();
        return here_.run(
            {"run", "plan.json", "--warm-up", "0", "--steps", "1", "--quiet", "--keep", "1", "--checkpoint", folder,
             "--resume", folder},
            {.environment = {std::string("LD_PRELOAD=") + ORRERY_FAIL_IO, "FAIL_IO_UNDER=" + folder + below,
                             "FAIL_IO_AT=" + std::to_string(call), "FAIL_IO_ERRNO=" + std::to_string(error),
                             "FAIL_IO_LOG=" + here_.path("log")}});
    }

    /// The calls that the third step makes if nothing fails.
    std::vector<std::string> calls() {
        expect_done(third_step(0, EIO));
        std::istringstream log(here_.read("log"));
        std::vector<std::string> names;
        for (std::string name; std::getline(log, name);) names.push_back(name);
        return names;
    }

    [[nodiscard]] std::vector<std::int64_t> expect_old_or_new() const {
        const std::vector<std::int64_t> steps = checkpoint_steps(here_.path("c"));
        EXPECT_FALSE(steps.empty());
        for (const std::int64_t step : steps) {
            const std::string name = checkpoint_name(step);
            EXPECT_TRUE(step == kOld || step == kNew) << name;
            EXPECT_EQ(contents(here_.path("c/" + name)), contents(here_.path("whole/" + name))) << name;
        }
        return steps;
    }

    Workplace here_;
};

TEST_F(Interrupted, ByAFailureOfEachCall) {
    if (kSanitized) GTEST_SKIP() << "the sanitizer must be loaded before everything else";
    prepare(local_plan());
    const std::vector<std::string> names = calls();
    ASSERT_GE(names.size(), 15U) << testing::PrintToString(names);
    for (const char* must : {"open", "write", "fsync", "mkdir", "rename", "unlinkat"}) {
        EXPECT_NE(std::find(names.begin(), names.end(), must), names.end()) << must;
    }
    int failed = 0;
    for (std::size_t call = 1; call <= names.size(); ++call) {
        const int error = call % 3 == 0 ? EIO : call % 3 == 1 ? ENOSPC : EDQUOT;
        SCOPED_TRACE("call " + std::to_string(call) + ", " + names[call - 1] + ": " + std::strerror(error));
        const CommandResult result = third_step(static_cast<int>(call), error);
        const std::vector<std::int64_t> steps = expect_old_or_new();
        if (result.exit_code == 0) {  // writing the owner into the lock file may fail
            EXPECT_EQ(steps, std::vector<std::int64_t>{kNew});
            EXPECT_EQ(result.err, "");
            continue;
        }
        ++failed;
        expect_refused(result, 1, {here_.path("c"), std::strerror(error)});
        for (const auto& [name, content] : contents(here_.path("c"))) {
            const bool removing = name.starts_with(".step-") && name.find(".old") != std::string::npos;
            EXPECT_TRUE(name.starts_with("step-") || name == ".lock" || removing) << name << " was left";
        }
    }
    EXPECT_GE(failed, static_cast<int>(names.size()) - 2);
}

TEST_F(Interrupted, ByTheEndOfTheProcessBeforeEachCall) {
    if (kSanitized) GTEST_SKIP() << "the sanitizer must be loaded before everything else";
    prepare(local_plan());
    const std::vector<std::string> names = calls();
    bool old_stayed = false, new_came = false;
    for (std::size_t call = 1; call <= names.size(); ++call) {
        SCOPED_TRACE("before call " + std::to_string(call) + ", " + names[call - 1]);
        EXPECT_EQ(third_step(static_cast<int>(call), 0).signal, SIGKILL);
        const std::vector<std::int64_t> steps = expect_old_or_new();
        (steps.back() == kOld ? old_stayed : new_came) = true;
        if (call % 5 != 0) continue;
        // The next run resumes from it and removes leftovers.
        expect_done(here_.run(
            {"run", "plan.json", "--warm-up", "0", "--steps", "1", "--quiet", "--checkpoint", "c", "--resume", "c"}));
        for (const auto& [name, content] : contents(here_.path("c"))) EXPECT_FALSE(name.starts_with(".step")) << name;
        EXPECT_EQ(checkpoint_steps(here_.path("c")).back(), steps.back() + 1);
    }
    EXPECT_TRUE(old_stayed && new_came);
}

TEST_F(Interrupted, ByOneRankOfTwo) {
    if (kSanitized) GTEST_SKIP() << "the sanitizer must be loaded before everything else";
    json plan = local_plan(2);
    plan["parallelism"]["data_parallel"] = "zero1";
    prepare(plan);
    const std::string file = "/." + checkpoint_name(kNew) + ".tmp/rank-00001.slices";
    // Its open, writes and fsync fail, whether or not the other rank has written its part by then.
    for (const int call : {1, 2, 3, 4}) {
        SCOPED_TRACE(call);
        expect_refused(third_step(call, ENOSPC, file), 1, {"rank-00001.slices: cannot be written: No space left"});
        EXPECT_EQ(expect_old_or_new(), std::vector<std::int64_t>{kOld});
        EXPECT_FALSE(here_.has("c/." + checkpoint_name(kNew) + ".tmp"));
    }
    EXPECT_NE(third_step(3, 0, file).exit_code, 0);
    EXPECT_EQ(expect_old_or_new(), std::vector<std::int64_t>{kOld});
    expect_done(third_step(5, ENOSPC, file));  // the file has only four calls
    EXPECT_EQ(expect_old_or_new(), std::vector<std::int64_t>{kNew});
}

/// A process that trains and writes a checkpoint after each step.
class TrainingProcess {
  public:
    explicit TrainingProcess(const Workplace& here) {
        const std::string plan = here.path("plan.json"), folder = here.path("c");
        pid_ = fork();
        if (pid_ != 0) return;
        const int nowhere = ::open("/dev/null", O_RDWR);
        for (const int fd : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) dup2(nowhere, fd);
        const std::string program = orrery_path();
        execl(program.c_str(), program.c_str(), "run", plan.c_str(), "--warm-up", "0", "--steps", "1000000",
              "--checkpoint", folder.c_str(), "--checkpoint-every", "1", "--resume", folder.c_str(), nullptr);
        _exit(127);
    }
    TrainingProcess(const TrainingProcess&) = delete;
    TrainingProcess& operator=(const TrainingProcess&) = delete;
    ~TrainingProcess() { end(); }
    /// Kills the process; returns its wait status on the first call.
    int end() {
        int status = 0;
        if (pid_ <= 0) return status;
        kill(pid_, SIGKILL);
        waitpid(pid_, &status, 0);
        pid_ = -1;
        return status;
    }

  private:
    pid_t pid_ = -1;
};

TEST(Checkpoints, SurviveTheEndOfTheProcessAtAnyMoment) {
    constexpr int kRounds = 50, kMostRounds = 500, kHalfDone = 5;
    const Workplace here;
    here.write("plan.json", local_plan());
    const std::string folder = here.path("c");
    expect_done(here.run({"run", "plan.json", "--warm-up", "0", "--steps", "1", "--checkpoint", "c", "--quiet"}));
    std::mt19937 random(20);
    int left_half_done = 0;
    // The share of time spent on checkpoints depends on the machine, so rounds are added until enough were interrupted.
    int round = 0;
    for (; round < kRounds || (left_half_done < kHalfDone && round < kMostRounds); ++round) {
        SCOPED_TRACE(round);
        const std::int64_t before = checkpoint_steps(folder).back();
        TrainingProcess process(here);
        const auto patience = std::chrono::steady_clock::now() + std::chrono::seconds(60);
        while (checkpoint_steps(folder).back() == before && std::chrono::steady_clock::now() < patience) {
            std::this_thread::sleep_for(std::chrono::microseconds(500));
        }
        std::this_thread::sleep_for(std::chrono::microseconds(random() % 30'000));
        const int status = process.end();
        ASSERT_TRUE(WIFSIGNALED(status)) << "the process ended by itself, status " << status;
        const std::vector<std::int64_t> steps = checkpoint_steps(folder);
        ASSERT_FALSE(steps.empty());
        ASSERT_GT(steps.back(), before);
        for (const std::int64_t step : steps) expect_sound(folder + "/" + checkpoint_name(step));
        for (const auto& entry : fs::directory_iterator(folder)) {
            if (entry.path().filename().string().starts_with(".step-")) ++left_half_done;
        }
    }
    EXPECT_GE(left_half_done, kHalfDone) << "the process was hardly ever killed during a checkpoint";
    const std::int64_t last = checkpoint_steps(folder).back();
    const auto losses = [&](std::int64_t steps, const std::vector<std::string>& more) {
        std::vector<std::string> words{"run", "plan.json", "--warm-up",          "0", "--quiet", "--record",
                                       "r",   "--steps",   std::to_string(steps)};
        words.insert(words.end(), more.begin(), more.end());
        expect_done(here.run(words));
        return json::parse(here.read("r")).at("losses").get<std::vector<double>>();
    };
    std::vector<double> whole = losses(last + 2, {});
    whole.erase(whole.begin(), whole.begin() + last);
    EXPECT_EQ(losses(2, {"--resume", "c"}), whole) << "after " << round << " kills";
}

TEST(Checkpoints, AFullOrReadOnlyDiskIsReportedAndKeepsTheLastOne) {
    const Workplace here;
    here.write("plan.json", local_plan());
    fs::create_directory(here.path("disk"));
    const std::string disk = here.path("disk");
    if (run_command({"unshare", "-rm", "mount", "-t", "tmpfs", "none", disk}).exit_code != 0) {
        GTEST_SKIP() << "mounting in a user namespace is not permitted here";
    }
    const std::string script = R"(
        mount -t tmpfs -o size=4m none "$1" || exit 99
        train() { "$0" run plan.json --warm-up 0 --steps 1 --quiet "$@"; echo "exit $?"; }
        train --checkpoint "$1/c"
        train --checkpoint "$1/c" --resume "$1/c"
        ls -A "$1/c"
        train --resume "$1/c"
        mount -o remount,ro "$1" || exit 99
        train --checkpoint "$1/c" --resume "$1/c"
        train --resume "$1/c")";
    const CommandResult result = run_command({"unshare", "-rm", "sh", "-c", script, orrery_path(), disk},
                                             {.environment = {}, .working_folder = here.path("")});
    EXPECT_EQ(result.out, "exit 0\nexit 1\n.lock\nstep-00000001\nexit 0\nexit 1\nexit 0\n");
    EXPECT_NE(result.err.find("rank-00000.slices: cannot be written: No space left on device"), std::string::npos)
        << result.err;
    EXPECT_NE(result.err.find("c/.lock: cannot be written: Read-only file system"), std::string::npos) << result.err;
}

/// The limit is far above the size of MPI's own files.
TEST(Checkpoints, AFileBeyondTheSizeLimitIsReported) {
    const Workplace here;
    json plan = local_plan();
    plan["model"] = json::parse(models::to_json_text(models::load_model("tiny-gpt")));
    plan["model"]["vocab"] = 1 << 15;
    here.write("plan.json", plan);
    const std::string script =
        "ulimit -f 40960; exec \"$0\" run plan.json --warm-up 0 --steps 1 --checkpoint c --quiet";
    const CommandResult result =
        run_command({"sh", "-c", script, orrery_path()}, {.environment = {}, .working_folder = here.path("")});
    expect_refused(result, 1, {"c/.step-00000001.tmp/rank-00000.slices: cannot be written: File too large"});
    EXPECT_TRUE(checkpoint_steps(here.path("c")).empty());
}

TEST(Checkpoints, AFolderLockedByAnotherProcessIsRefused) {
    const Workplace here;
    here.write("plan.json", local_plan());
    fs::create_directory(here.path("c"));
    here.write("c/.lock", std::string("process 4711 on elsewhere"));
    const std::vector<std::string> words{"run", "plan.json", "--steps", "1", "--checkpoint", "c", "--quiet"};
    const int lock = ::open(here.path("c/.lock").c_str(), O_RDWR | O_CLOEXEC);
    ASSERT_EQ(::flock(lock, LOCK_EX | LOCK_NB), 0);
    expect_refused(here.run(words), 1, {"c: process 4711 on elsewhere writes its checkpoints there (c/.lock)"});
    ::close(lock);  // releases the lock; the text in the file does not matter
    expect_done(here.run(words));
    EXPECT_EQ(checkpoint_steps(here.path("c")), std::vector<std::int64_t>{3});
}

}  // namespace
}  // namespace orrery::test
