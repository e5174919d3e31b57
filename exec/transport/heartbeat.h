// Finding ranks that hang where no launcher of ours reads along: under mpirun or srun as users call them, on one
// machine or several.
//
// The ranks stand in a ring. A thread of each tells the rank to its right once a second where it is, and listens to the
// one to its left; who is silent for the timeout is stopped, or its machine cannot be reached. A rank that is alive
// sees for itself when it hangs or computes without end (exec/faults/diagnosis.h), and, since it cannot know whom the
// others wait for, takes 10 timeouts of waiting in vain for a deadlock. The first to find something ends the job.
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
    /// Collective over all ranks, as is the end, save when the stack is unwinding. Does nothing for a rank alone or a
    /// timeout of 0.
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
