// Operations that take time instead of moving data (Pace, exec/transport/operation.h): when they ended.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <mutex>

#include "sim/program/program.h"

namespace orrery::exec {

/// Of an engine all of whose operations have a Pace. Its thread sleeps whenever nothing is due.
struct Pacing {
    std::int64_t clock_offset_ns = 0;  // to be added to this rank's clock to have that of all
    std::size_t kept_moments = 0;      // operations of a stream, the latest, whose moments are asked for
    int poll_us = 200;                 // between two looks for messages
};

/// When a paced operation ended: when it was due, and when the progress thread let it end.
struct Moment {
    std::int64_t due_ns = 0;
    std::int64_t actual_ns = 0;
};

/// The latest moments of every stream. Any thread may call.
class Moments {
  public:
    explicit Moments(std::size_t kept) : kept_(kept) {}
    /// Of the stream's next operation.
    void add(program::Stream stream, const Moment& moment);
    /// Of its n-th, from 1. Throws BugError when it has not ended or is not kept any more.
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
