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

/// The text on one line: control characters as "\n", "\t", "\x1b", so that no value ends a message or writes to the
/// terminal what looks like another.
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

/// The input is wrong. The message is complete: it names the file, the key, the value and what is allowed.
class InputError : public std::runtime_error {
  public:
    explicit InputError(const std::string& message) : std::runtime_error(on_one_line(message)) {}
    /// "FILE: KEY: VALUE is not allowed; allowed: ALLOWED"
    InputError(const std::string& file, const std::string& key, const std::string& value, const std::string& allowed)
        : InputError(file + ": " + key + ": got " + value + "; allowed: " + allowed) {}
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
