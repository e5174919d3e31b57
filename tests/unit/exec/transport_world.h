// MPI can start only once per process, so all tests of this executable share one Transport.
#pragma once

#include "exec/transport/transport.h"

namespace orrery::exec {

inline Transport& world_of_this_process() {
    static Transport transport;
    return transport;
}

}  // namespace orrery::exec
