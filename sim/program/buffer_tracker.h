// Private to the lowerings: finds the waits that order every two conflicting uses of a buffer on different streams.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <limits>
#include <utility>
#include <vector>

#include "sim/program/program.h"

namespace orrery::program {

enum class Buffer : std::uint8_t {
    frame,  // index: frame * chunks + chunk
    input_boundary,
    forward_boundary,
    backward_boundary,
    gradients,
    parameters,  // whole, or the window of gathered units
    gradient_window,
    staging,
    offload_window,
    weight_copies,
    block,    // stands for a block of overlapping tasks: what leaves it waits for its end
    replica,  // torch DataParallel: what the master and the others exchange
};
inline constexpr std::size_t kBufferKinds = static_cast<std::size_t>(Buffer::replica) + 1;

struct Access {
    Buffer buffer{};
    std::int32_t index = 0;
    Stream stream{};
    bool write = false;
    /// Ordered inside its own action by the body: no wait is made against the same action, and the action's other
    /// stream keeps its record.
    bool beside = false;
    /// Beside, and begun before the action's own computation: it waits itself for what earlier actions do.
    bool ahead = false;
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

/// A pool of equal slots, of which the one that has been free longest is taken: what was given back may still be under
/// way. It grows to `least` slots before it takes one twice, and whenever none is free at the time of taking.
class TimedPool {
  public:
    explicit TimedPool(std::int32_t least = 0) : least_(least) {}
    std::int32_t take(double now) {
        std::int32_t best = -1;
        for (std::int32_t i = 0; high_water() >= least_ && i < high_water(); ++i) {
            const double free_at = free_at_[static_cast<std::size_t>(i)];
            if (free_at > now) continue;
            if (best < 0 || free_at < free_at_[static_cast<std::size_t>(best)]) best = i;
        }
        if (best < 0) {
            free_at_.push_back(kTaken);
            return high_water() - 1;
        }
        free_at_[static_cast<std::size_t>(best)] = kTaken;
        return best;
    }
    void give_back(std::int32_t index, double free_at) { free_at_.at(static_cast<std::size_t>(index)) = free_at; }
    [[nodiscard]] std::int32_t high_water() const { return static_cast<std::int32_t>(free_at_.size()); }

  private:
    static constexpr double kTaken = std::numeric_limits<double>::infinity();
    std::int32_t least_;
    std::vector<double> free_at_;
};

/// What an action touches; almost always few things.
class AccessList {
  public:
    AccessList() = default;
    AccessList(std::initializer_list<Access> accesses) {
        for (const Access& access : accesses) push_back(access);
    }
    void push_back(const Access& access) {
        if (count_ == kInline && more_.empty()) more_.assign(few_.begin(), few_.end());
        if (count_ >= kInline) {
            more_.push_back(access);
        } else {
            few_[count_] = access;
        }
        ++count_;
    }
    void append(const AccessList& others) {
        for (const Access& access : others) push_back(access);
    }
    [[nodiscard]] const Access* begin() const { return count_ > kInline ? more_.data() : few_.data(); }
    [[nodiscard]] const Access* end() const { return begin() + count_; }

  private:
    static constexpr std::size_t kInline = 12;
    std::array<Access, kInline> few_;  // only the first count_ mean anything
    std::vector<Access> more_;         // all of them, once they are more than kInline
    std::size_t count_ = 0;
};

class BufferTracker {
  public:
    /// Records the accesses of action `action` and appends to `waits` what it must wait for: of each stream the latest
    /// use that conflicts, holding the streams whose accesses conflict with it. Returns how many.
    std::int32_t record(std::int32_t action, const AccessList& accesses, std::vector<Wait>& waits) {
        std::uint32_t own = 0;  // streams of the action's own computations
        for (const Access& access : accesses) {
            if (!access.beside) own |= bit(access.stream);
        }
        const std::size_t first = waits.size();
        for (const Access& access : accesses) {
            const History& history = history_of(access);
            std::uint32_t left = (history.written | (access.write ? history.read : 0)) & ~bit(access.stream);
            // A use beside the action's own computation is tied to it inside the body.
            if (access.beside && !access.ahead) left &= ~own;
            for (; left != 0; left &= left - 1) {
                const auto stream = static_cast<std::size_t>(std::countr_zero(left));
                Use use = (history.written >> stream & 1U) != 0 ? history.writes[stream] : Use{};
                if (access.write && (history.read >> stream & 1U) != 0) use = later(use, history.reads[stream]);
                if (use.step + 1 < step_) continue;  // the step before the previous one is over
                add({use.action, static_cast<Stream>(stream), static_cast<std::uint8_t>(step_ - use.step),
                     bit(access.stream)},
                    first, waits);
            }
        }
        for (const Access& access : accesses) {
            History& history = history_of(access);
            if (access.write && !access.beside) history.written = history.read = 0;
            const auto stream = static_cast<std::size_t>(access.stream);
            (access.write ? history.writes : history.reads)[stream] = {action, step_};
            (access.write ? history.written : history.read) |= bit(access.stream);
        }
        return static_cast<std::int32_t>(waits.size() - first);
    }
    void next_step() { ++step_; }

  private:
    static constexpr auto kStreams = static_cast<std::size_t>(kStreamCount);
    struct Use {
        std::int32_t action = -1;  // -1: none
        std::int32_t step = 0;
    };
    using Uses = std::array<Use, kStreams>;
    /// Equal waits become one that holds the streams of both.
    static void add(const Wait& wait, std::size_t first, std::vector<Wait>& waits) {
        for (std::size_t i = first; i < waits.size(); ++i) {
            Wait& known = waits[i];
            if (known.action != wait.action || known.stream != wait.stream || known.steps_back != wait.steps_back) {
                continue;
            }
            known.held_streams |= wait.held_streams;
            return;
        }
        waits.push_back(wait);
    }
    struct History {
        Uses writes, reads;
        std::uint32_t written = 0, read = 0;  // streams whose entries mean something
    };
    static_assert(kStreams <= 32, "a bit for each stream");
    [[nodiscard]] static constexpr std::uint32_t bit(Stream stream) { return 1U << static_cast<std::uint32_t>(stream); }
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
