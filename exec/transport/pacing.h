// The engine's settings for paced operations (Pace, exec/transport/operation.h), and the times at which they ended.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <mutex>

#include "sim/program/program.h"

namespace orrery::exec {

/// Settings of an engine for paced operations. Its thread sleeps while nothing is due.
struct Pacing {
    std::int64_t clock_offset_ns = 0;  // added to this rank's clock to get rank 0's clock
    std::size_t kept_moments = 0;      // number of latest operations of each stream whose moments are kept
    int poll_us = 200;                 // between two polls for messages
};

/// When a paced operation ended: the computed time, and the time at which the progress thread ended it.
struct Moment {
    std::int64_t due_ns = 0;
    std::int64_t actual_ns = 0;
};

/// The latest moments of every stream. Thread-safe.
class Moments {
  public:
    explicit Moments(std::size_t kept) : kept_(kept) {}
    /// Adds the moment of the stream's next operation.
    void add(program::Stream stream, const Moment& moment);
    /// The moment of an operation, by its sequence number. Throws BugError if it has not ended or is no longer kept.
    [[nodiscard]] Moment at(program::Stream stream, std::int64_t sequence) const;

  private:
    struct Latest {
        std::int64_t ended = 0;
        std::deque<Moment> moments;
    };
    std::size_t kept_;
    mutable std::mutex mutex_;
    program::PerStream<Latest> streams_;
};

}  // namespace orrery::exec
