// What heartbeats travel on: a ring over MPI (mpi_beat_link.cpp), or a star around rank 0 over sockets
// (sockets/beat_link.cpp).
#pragma once

#include <poll.h>

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "exec/transport/transport.h"

namespace orrery::exec {

enum class BeatKind : std::int64_t {
    alive,
    last,    // the rank needs no more beats and sends none
    failed,  // the rank has reported an error and ends the job
    ended,   // never sent: the rank's process has ended without one of the two before
};

/// A message from a rank: the fields of its RankSnapshot that describe_place() needs.
struct Beat {
    BeatKind kind = BeatKind::alive;
    std::int64_t exit_code = 0;  // of the job, with BeatKind::failed
    std::int64_t stage = 0, step = -1;
    std::uint64_t finished = 0, next = 0, awaited = 0;
};

/// Used by one thread at a time.
class BeatLink {
  public:
    struct Arrival {
        int rank = 0;
        Beat beat;
    };
    virtual ~BeatLink() = default;
    /// The ranks that this one hears.
    [[nodiscard]] virtual std::vector<int> sources() const = 0;
    /// Sends a beat to the ranks that hear this one, without waiting for them. One that has not taken the beat before
    /// gets none. True if all get it; the last beat is sent again until then.
    virtual bool send(const Beat& beat) = 0;
    /// The next beat that has arrived; none if there is none now. Nothing arrives from a rank after its last beat.
    [[nodiscard]] virtual std::optional<Arrival> receive() = 0;
    /// Readable when beats arrive. Without any, the caller must look from time to time.
    [[nodiscard]] virtual std::vector<pollfd> files() const = 0;
    /// Whether a process that ends is noticed at once, with BeatKind::ended.
    [[nodiscard]] virtual bool shows_ends() const = 0;
    /// Collective, after the last beats have been sent and received.
    virtual void close() = 0;
};

/// Collective over all ranks.
[[nodiscard]] std::unique_ptr<BeatLink> make_beat_link(Transport& transport);

}  // namespace orrery::exec
