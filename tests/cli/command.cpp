#include "tests/cli/command.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <sstream>
#include <stdexcept>

#include "tests/unit/core/test_folder.h"

namespace orrery::test {
namespace {

constexpr int kOrphanPollMs = 10;
constexpr int kOrphanPolls = 1000;  // ten seconds; only failing tests wait that long

std::string content_of(const std::string& path) {
    std::ifstream file(path, std::ios::binary);
    std::ostringstream text;
    text << file.rdbuf();
    return text.str();
}

/// "pid name" of the live processes of a session, from /proc/*/stat: pid (name) state parent group session …
std::vector<std::string> processes_of(pid_t session) {
    std::vector<std::string> found;
    DIR* proc = opendir("/proc");
    if (proc == nullptr) throw std::runtime_error("cannot list /proc");
    while (const dirent* entry = readdir(proc)) {
        if (std::strspn(entry->d_name, "0123456789") != std::strlen(entry->d_name)) continue;
        const std::string stat = content_of(std::string("/proc/") + entry->d_name + "/stat");
        const std::size_t name_end = stat.rfind(')');
        if (name_end == std::string::npos) continue;  // the process has ended meanwhile
        std::istringstream rest(stat.substr(name_end + 1));
        char state = 0;
        long parent = 0, group = 0, its_session = 0;
        rest >> state >> parent >> group >> its_session;
        if (its_session == session && state != 'Z' && state != 'X') found.push_back(stat.substr(0, name_end + 1));
    }
    closedir(proc);
    return found;
}

/// Waits for the remaining processes of the session, kills them after a timeout, and returns those that were killed.
std::vector<std::string> wait_for_session(pid_t session) {
    std::vector<std::string> left;
    for (int poll = 0; poll < kOrphanPolls; ++poll) {
        left = processes_of(session);
        if (left.empty()) return {};
        usleep(kOrphanPollMs * 1000);
    }
    for (const std::string& process : left) kill(static_cast<pid_t>(std::stol(process)), SIGKILL);
    return left;
}

/// Runs in the child: sets it up and executes the command.
[[noreturn]] void become(const std::vector<std::string>& words, const CommandOptions& options, const std::string& out,
                         const std::string& err, int terminal) {
    prctl(PR_SET_PDEATHSIG, SIGTERM);  // if the test is killed by its timeout, its jobs end too
    setsid();
    for (const std::string& variable : options.environment) {
        const std::size_t equals = variable.find('=');
        if (equals == std::string::npos) {
            unsetenv(variable.c_str());
        } else {
            setenv(variable.substr(0, equals).c_str(), variable.substr(equals + 1).c_str(), 1);
        }
    }
    const int flags = O_WRONLY | O_CREAT | O_TRUNC | O_APPEND;
    int err_file = open(err.c_str(), flags, 0600);
    int out_file = -1;
    if (terminal >= 0) {
        err_file = out_file = terminal;
    } else if (options.together) {
        out_file = err_file;
    } else if (options.output_closed) {
        int ends[2];
        if (pipe(ends) != 0) _exit(126);
        close(ends[0]);
        out_file = ends[1];
    } else {
        out_file = open(out.c_str(), flags, 0600);
    }
    const int no_input = open("/dev/null", O_RDONLY);
    if (err_file < 0 || out_file < 0 || no_input < 0) _exit(126);
    dup2(no_input, STDIN_FILENO);
    dup2(out_file, STDOUT_FILENO);
    dup2(err_file, STDERR_FILENO);
    if (!options.working_folder.empty() && chdir(options.working_folder.c_str()) != 0) _exit(126);
    std::vector<char*> argv;
    for (const std::string& word : words) argv.push_back(const_cast<char*>(word.c_str()));
    argv.push_back(nullptr);
    execvp(argv[0], argv.data());
    _exit(127);
}

/// A pseudoterminal: the end that the test reads, and the end that the command writes to.
struct Terminal {
    int reader = -1, writer = -1;
};

Terminal open_terminal() {
    Terminal terminal{.reader = posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC)};
    if (terminal.reader >= 0 && grantpt(terminal.reader) == 0 && unlockpt(terminal.reader) == 0) {
        terminal.writer = open(ptsname(terminal.reader), O_RDWR | O_NOCTTY | O_CLOEXEC);
    }
    if (terminal.writer < 0) throw std::runtime_error(std::string("no terminal: ") + std::strerror(errno));
    return terminal;
}

/// Reads until all writers have closed the terminal.
std::string read_to_end(int terminal) {
    std::string text;
    char bytes[4096];
    for (ssize_t count = 0; (count = read(terminal, bytes, sizeof bytes)) > 0;) {
        text.append(bytes, static_cast<std::size_t>(count));
    }
    close(terminal);
    return text;
}

}  // namespace

CommandResult run_command(const std::vector<std::string>& words, const CommandOptions& options,
                          std::vector<std::string>* orphans) {
    const TestFolder folder;
    const std::string out = folder.file("out"), err = folder.file("err");
    const Terminal terminal = options.on_terminal ? open_terminal() : Terminal{};
    const pid_t child = fork();
    if (child < 0) throw std::runtime_error(std::string("cannot fork: ") + std::strerror(errno));
    if (child == 0) become(words, options, out, err, terminal.writer);
    std::string shown;
    if (options.on_terminal) {
        close(terminal.writer);
        shown = read_to_end(terminal.reader);
    }
    int status = 0;
    while (waitpid(child, &status, 0) < 0) {
        if (errno != EINTR) throw std::runtime_error(std::string("lost a child: ") + std::strerror(errno));
    }
    const std::vector<std::string> left = wait_for_session(child);
    if (orphans != nullptr) *orphans = left;
    CommandResult result;
    if (WIFEXITED(status)) result.exit_code = WEXITSTATUS(status);
    if (WIFSIGNALED(status)) result.signal = WTERMSIG(status);
    result.out = options.on_terminal ? shown : content_of(out);
    result.err = content_of(err);
    if (options.together) std::swap(result.out, result.err);
    return result;
}

std::string orrery_path() {
    return ORRERY_BINARY;
}

CommandResult orrery(const std::vector<std::string>& arguments, const CommandOptions& options,
                     std::vector<std::string>* orphans) {
    std::vector<std::string> words{options.program.empty() ? orrery_path() : options.program};
    words.insert(words.end(), arguments.begin(), arguments.end());
    return run_command(words, options, orphans);
}

std::vector<std::string> mpirun_environment() {
    return {"OMPI_ALLOW_RUN_AS_ROOT=1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1", "OMPI_MCA_plm=isolated", "OMPI_MCA_pml=ob1",
            "OMPI_MCA_btl=self,vader"};
}

}  // namespace orrery::test
