// One rank, seen again and again: since when it has made no progress, had no processor, or is gone.
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

    /// Asks the operating system only about a rank whose page says nothing new.
    void observe(Clock::time_point now, const RankSnapshot& page);
    /// So much of the time since the last look the observer itself was stopped, and the rank maybe with it.
    void forgive(Clock::duration lost);
    [[nodiscard]] const RankView& view() const { return view_; }

  private:
    RankView view_;
    Clock::time_point seen_, news_, busy_;
    std::int64_t cpu_ticks_ = 0;
};

/// Looks that are so much apart are so because the observer was stopped: see RankWatch::forgive.
inline constexpr std::chrono::seconds kLostTime{5};

}  // namespace orrery::exec
