// Orrery's errors: InputError (exit code 2), JobError (1), InfeasibleError (3), and ORRERY_CHECK for bugs (70).
#pragma once

#include <stdexcept>
#include <string>

namespace orrery {

inline constexpr int kExitDone = 0;
inline constexpr int kExitJobFailed = 1;
inline constexpr int kExitInputWrong = 2;
inline constexpr int kExitInfeasible = 3;
inline constexpr int kExitBug = 70;

/// The text on one line. Control characters become "\n", "\t", "\x1b", so that a value in a message can neither start a
/// new line nor send escape sequences to the terminal.
[[nodiscard]] inline std::string on_one_line(const std::string& text) {
    constexpr const char* kDigits = "0123456789abcdef";
    constexpr unsigned kDelete = 0x7f;
    std::string line;
    for (const char c : text) {
        const auto code = static_cast<unsigned char>(c);
        if (code >= ' ' && code != kDelete) {
            line += c;
        } else if (c == '\n' || c == '\t' || c == '\r') {
            line += c == '\n' ? "\\n" : c == '\t' ? "\\t" : "\\r";
        } else {
            line += {'\\', 'x', kDigits[code / 16], kDigits[code % 16]};
        }
    }
    return line;
}

/// The input is wrong. The message names the file, the key, the value and what is allowed.
class InputError : public std::runtime_error {
  public:
    explicit InputError(const std::string& message) : std::runtime_error(on_one_line(message)) {}
    /// "FILE: KEY: got VALUE; allowed: ALLOWED"
    InputError(const std::string& file, const std::string& key, const std::string& value, const std::string& allowed)
        : InputError(file + ": " + key + ": got " + value + "; allowed: " + allowed) {}
};

/// The job failed: a rank died, a check failed, the disk is full.
class JobError : public std::runtime_error {
  public:
    explicit JobError(const std::string& message) : std::runtime_error(message) {}
};

/// No plan satisfies the request; the message names the limit that is exceeded.
class InfeasibleError : public std::runtime_error {
  public:
    explicit InfeasibleError(const std::string& message) : std::runtime_error(message) {}
};

/// A broken invariant, that is, a bug in Orrery. Thrown instead of aborting, so that destructors clean up partial
/// outputs.
class BugError : public std::logic_error {
  public:
    explicit BugError(const std::string& message) : std::logic_error(message) {}
};

[[noreturn]] inline void throw_bug(const char* file, int line, const char* condition, const std::string& message) {
    throw BugError(std::string(file) + ":" + std::to_string(line) + ": check failed: " + condition + ": " + message);
}

}  // namespace orrery

/// Throws BugError if the condition is false. Active in release builds too.
#define ORRERY_CHECK(condition, message)                                    \
    do {                                                                    \
        if (!(condition)) [[unlikely]]                                      \
            ::orrery::throw_bug(__FILE__, __LINE__, #condition, (message)); \
    } while (false)
