// Internal state of the transport. The only header that includes MPI.
#pragma once

#define OMPI_SKIP_MPICXX 1
#define MPICH_SKIP_MPICXX 1
#include <mpi.h>

#include <atomic>
#include <cstdint>
#include <mutex>
#include <string>
#include <vector>

#include "exec/transport/transport.h"
#include "exec/transport/transport_state.h"

namespace orrery::exec {

struct Group {
    MPI_Comm comm = MPI_COMM_NULL;  // null for a group of one rank
    std::vector<int> ranks;
    int me = 0;
};

struct Transport::Impl : TransportState {
    using TransportState::TransportState;
    int cores = 1;
    MPI_Comm host_exchange = MPI_COMM_NULL;   // barrier, gather, broadcast
    MPI_Comm point_to_point = MPI_COMM_NULL;  // sends and receives of streams, by world rank
    MPI_Comm offers = MPI_COMM_NULL;          // offer(), independent of the other exchanges
    MPI_Request offer = MPI_REQUEST_NULL;
    std::int64_t offered = 0, greatest_offer = 0;
    IndexedVector<GroupIndex, Group> groups;
    std::mutex mpi;                    // held during every MPI call
    std::atomic<bool> broken = false;  // operations were left in flight: MPI cannot be finalized

    /// Throws JobError naming rank, call and MPI's reason unless `code` is MPI_SUCCESS.
    void check(int code, const char* call) const;
    /// Polls until the request is done. Releases the MPI lock between polls, for the progress thread.
    void wait_politely(MPI_Request request, const char* call);
    /// Whether a rank of this machine has failed and is about to end the job. Reading its memory would then fail inside
    /// MPI, which would print its own error.
    [[nodiscard]] bool job_is_ending() const { return abort_flag.is_raised(); }
};

}  // namespace orrery::exec
