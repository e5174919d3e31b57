// Private to the lowerings: finds the waits that order every two conflicting uses of a buffer on different streams.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include "sim/program/program.h"

namespace orrery::program {

enum class Buffer : std::uint8_t { frame, input_boundary, forward_boundary, backward_boundary, gradients };

struct Access {
    Buffer buffer{};
    std::int32_t index = 0;
    Stream stream{};
    bool write = false;
    /// Ordered inside its own action by the body: no wait is made against the same action, and the action's other
    /// stream keeps its record.
    bool beside = false;
};

/// A pool of equal slots; the lowest free one is taken.
class SlotPool {
  public:
    std::int32_t take() {
        for (std::size_t i = 0; i < used_.size(); ++i) {
            if (!used_[i]) {
                used_[i] = true;
                return static_cast<std::int32_t>(i);
            }
        }
        used_.push_back(true);
        return static_cast<std::int32_t>(used_.size() - 1);
    }
    void give_back(std::int32_t index) { used_.at(static_cast<std::size_t>(index)) = false; }
    [[nodiscard]] std::int32_t high_water() const { return static_cast<std::int32_t>(used_.size()); }

  private:
    std::vector<bool> used_;
};

class BufferTracker {
  public:
    /// Records the accesses of action `action` and returns what it must wait for: at most one wait a stream, the
    /// latest.
    std::vector<Wait> record(std::int32_t action, const std::vector<Access>& accesses) {
        std::map<Stream, Use> needed;
        for (const Access& access : accesses) {
            const History& history = histories_[{access.buffer, access.index}];
            const auto need = [&](Stream stream, Use use) {
                if (stream == access.stream) return;  // a stream is a FIFO
                // A use beside the action's own computation is tied to it inside the body.
                const bool tied_inside =
                    access.beside && std::any_of(accesses.begin(), accesses.end(),
                                                 [&](const Access& a) { return a.stream == stream && !a.beside; });
                if (tied_inside) return;
                auto [entry, inserted] = needed.try_emplace(stream, use);
                if (!inserted && later(use, entry->second)) entry->second = use;
            };
            for (const auto& [stream, use] : history.writes) need(stream, use);
            if (access.write) {
                for (const auto& [stream, use] : history.reads) need(stream, use);
            }
        }
        for (const Access& access : accesses) {
            History& history = histories_[{access.buffer, access.index}];
            if (access.write && !access.beside) {
                history.writes.clear();
                history.reads.clear();
            }
            (access.write ? history.writes : history.reads)[access.stream] = {action, step_};
        }
        std::vector<Wait> waits;
        for (const auto& [stream, use] : needed) {
            if (use.step + 1 < step_) continue;  // the step before the previous one is over
            waits.push_back({use.action, stream, static_cast<std::uint8_t>(step_ - use.step)});
        }
        return waits;
    }
    void next_step() { ++step_; }

  private:
    struct Use {
        std::int32_t action = 0;
        std::int32_t step = 0;
    };
    struct History {
        std::map<Stream, Use> writes, reads;
    };
    [[nodiscard]] static bool later(Use a, Use b) { return std::pair(a.step, a.action) > std::pair(b.step, b.action); }
    std::map<std::pair<Buffer, std::int32_t>, History> histories_;
    std::int32_t step_ = 0;
};

}  // namespace orrery::program
