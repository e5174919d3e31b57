// Observes one rank over time: for how long it has made no progress, used no CPU time, or been gone.
#pragma once

#include <chrono>
#include <cstdint>

#include "exec/faults/diagnosis.h"
#include "exec/faults/rank_page.h"

namespace orrery::exec {

class RankWatch {
  public:
    using Clock = std::chrono::steady_clock;
    explicit RankWatch(Clock::time_point now = Clock::now()) : seen_(now), news_(now), busy_(now) {}

    /// Updates the view. The operating system is asked only if the page shows no progress.
    void observe(Clock::time_point now, const RankSnapshot& page);
    /// Does not count `lost`, a time for which the observer itself, and perhaps the rank, was stopped.
    void forgive(Clock::duration lost);
    [[nodiscard]] const RankView& view() const { return view_; }

  private:
    RankView view_;
    Clock::time_point seen_, news_, busy_;
    std::int64_t cpu_ticks_ = 0;
};

/// If two observations are further apart than this, the observer was stopped meanwhile: see RankWatch::forgive.
inline constexpr std::chrono::seconds kLostTime{5};

}  // namespace orrery::exec
