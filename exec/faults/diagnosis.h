// What is wrong with a job, from what its ranks told and what the operating system knows of them. Pure functions: no
// clock, no process.
//
// A rank that waits for others is never the culprit: its standing still is theirs. Of the others:
//
//   died      its process is gone, though its work was not done
//   stopped   it is stopped (SIGSTOP, a debugger) and made no progress for the timeout
//   hangs     its thread of work sleeps in the midst of an instruction, and has neither made progress nor had any of
//             the processor's time for the timeout
//   endless   it computes, but one and the same instruction for 10 times the timeout; so also when it writes results
//             after the last step, busy or not, since a file system may be slow
//   absent    it has not begun for 10 times the timeout, while another rank has
//   deadlock  every rank waits for others, and no message has come anywhere for the timeout
//   mpirun    it is stopped and has been for the timeout: the job could not end
//
// Being slow is none of these. Ranks that share cores with others still get the processor's time.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "exec/faults/rank_page.h"
#include "sim/program/program.h"

namespace orrery::exec {

/// How many timeouts a rank may compute one instruction, or write its results.
inline constexpr double kBusyTimeouts = 10;
/// How long mpirun, which sees the death of a rank at once, may take to end the others before a dead rank is a verdict.
inline constexpr double kDeathPatience_s = 2;
/// How long a rank that has said why it fails, or a job whose ranks are all done, may take to end.
inline constexpr double kEndPatience_s = 10;

/// One rank as its launcher sees it at a moment.
struct RankView {
    RankSnapshot page;
    bool exists = false;  // its process
    bool is_stopped = false;
    double gone_s = 0;   // since it was seen last; 0 while it exists
    double quiet_s = 0;  // since it was seen to make progress: an instruction, a message, a stage
    double idle_s = 0;   // since its thread of work was seen to have the processor's time, or to want it
};

enum class Trouble { died, stopped, hangs, endless, absent, deadlock, mpirun_stopped, does_not_end };

struct Verdict {
    Trouble trouble{};
    int rank = -1;  // -1: the job
};

/// While the job runs. A timeout of 0: only the dead are found.
[[nodiscard]] std::optional<Verdict> find_trouble(std::span<const RankView> ranks, double timeout_s);

/// "hangs: for 30 s it neither computed nor waited for a message": what is wrong with a rank that did not die.
[[nodiscard]] std::string describe_trouble(Trouble trouble, double timeout_s);

/// After a job that has ended without a rank having said why: the rank that ended first, if one did before its work was
/// done. `gone` are the ranks in the order in which their processes were seen to end, as far as they were. Others are
/// ended by mpirun's SIGTERM, which they note, or leave by themselves when they hear of the first.
[[nodiscard]] std::optional<Verdict> find_first_to_die(std::span<const RankSnapshot> ranks, std::span<const int> gone);

/// What is said of the job: the culprit with its place, then a line for each of the others with its own, of many the
/// first. `how` says how a rank that died did. Without a Program (null) of the places only the stage is known.
[[nodiscard]] std::string explain(const Verdict& verdict, std::span<const RankSnapshot> ranks, double timeout_s,
                                  const std::string& how, const program::Program* program);

/// "was killed by signal 9 (SIGKILL)…", "ended with exit code 3", by the status of a job that mpirun reports: 128 + the
/// signal, or the rank's exit code; signal 0: what the rank itself noted.
[[nodiscard]] std::string describe_death(int noted_signal, int job_status);

}  // namespace orrery::exec
