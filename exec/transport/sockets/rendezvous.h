// Where and how the ranks of a job without MPI find each other: rank 0 listens, the others connect to it.
//
// A launcher gives all ranks MASTER_ADDR and MASTER_PORT, but something else may listen at that port: the store of
// torchrun's agent does. So all ranks derive the same short list of ports from it. Rank 0 listens at the first that is
// free, and the others try all of them. A greeting and its answer prove to both sides that the other belongs to this
// job; anything else that connects is dropped.
#pragma once

#include <netinet/in.h>

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

#include "core/file_descriptor.h"

namespace orrery::exec {

/// Set for rank 0 by a launcher on the same machine: the number of a socket that it inherits and that already listens
/// at MASTER_PORT. So no other process can take the port meanwhile.
inline constexpr const char* kListenerVariable = "ORRERY_LISTENER";

struct MeetingPoint {
    std::string host;                  // MASTER_ADDR
    sockaddr_in address{};             // its address; the port is not used
    std::vector<std::uint16_t> ports;  // in the order in which rank 0 tries them
    std::uint64_t job = 0;             // differs between jobs that might use the same ports
    std::chrono::milliseconds patience{120'000};
};

/// From the launcher's variables. Throws InputError if they are missing or wrong.
[[nodiscard]] MeetingPoint meeting_point(int world_size);

/// The value of an environment variable that is an integer from `lowest` on; `absent` if it is not set. Throws
/// InputError if it is another text.
[[nodiscard]] int launcher_variable(const char* name, int lowest, int absent);

/// A socket that listens at a free port of this machine, for it alone, and the port. It is not inherited until that is
/// allowed.
struct Listener {
    FileDescriptor socket;
    std::uint16_t port = 0;
};
[[nodiscard]] Listener listen_on_this_machine(int connections);

/// For rank 0: listens and waits for all ranks, with a connection for each channel. Returns them by channel and rank;
/// those of rank 0 are empty. Throws JobError if no port is free, if two processes have the same rank, or if ranks are
/// missing after the patience; the message names them.
[[nodiscard]] std::vector<std::vector<FileDescriptor>> meet_all(const MeetingPoint& at, int world_size, int channels);

/// For another rank: connects to rank 0, once for each channel. Throws JobError if another process has the same rank,
/// or if rank 0 was not found within the patience.
[[nodiscard]] std::vector<FileDescriptor> join(const MeetingPoint& at, int rank, int channels);

}  // namespace orrery::exec
