#include "tests/faults/running_job.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <set>
#include <thread>

#include "exec/faults/process_facts.h"
#include "exec/faults/rank_page.h"

namespace orrery::test {
namespace {

namespace fs = std::filesystem;

constexpr std::chrono::seconds kSoon{30};  // generous, for a busy machine
constexpr int kLooks = 3000;
constexpr useconds_t kLook_us = 10'000;

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

/// The value of a variable in the environment with which a process was started; "" without it.
std::string variable_of(pid_t process, const std::string& name) {
    std::ifstream file("/proc/" + std::to_string(process) + "/environ");
    for (std::string one; std::getline(file, one, '\0');) {
        if (one.starts_with(name + "=")) return one.substr(name.size() + 1);
    }
    return "";
}

/// Whether the rank has begun a step, by its page in the launcher's memory.
bool has_begun_a_step(pid_t rank, const std::string& pages) {
    std::ifstream file(pages, std::ios::binary);
    alignas(exec::RankPage) std::array<char, sizeof(exec::RankPage)> bytes{};
    while (file.read(bytes.data(), bytes.size())) {
        const auto& page = *reinterpret_cast<const exec::RankPage*>(bytes.data());
        if (page.pid == rank) return page.steps_begun > 0;
    }
    return false;
}

/// Whether the process has a handler for SIGINT. Ranks that no launcher watches install one right before they train.
bool catches_interrupts(pid_t process) {
    std::ifstream file("/proc/" + std::to_string(process) + "/status");
    for (std::string line; std::getline(file, line);) {
        const std::string key = "SigCgt:";
        if (line.starts_with(key))
            return (std::stoull(line.substr(key.size()), nullptr, 16) >> (SIGINT - 1U) & 1U) != 0;
    }
    return false;
}

bool trains(pid_t rank) {
    const std::string pages = variable_of(rank, exec::kPagesVariable);
    return pages.empty() ? catches_interrupts(rank) : has_begun_a_step(rank, pages);
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

Faults::Faults(std::string program) : program_(std::move(program)) {
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
    const CommandResult result = here_.run({"run", "one.plan.json", "--steps", "5"},
                                           {.environment = {"ORRERY_FAULT=" + fault}, .program = program_}, &orphans);
    EXPECT_TRUE(orphans.empty()) << orphans.front() << " outlived the job";
    return result;
}

CommandOptions Faults::environment(const std::string& fault) const {
    return {.environment = {"TMPDIR=" + here_.path("tmp"), fault.empty() ? "ORRERY_FAULT" : "ORRERY_FAULT=" + fault},
            .program = program_};
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

pid_t starter_below(pid_t process) {
    for (const pid_t child : exec::children_of(process)) {
        std::string name;
        std::getline(std::ifstream("/proc/" + std::to_string(child) + "/comm"), name);
        const pid_t found = name == "mpirun" || name == "orrery-starter" ? child : starter_below(child);
        if (found != 0) return found;
    }
    return 0;
}

void wait_for_ranks(std::size_t ranks) {
    for (int look = 0; look < kLooks; ++look, usleep(kLook_us)) {
        const pid_t starter = starter_below(getpid());
        if (starter == 0 || exec::children_of(starter).size() < ranks) continue;
        wait_for_training(exec::children_of(starter));
        return;
    }
    ADD_FAILURE() << "no ranks were started";
}

void wait_for_training(const std::vector<pid_t>& ranks) {
    for (int look = 0; look < kLooks; ++look, usleep(kLook_us)) {
        if (std::all_of(ranks.begin(), ranks.end(), trains)) return;
    }
    ADD_FAILURE() << "the ranks do not begin to train";
}

}  // namespace orrery::test
