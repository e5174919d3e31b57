// What every transport knows of its rank. Private to the transports.
#pragma once

#include "exec/faults/recorder.h"
#include "exec/transport/abort_flag.h"

namespace orrery::exec {

struct TransportState {
    explicit TransportState(FlightRecorder& of) : recorder(of) {}
    FlightRecorder& recorder;
    int rank = 0;
    int world_size = 1;
    int ranks_on_host = 1;
    AbortFlag abort_flag;
};

}  // namespace orrery::exec
