// Runs all members of a collective in one process, with memcpy in place of messages.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <vector>

#include "core/random.h"
#include "exec/transport/collective.h"

namespace orrery::exec {

inline bool disjoint(const std::byte* a, std::int64_t a_bytes, const std::byte* b, std::int64_t b_bytes) {
    return a_bytes == 0 || b_bytes == 0 || a + a_bytes <= b || b + b_bytes <= a;
}

/// Executes the members' steps as the transport does: lanes advance independently, a message is transferred when both
/// ends have reached it, and the next message is chosen at random. It is a test failure if two ends disagree about a
/// message or if the members deadlock.
class Walk {
  public:
    Walk(std::vector<Collective>& members, std::uint64_t seed) : members_(members), random_(seed, "walk") {
        sent_.resize(members.size(), 0);
        for (std::size_t m = 0; m < members.size(); ++m) {
            members[m].begin();
            for (std::int64_t lane = 0; lane < std::min<std::int64_t>(kLanes, members[m].columns()); ++lane) {
                lanes_.push_back({m, lane, lane, 0, {}, false, false, {}});
                lanes_.back().staging.resize(static_cast<std::size_t>(members[m].staging_bytes()));
            }
        }
        for (Lane& lane : lanes_) enter(lane);
    }

    /// Returns the bytes that each member sent.
    std::vector<std::int64_t> run() {
        for (;;) {
            std::vector<std::pair<Lane*, Lane*>> ready;
            bool waiting = false;
            for (Lane& to : lanes_) {
                waiting = waiting || to.sends || to.receives;
                if (!to.receives) continue;
                Lane* from = lane_of(static_cast<std::size_t>(to.step.receive_from), to.lane);
                const bool meets = from != nullptr && from->sends && from->step.send_to == static_cast<int>(to.member);
                if (meets) ready.emplace_back(from, &to);
            }
            if (ready.empty()) {
                EXPECT_FALSE(waiting) << "deadlock";
                return sent_;
            }
            take(ready[random_.below(draws_++, ready.size())]);
        }
    }

  private:
    struct Lane {
        std::size_t member = 0;
        std::int64_t lane = 0;
        std::int64_t column = 0;
        int step_index = 0;
        Step step;
        bool sends = false, receives = false;  // still to be done
        std::vector<std::byte> staging;
    };

    Lane* lane_of(std::size_t member, std::int64_t lane) {
        for (Lane& candidate : lanes_) {
            if (candidate.member == member && candidate.lane == lane) return &candidate;
        }
        return nullptr;
    }

    // Advances until the lane has a message or no columns left.
    void enter(Lane& lane) {
        const Collective& collective = members_[lane.member];
        for (;;) {
            if (lane.column >= collective.columns()) return;
            lane.step = collective.step(lane.column, lane.step_index, lane.staging.data());
            lane.sends = lane.step.send_bytes > 0;
            lane.receives = lane.step.receive_bytes > 0;
            // Both messages are in flight at once.
            EXPECT_TRUE(disjoint(lane.step.send, lane.step.send_bytes, lane.step.receive, lane.step.receive_bytes));
            EXPECT_LE(std::max(lane.step.send_bytes, lane.step.receive_bytes), kLargestMessageBytes);
            if (lane.sends || lane.receives) return;
            finish(lane);
        }
    }

    void finish(Lane& lane) {
        const Collective& collective = members_[lane.member];
        collective.finish_step(lane.column, lane.step_index, lane.staging.data());
        if (++lane.step_index < collective.steps()) return;
        lane.step_index = 0;
        lane.column += kLanes;
    }

    void take(std::pair<Lane*, Lane*> message) {
        auto [from, to] = message;
        EXPECT_EQ(from->step.send_bytes, to->step.receive_bytes);
        std::memcpy(to->step.receive, from->step.send, static_cast<std::size_t>(to->step.receive_bytes));
        sent_[from->member] += from->step.send_bytes;
        from->sends = false;
        to->receives = false;
        for (Lane* lane : {from, to}) {
            if (lane->sends || lane->receives) continue;
            finish(*lane);
            enter(*lane);
        }
    }

    std::vector<Collective>& members_;
    RandomStream random_;
    std::uint64_t draws_ = 0;
    std::vector<Lane> lanes_;
    std::vector<std::int64_t> sent_;
};

/// Runs the members' collectives; returns the bytes that each sent.
inline std::vector<std::int64_t> run(std::vector<Collective>& members, std::uint64_t seed = 1) {
    return Walk(members, seed).run();
}

}  // namespace orrery::exec
