// Detects hanging and dead ranks that Orrery's launcher does not watch: under mpirun, srun or torchrun started by the
// user, on one or several machines.
//
// A thread of each rank sends its place to other ranks once a second and listens to theirs; who hears whom depends on
// the transport (beat_link.h). A rank that is silent for the timeout is stopped or its machine is unreachable. A living
// rank detects by itself that it hangs or computes endlessly (exec/faults/diagnosis.h). It cannot know what the other
// ranks wait for, so it treats a wait of 10 timeouts without progress as a deadlock. Where the transport shows it, a
// rank whose process has ended is reported at once. The first rank that detects a fault ends the job.
#pragma once

#include <memory>
#include <thread>

#include "exec/transport/transport.h"
#include "sim/program/program.h"

namespace orrery::exec {

class Heartbeat {
  public:
    /// Constructor and destructor are collective over all ranks, except for a destructor during stack unwinding. Does
    /// nothing with a single rank or if a launcher watches. With a timeout of 0 it only looks for ranks that have
    /// ended.
    Heartbeat(const program::Program& program, Transport& transport, double timeout_s);
    ~Heartbeat();
    Heartbeat(const Heartbeat&) = delete;
    Heartbeat& operator=(const Heartbeat&) = delete;

  private:
    struct Watch;
    int exceptions_ = 0;
    std::unique_ptr<Watch> watch_;
    std::thread thread_;
};

}  // namespace orrery::exec
