// How Orrery fails: InputError (exit 2), JobError (exit 1), InfeasibleError (exit 3), and ORRERY_CHECK (a bug, exit
// 70).
#pragma once

#include <stdexcept>
#include <string>

namespace orrery {

inline constexpr int kExitDone = 0;
inline constexpr int kExitJobFailed = 1;
inline constexpr int kExitInputWrong = 2;
inline constexpr int kExitInfeasible = 3;
inline constexpr int kExitBug = 70;

/// The input is wrong. The message is complete: it names the file, the key, the value and what is allowed.
class InputError : public std::runtime_error {
  public:
    explicit InputError(const std::string& message) : std::runtime_error(message) {}
    /// "FILE: KEY: VALUE is not allowed; allowed: ALLOWED"
    InputError(const std::string& file, const std::string& key, const std::string& value, const std::string& allowed)
        : std::runtime_error(file + ": " + key + ": got " + value + "; allowed: " + allowed) {}
};

/// The job itself failed: a rank died, a check failed, the disk is full.
class JobError : public std::runtime_error {
  public:
    explicit JobError(const std::string& message) : std::runtime_error(message) {}
};

/// No plan satisfies the request; the message says which limit is in the way.
class InfeasibleError : public std::runtime_error {
  public:
    explicit InfeasibleError(const std::string& message) : std::runtime_error(message) {}
};

/// A broken invariant of ours. Thrown rather than aborted so that partial outputs are cleaned up on the way out.
class BugError : public std::logic_error {
  public:
    explicit BugError(const std::string& message) : std::logic_error(message) {}
};

[[noreturn]] inline void throw_bug(const char* file, int line, const char* condition, const std::string& message) {
    throw BugError(std::string(file) + ":" + std::to_string(line) + ": check failed: " + condition + ": " + message);
}

}  // namespace orrery

/// Always on, in release builds too.
#define ORRERY_CHECK(condition, message)                                    \
    do {                                                                    \
        if (!(condition)) [[unlikely]]                                      \
            ::orrery::throw_bug(__FILE__, __LINE__, #condition, (message)); \
    } while (false)
