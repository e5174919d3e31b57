// Private to the lowerings: finds the waits that order every two conflicting uses of a buffer on different streams.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <utility>
#include <vector>

#include "sim/program/program.h"

namespace orrery::program {

enum class Buffer : std::uint8_t { frame, input_boundary, forward_boundary, backward_boundary, gradients };
inline constexpr std::size_t kBufferKinds = static_cast<std::size_t>(Buffer::gradients) + 1;

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

/// What an action touches: at most kMost accesses.
class AccessList {
  public:
    static constexpr std::size_t kMost = 6;
    AccessList(std::initializer_list<Access> accesses) {
        for (const Access& access : accesses) push_back(access);
    }
    void push_back(const Access& access) { accesses_.at(count_++) = access; }
    [[nodiscard]] const Access* begin() const { return accesses_.data(); }
    [[nodiscard]] const Access* end() const { return accesses_.data() + count_; }

  private:
    std::array<Access, kMost> accesses_{};
    std::size_t count_ = 0;
};

class BufferTracker {
  public:
    /// Records the accesses of action `action` and appends to `waits` what it must wait for: at most one wait a stream,
    /// the latest, in the order of the streams. Returns how many.
    std::int32_t record(std::int32_t action, const AccessList& accesses, std::vector<Wait>& waits) {
        Uses needed{};
        for (const Access& access : accesses) {
            const History& history = history_of(access);
            for (std::size_t stream = 0; stream < kStreams; ++stream) {
                const Use use =
                    access.write ? later(history.writes[stream], history.reads[stream]) : history.writes[stream];
                if (use.action < 0 || stream == static_cast<std::size_t>(access.stream))
                    continue;  // a stream is a FIFO
                // A use beside the action's own computation is tied to it inside the body.
                const bool tied_inside =
                    access.beside && std::any_of(accesses.begin(), accesses.end(), [&](const Access& a) {
                        return static_cast<std::size_t>(a.stream) == stream && !a.beside;
                    });
                if (!tied_inside) needed[stream] = later(needed[stream], use);
            }
        }
        for (const Access& access : accesses) {
            History& history = history_of(access);
            if (access.write && !access.beside) history = {};
            (access.write ? history.writes : history.reads)[static_cast<std::size_t>(access.stream)] = {action, step_};
        }
        std::int32_t count = 0;
        for (std::size_t stream = 0; stream < kStreams; ++stream) {
            const Use use = needed[stream];
            if (use.action < 0 || use.step + 1 < step_) continue;  // the step before the previous one is over
            waits.push_back({use.action, static_cast<Stream>(stream), static_cast<std::uint8_t>(step_ - use.step)});
            ++count;
        }
        return count;
    }
    void next_step() { ++step_; }

  private:
    static constexpr auto kStreams = static_cast<std::size_t>(kStreamCount);
    struct Use {
        std::int32_t action = -1;  // -1: none
        std::int32_t step = 0;
    };
    using Uses = std::array<Use, kStreams>;
    struct History {
        Uses writes{}, reads{};
    };
    [[nodiscard]] static Use later(Use a, Use b) {
        if (a.action < 0 || b.action < 0) return a.action < 0 ? b : a;
        return std::pair(a.step, a.action) > std::pair(b.step, b.action) ? a : b;
    }
    [[nodiscard]] History& history_of(const Access& access) {
        std::vector<History>& histories = histories_[static_cast<std::size_t>(access.buffer)];
        const auto index = static_cast<std::size_t>(access.index);
        if (index >= histories.size()) histories.resize(index + 1);
        return histories[index];
    }
    std::array<std::vector<History>, kBufferKinds> histories_;  // by buffer, then index
    std::int32_t step_ = 0;
};

}  // namespace orrery::program
