// Graceful stop after the current step, for processes that receive the user's signal themselves: a single process, or
// ranks that another launcher started. For ranks that Orrery launched, JobPages::stop_training does it.
#pragma once

#include <cstdint>
#include <memory>
#include <thread>

#include "exec/transport/transport.h"

namespace orrery::exec {

/// Launchers such as srun and torchrun forward a signal to every rank. Each rank then offers the step that it is in and
/// begins no further step until all ranks have offered theirs. The greatest offer is the last step, and all ranks still
/// run it. The offers are made by a thread, because a rank may be blocked in its step by a rank that is still in an
/// earlier one.
class EarlyStop {
  public:
    /// From now on the process's signals are held (FlightRecorder::hold_signals). The Transport must outlive this.
    explicit EarlyStop(Transport& transport);
    /// Does not wait for other ranks, so that it can run while the stack unwinds and the job is being ended.
    ~EarlyStop();
    EarlyStop(const EarlyStop&) = delete;
    EarlyStop& operator=(const EarlyStop&) = delete;

    /// Whether training ends before this step of the run, counted from 0. All ranks get the same answer. At least one
    /// step is run.
    [[nodiscard]] bool ends_before(std::int64_t step);
    /// Call it on all ranks after the last step: it completes the agreement for ranks whose signal came late.
    void finish();

  private:
    struct Agreement;
    Transport& transport_;
    std::shared_ptr<Agreement> agreement_;  // null if there is nothing to agree on
    std::thread thread_;
};

}  // namespace orrery::exec
