#include "tests/faults/running_job.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <set>
#include <thread>

#include "exec/faults/process_facts.h"

namespace orrery::test {
namespace {

namespace fs = std::filesystem;

constexpr std::chrono::seconds kSoon{30};  // generous, for a busy machine

/// The job folders in shared memory that no launcher holds a lock on.
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

/// Retries, because a concurrent job may be about to lock or to remove its folder.
void expect_nothing_abandoned() {
    std::set<std::string> left;
    for (int look = 0; look < 50; ++look) {
        left = abandoned_folders();
        if (left.empty()) return;
        usleep(20'000);
    }
    ADD_FAILURE() << *left.begin() << " was left behind";
}

}  // namespace

Faults::Faults() {
    fs::create_directory(here_.path("tmp"));
    here_.write("one.plan.json", local_plan());
    here_.write("two.plan.json", local_plan(2));
    here_.write("four.plan.json", local_plan(2, 2));
}

CommandResult Faults::run(const std::string& fault, const std::vector<std::string>& words,
                          const std::vector<std::string>& results) {
    SCOPED_TRACE(fault);
    std::vector<std::string> expected = here_.names();
    expected.insert(expected.end(), results.begin(), results.end());
    std::sort(expected.begin(), expected.end());
    std::vector<std::string> orphans;
    const auto begin = std::chrono::steady_clock::now();
    const CommandResult result = here_.run(words, environment(fault), &orphans);
    EXPECT_LT(std::chrono::steady_clock::now() - begin, kSoon);
    EXPECT_TRUE(orphans.empty()) << orphans.front() << " outlived the job";
    std::vector<std::string> names = here_.names();
    std::sort(names.begin(), names.end());
    EXPECT_EQ(names, expected);
    EXPECT_TRUE(fs::is_empty(here_.path("tmp"))) << *fs::directory_iterator(here_.path("tmp"));
    expect_nothing_abandoned();
    return result;
}

CommandResult Faults::run_and(const std::vector<std::string>& words, const std::function<void(pid_t)>& interfere,
                              const std::vector<std::string>& results, const std::string& fault) {
    CommandResult result;
    std::thread command([&] { result = run(fault, words, results); });
    wait_for_ranks();
    const std::vector<pid_t> children = exec::children_of(getpid());
    EXPECT_EQ(children.size(), 1U);
    if (!children.empty()) interfere(children.front());
    command.join();
    return result;
}

CommandResult Faults::run_alone(const std::string& fault) {
    std::vector<std::string> orphans;
    const CommandResult result =
        here_.run({"run", "one.plan.json", "--steps", "5"}, {.environment = {"ORRERY_FAULT=" + fault}}, &orphans);
    EXPECT_TRUE(orphans.empty()) << orphans.front() << " outlived the job";
    return result;
}

CommandOptions Faults::environment(const std::string& fault) const {
    return {.environment = {"TMPDIR=" + here_.path("tmp"), fault.empty() ? "ORRERY_FAULT" : "ORRERY_FAULT=" + fault}};
}

void Faults::expect_fails(const std::string& fault, int exit_code, const std::vector<std::string>& words,
                          const std::string& timeout) {
    SCOPED_TRACE(fault);
    expect_says(run(fault, {"run", "four.plan.json", "--steps", "10", "--warm-up", "0", "--record", "r.json",
                            "--timeout", timeout}),
                exit_code, words);
}

void Faults::expect_says(const CommandResult& result, int exit_code, const std::vector<std::string>& words) {
    EXPECT_EQ(result.signal, 0);
    EXPECT_EQ(result.exit_code, exit_code);
    EXPECT_EQ(result.out, "");
    for (const std::string& word : words) {
        EXPECT_NE(result.err.find(word), std::string::npos) << "no " << word << " in: " << result.err;
    }
}

CommandResult UnderMpirun::run_ranks(const std::string& fault, const std::vector<std::string>& words) const {
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

pid_t mpirun_below(pid_t process) {
    for (const pid_t child : exec::children_of(process)) {
        std::string name;
        std::getline(std::ifstream("/proc/" + std::to_string(child) + "/comm"), name);
        const pid_t found = name == "mpirun" ? child : mpirun_below(child);
        if (found != 0) return found;
    }
    return 0;
}

void wait_for_ranks(std::size_t ranks) {
    for (int look = 0; look < 3000; ++look) {
        const pid_t mpirun = mpirun_below(getpid());
        if (mpirun != 0 && exec::children_of(mpirun).size() >= ranks) break;
        usleep(10'000);
    }
    usleep(700'000);
}

}  // namespace orrery::test
