// Detects hanging ranks that Orrery's launcher does not watch: under mpirun or srun started by the user, on one or
// several machines.
//
// The ranks form a ring. A thread of each rank sends its place to the right neighbour once a second and listens to the
// left neighbour. A neighbour that is silent for the timeout is stopped or its machine is unreachable. A living rank
// detects by itself that it hangs or computes endlessly (exec/faults/diagnosis.h). It cannot know what the other ranks
// wait for, so it treats a wait of 10 timeouts without progress as a deadlock. The first rank that detects a fault ends
// the job.
#pragma once

#include <condition_variable>
#include <memory>
#include <mutex>
#include <thread>

#include "exec/transport/transport.h"
#include "sim/program/program.h"

namespace orrery::exec {

class Heartbeat {
  public:
    /// Constructor and destructor are collective over all ranks, except for a destructor during stack unwinding. Does
    /// nothing with a single rank, with a timeout of 0, or if a launcher watches.
    Heartbeat(const program::Program& program, Transport& transport, double timeout_s);
    ~Heartbeat();
    Heartbeat(const Heartbeat&) = delete;
    Heartbeat& operator=(const Heartbeat&) = delete;

  private:
    struct Ring;
    void run();

    const double timeout_s_;
    int exceptions_ = 0;
    std::unique_ptr<Ring> ring_;
    std::mutex mutex_;
    std::condition_variable wake_;
    bool stopping_ = false;
    std::thread thread_;
};

}  // namespace orrery::exec
