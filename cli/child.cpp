#include "cli/child.h"

#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>

#include "core/error.h"

extern char** environ;

namespace orrery::cli {

TemporaryFolder::TemporaryFolder() {
    std::string pattern = (std::filesystem::temp_directory_path() / "orrery-XXXXXX").string();
    if (mkdtemp(pattern.data()) == nullptr) {
        throw JobError("cannot make a temporary folder: " + std::string(std::strerror(errno)));
    }
    path_ = pattern;
}

TemporaryFolder::~TemporaryFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
}

void run_self(const std::vector<std::string>& arguments, const std::string& what) {
    std::vector<std::string> words{"orrery"};
    words.insert(words.end(), arguments.begin(), arguments.end());
    std::vector<char*> argv;
    argv.reserve(words.size() + 1);
    for (std::string& word : words) argv.push_back(word.data());
    argv.push_back(nullptr);
    pid_t child = 0;
    const int failed = posix_spawn(&child, "/proc/self/exe", nullptr, nullptr, argv.data(), environ);
    if (failed != 0) throw JobError("cannot start " + what + ": " + std::strerror(failed));
    int status = 0;
    while (waitpid(child, &status, 0) < 0) {
        if (errno != EINTR) throw JobError("lost " + what + ": " + std::strerror(errno));
    }
    if (WIFEXITED(status) && WEXITSTATUS(status) == 0) return;
    throw JobError(what + " failed; its own message stands above");
}

}  // namespace orrery::cli
