// Both sides of a rendezvous over TCP. Neither ever waits for a single process: whoever connects may be silent, slow or
// a stranger, and whoever listens may be, too.
#pragma once

#include <poll.h>

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/file_descriptor.h"
#include "exec/transport/sockets/greeting.h"
#include "exec/transport/sockets/rendezvous.h"

namespace orrery::exec {

/// Rank 0's side.
class Reception {
  public:
    using Clock = std::chrono::steady_clock;
    Reception(FileDescriptor listener, std::uint64_t job, int world_size, int channels);
    /// False if ranks are missing after the patience. Throws JobError if two processes have the same rank.
    [[nodiscard]] bool wait_for_all(std::chrono::milliseconds patience);
    /// "rank 3", "ranks 1, 2".
    [[nodiscard]] std::string missing() const;
    /// By channel and rank, in blocking mode.
    [[nodiscard]] std::vector<std::vector<FileDescriptor>> take_connections() { return std::move(connections_); }

  private:
    /// A connection whose greeting is not complete.
    struct Guest {
        FileDescriptor socket;
        Clock::time_point deadline;
        Greeting greeting;
        std::size_t received = 0;
        bool is_gone = false;
    };
    void accept_all();
    void listen_to(Guest& guest);
    void admit(Guest& guest);

    FileDescriptor listener_;
    const std::uint64_t job_;
    std::vector<std::vector<FileDescriptor>> connections_;
    std::vector<std::uint64_t> processes_;  // by rank; 0: none has connected
    int left_ = 0;                          // connections
    std::vector<Guest> guests_;
};

/// The side of another rank: tries all ports at the same time, again and again.
class Seeker {
  public:
    using Clock = std::chrono::steady_clock;
    Seeker(const MeetingPoint& at, const Greeting& greeting);
    /// The connection to rank 0, in blocking mode, and its port; none if it was not found within the patience, or if it
    /// refuses this process.
    [[nodiscard]] std::optional<Listener> find();
    [[nodiscard]] bool is_refused() const { return is_refused_; }

  private:
    struct Attempt {
        std::uint16_t port = 0;
        FileDescriptor socket;
        Clock::time_point next;  // without a socket: when to try again; with one: when to give up
        bool is_connected = false;
        Welcome welcome;
        std::size_t received = 0;
    };
    void begin(Attempt& attempt) const;
    void greet(Attempt& attempt) const;
    [[nodiscard]] bool is_welcomed(Attempt& attempt);
    static void drop(Attempt& attempt);

    const MeetingPoint at_;
    const Greeting greeting_;
    std::vector<Attempt> attempts_;
    bool is_refused_ = false;
};

}  // namespace orrery::exec
