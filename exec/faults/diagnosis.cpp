#include "exec/faults/diagnosis.h"

#include <algorithm>
#include <csignal>
#include <cstring>
#include <sstream>

#include "exec/faults/held_signals.h"
#include "exec/faults/place.h"

namespace orrery::exec {
namespace {

bool is_done(const RankView& rank) {
    return rank.page.stage == RankStage::done;
}

/// The trouble of a rank whose process exists.
std::optional<Trouble> trouble_of(const RankView& rank, double timeout_s) {
    const RankSnapshot& page = rank.page;
    if (is_done(rank)) return {};
    if (page.stage == RankStage::failed) {
        return rank.quiet_s >= kEndPatience_s ? std::optional(Trouble::does_not_end) : std::nullopt;
    }
    if (timeout_s <= 0 || rank.quiet_s < timeout_s) return {};
    if (rank.is_stopped) return Trouble::stopped;
    if (page.waits()) return {};
    if (rank.quiet_s >= kBusyTimeouts * timeout_s) return Trouble::endless;
    if (!writes_files(page.stage) && rank.idle_s >= timeout_s) return Trouble::hangs;
    return {};
}

bool is_absent(const RankView& rank) {
    return rank.page.stage == RankStage::absent;
}

/// Communicators of many ranks take long to set up, and a rank in it reports no progress.
double patience_for(const RankSnapshot& waiting, double timeout_s) {
    return waiting.stage == RankStage::connecting ? kBusyTimeouts * timeout_s : timeout_s;
}

/// True if some ranks are not done, and all of these have been waiting without progress for the timeout.
bool all_wait(std::span<const RankView> ranks, double timeout_s) {
    return !std::all_of(ranks.begin(), ranks.end(), is_done) &&
           std::all_of(ranks.begin(), ranks.end(), [&](const RankView& rank) {
               return is_done(rank) || (rank.page.waits() && rank.quiet_s >= patience_for(rank.page, timeout_s));
           });
}

bool all_done(std::span<const RankView> ranks) {
    return std::all_of(ranks.begin(), ranks.end(),
                       [](const RankView& rank) { return is_done(rank) && rank.quiet_s >= kEndPatience_s; });
}

std::string where(const RankSnapshot& page, int rank, const program::Program* program) {
    return program == nullptr ? describe_stage(page) : describe_place(*program, rank, page);
}
std::string where_bystander(const RankSnapshot& page, int rank, const program::Program* program) {
    return program == nullptr ? describe_stage(page) : describe_bystander(*program, rank, page);
}

/// What is wrong and where, without the prefix "orrery: ".
std::string headline(const Verdict& verdict, double timeout_s, const std::string& how, const std::string& place) {
    const bool is_told = verdict.trouble == Trouble::died || verdict.trouble == Trouble::starter_stopped;
    const std::string what = is_told ? how : describe_trouble(verdict.trouble, timeout_s);
    if (verdict.rank < 0) return (verdict.trouble == Trouble::does_not_end ? "the job " : "") + what;
    return "rank " + std::to_string(verdict.rank) + " " + what + ": " + place;
}

constexpr std::size_t kMostOthers = 16;

std::string indented(const std::string& text) {
    std::string result;
    std::istringstream lines(text);
    for (std::string line; std::getline(lines, line);) result += "\n    " + line;
    return result;
}

}  // namespace

std::optional<Verdict> find_trouble(std::span<const RankView> ranks, double timeout_s) {
    bool one_begun = false;
    for (std::size_t r = 0; r < ranks.size(); ++r) {
        const RankView& rank = ranks[r];
        if (is_absent(rank)) continue;
        one_begun = true;
        const int number = static_cast<int>(r);
        if (!rank.exists) {
            if (!rank.page.has_ended() && rank.gone_s >= kDeathPatience_s) return Verdict{Trouble::died, number};
            continue;
        }
        if (const auto trouble = trouble_of(rank, timeout_s)) return Verdict{*trouble, number};
    }
    if (all_done(ranks)) return Verdict{Trouble::does_not_end, -1};
    if (timeout_s <= 0 || !one_begun) return {};
    for (std::size_t r = 0; r < ranks.size(); ++r) {
        const bool late = ranks[r].quiet_s >= kBusyTimeouts * timeout_s;
        if (is_absent(ranks[r]) && late) return Verdict{Trouble::absent, static_cast<int>(r)};
    }
    if (all_wait(ranks, timeout_s)) return Verdict{Trouble::deadlock, -1};
    return {};
}

std::string short_seconds(double value) {
    std::ostringstream text;
    text << value << " s";
    return text.str();
}

std::string describe_trouble(Trouble trouble, double timeout_s) {
    switch (trouble) {
        case Trouble::died:
            return "died";
        case Trouble::stopped:
            return "does not respond for " + short_seconds(timeout_s) + ", its process is stopped";
        case Trouble::hangs:
            return "hangs: for " + short_seconds(timeout_s) + " it neither computed nor waited for a message";
        case Trouble::endless:
            return "makes no progress for " + short_seconds(kBusyTimeouts * timeout_s);
        case Trouble::absent:
            return "did not start within " + short_seconds(kBusyTimeouts * timeout_s);
        case Trouble::deadlock:
            return "all ranks wait for each other, and no message has arrived for " + short_seconds(timeout_s);
        case Trouble::starter_stopped:
            return "the starter of the ranks is stopped";
        case Trouble::does_not_end:
            return "does not end, though its work is done";
    }
    return "";
}

std::optional<Verdict> find_first_to_die(std::span<const RankSnapshot> ranks, std::span<const int> gone) {
    for (const int rank : gone) {
        const RankSnapshot& page = ranks[static_cast<std::size_t>(rank)];
        if (!page.has_ended() && page.signal != SIGTERM) return Verdict{Trouble::died, rank};
    }
    std::optional<Verdict> first;
    std::int64_t earliest_ns = 0;
    for (std::size_t r = 0; r < ranks.size(); ++r) {
        const RankSnapshot& rank = ranks[r];
        if (rank.stage == RankStage::absent || rank.has_ended()) continue;
        // A rank that recorded no signal was killed by SIGKILL or exited by itself, so it comes before the ranks that
        // the starter ended by SIGTERM.
        const std::int64_t ns = rank.signal == 0 ? 0 : rank.signal_ns;
        if (first.has_value() && ns >= earliest_ns) continue;
        first = Verdict{Trouble::died, static_cast<int>(r)};
        earliest_ns = ns;
    }
    return first;
}

std::string describe_death(int noted_signal, int job_status) {
    const int signal = noted_signal != 0 ? noted_signal : job_status > 128 ? job_status - 128 : 0;
    if (signal == 0) return "ended with exit code " + std::to_string(job_status) + " before its work was done";
    const std::string name = name_of_signal(signal);
    std::string text = "was killed by signal " + std::to_string(signal);
    if (!name.empty()) text += " (" + name + ")";
    if (signal == SIGKILL) text += ", by hand or by the kernel for lack of memory";
    return text;
}

std::string explain(const Verdict& verdict, std::span<const RankSnapshot> ranks, double timeout_s,
                    const std::string& how, const program::Program* program) {
    const auto culprit = static_cast<std::size_t>(verdict.rank);
    std::string text =
        headline(verdict, timeout_s, how, verdict.rank < 0 ? "" : where(ranks[culprit], verdict.rank, program));
    std::size_t named = 0;
    for (std::size_t r = 0; r < ranks.size(); ++r) {
        if (static_cast<int>(r) == verdict.rank) continue;
        if (named++ == kMostOthers) {
            return text + "\n  and " + std::to_string(ranks.size() - r) + " more ranks";
        }
        text += "\n  rank " + std::to_string(r) + ": " + where_bystander(ranks[r], static_cast<int>(r), program);
        text += indented(ranks[r].pending);
    }
    return text;
}

}  // namespace orrery::exec
