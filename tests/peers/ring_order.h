// The flows of a ring all-reduce and their dependencies, shared by both simulators.
#pragma once

#include <cstdint>
#include <vector>

namespace orrery::peers {

/// Flow step * hosts + rank goes from `rank` to the next rank and carries one chunk. It starts when its sender has
/// finished both sending and receiving in the previous step.
class RingOrder {
  public:
    RingOrder(std::int64_t hosts, std::int64_t bytes)
        : hosts_(hosts), chunk_((bytes + hosts - 1) / hosts), ranks_(static_cast<std::size_t>(hosts)) {}
    [[nodiscard]] std::int64_t hosts() const { return hosts_; }
    [[nodiscard]] std::int64_t chunk() const { return chunk_; }
    [[nodiscard]] std::int64_t steps() const { return 2 * (hosts_ - 1); }

    /// Calls start(flow) for the flows that may start after `flow` has ended. The caller starts the first step's flows.
    template <typename Start>
    void ended(std::int64_t flow, const Start& start) {
        const std::int64_t rank = flow % hosts_;
        const std::int64_t next = rank + 1 == hosts_ ? 0 : rank + 1;
        ++ranks_[static_cast<std::size_t>(rank)].sent;
        ++ranks_[static_cast<std::size_t>(next)].received;
        for (const std::int64_t ready : {rank, next}) {
            Rank& state = ranks_[static_cast<std::size_t>(ready)];
            if (state.sent < state.started || state.received < state.started || state.started == steps()) continue;
            start(state.started++ * hosts_ + ready);
        }
    }

  private:
    struct Rank {
        std::int64_t started = 1, sent = 0, received = 0;  // numbers of steps
    };
    std::int64_t hosts_, chunk_;
    std::vector<Rank> ranks_;
};

}  // namespace orrery::peers
