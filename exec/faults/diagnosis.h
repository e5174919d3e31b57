// Diagnoses a job from its ranks' pages and from what the operating system reports about their processes. Pure
// functions: they read no clock and no process.
//
// A rank that waits for others is never the culprit. The diagnoses of other ranks, and of the job, are:
//
//   died      the process is gone, but its work was not done
//   stopped   the process is stopped (SIGSTOP, a debugger) and made no progress for the timeout
//   hangs     the main thread sleeps in an instruction, and made no progress and used no CPU time for the timeout
//   endless   the rank has computed the same instruction for 10 times the timeout; or it has been writing a checkpoint
//             or results for that long, using CPU time or not, since a file system may be slow
//   absent    the rank has not started within 10 times the timeout, while another rank has
//   deadlock  all ranks wait for others, and no message has arrived anywhere for the timeout
//   starter   the process that started the ranks has been stopped for the timeout, so the job could not end
//
// A slow rank is not diagnosed. Ranks that share cores still get CPU time.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "exec/faults/rank_page.h"
#include "sim/program/program.h"

namespace orrery::exec {

/// For how many timeouts a rank may compute one instruction or write files.
inline constexpr double kBusyTimeouts = 10;
/// How long a dead rank is not reported, because its starter usually notices it at once and ends the job.
inline constexpr double kDeathPatience_s = 2;
/// How long a rank that has reported its failure, or a job whose ranks are all done, may take to exit.
inline constexpr double kEndPatience_s = 10;

/// A rank as its launcher sees it at one moment.
struct RankView {
    RankSnapshot page;
    bool exists = false;  // the process
    bool is_stopped = false;
    double gone_s = 0;   // time since the process was last seen; 0 while it exists
    double quiet_s = 0;  // time since the last progress: an instruction, a message, a stage
    double idle_s = 0;   // time since the main thread was last seen to use CPU time or to be ready to run
};

enum class Trouble { died, stopped, hangs, endless, absent, deadlock, starter_stopped, does_not_end };

struct Verdict {
    Trouble trouble{};
    int rank = -1;  // -1: the job
};

/// Diagnoses a running job. With a timeout of 0, hangs are not looked for, only ranks that died or do not exit.
[[nodiscard]] std::optional<Verdict> find_trouble(std::span<const RankView> ranks, double timeout_s);

/// "30 s", "0.5 s".
[[nodiscard]] std::string short_seconds(double value);

/// Describes a trouble of a rank other than `died`, or of the job: "hangs: for 30 s it neither computed nor waited for
/// a message".
[[nodiscard]] std::string describe_trouble(Trouble trouble, double timeout_s);

/// For a job that ended without an error message from a rank: the rank that died first, if one ended before its work
/// was done. `gone` lists the ranks whose end was observed, in order. The other ranks are ended by their starter's
/// SIGTERM, which they record in their pages, or exit by themselves when the first one is gone.
[[nodiscard]] std::optional<Verdict> find_first_to_die(std::span<const RankSnapshot> ranks, std::span<const int> gone);

/// The error message of the job: the culprit and its place, then a line for each of the first other ranks. `how`
/// describes what happened to a rank that died or to the starter of the ranks. Without a Program (null), places name
/// only the stage.
[[nodiscard]] std::string explain(const Verdict& verdict, std::span<const RankSnapshot> ranks, double timeout_s,
                                  const std::string& how, const program::Program* program);

/// "was killed by signal 9 (SIGKILL)…" or "ended with exit code 3…". `noted_signal` is the signal that the rank
/// recorded in its page, 0 if none. Otherwise `job_status`, the starter's exit status, decides: 128 + the signal, or
/// the exit code.
[[nodiscard]] std::string describe_death(int noted_signal, int job_status);

}  // namespace orrery::exec
