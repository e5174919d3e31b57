// The connections on which a rank's heartbeats travel, and its last words if it fails. They never block.
#pragma once

#include <map>
#include <mutex>
#include <string>

#include "core/file_descriptor.h"
#include "exec/transport/beat_link.h"

namespace orrery::exec {

class BeatWires {
  public:
    /// Takes over the connection to a rank. Before any other call.
    void add(int rank, FileDescriptor socket);

    // Called by any thread.
    /// Sends to all ranks what their connections take at once. A rank whose connection still holds back the beat before
    /// gets none. True if all connections have taken it; those that are closed do not count.
    bool send(const Beat& beat);
    /// Sends to all ranks that this one has failed, after what is still held back. Gives up on ranks that do not take
    /// it.
    void send_last_words(int exit_code);

    // Called by one thread at a time.
    [[nodiscard]] std::optional<BeatLink::Arrival> receive();
    [[nodiscard]] std::vector<int> ranks() const;
    /// The connections on which something may still arrive.
    [[nodiscard]] std::vector<pollfd> files() const;

  private:
    struct Wire {
        FileDescriptor socket;
        std::string unsent;  // the rest of a beat of which the connection took a part
        bool has_sent_last = false;
        Beat beat;  // that is arriving
        std::size_t received = 0;
        bool is_over = false;  // nothing more is expected
    };
    static void flush(Wire& wire);
    static void put(Wire& wire, const Beat& beat);
    std::mutex sending_;
    std::map<int, Wire> wires_;  // by rank
};

}  // namespace orrery::exec
