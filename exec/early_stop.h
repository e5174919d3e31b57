// Ending a training after the step that it is in, where ranks take the user's signal themselves: one process alone, or
// ranks that somebody else's launcher started. Where Orrery launched them, JobPages::stop_training does it.
#pragma once

#include <cstdint>
#include <memory>
#include <thread>

#include "exec/transport/transport.h"

namespace orrery::exec {

/// Launchers such as srun and torchrun pass a signal on to every rank. Each then offers the step that it is in, and
/// begins no other before all have offered theirs: the greatest of them is the last, which all still run. A thread does
/// so, since a rank may be waiting in its step for another that has offered an earlier one.
class EarlyStop {
  public:
    /// From now on the process's signals are held, as FlightRecorder::hold_signals says. The Transport outlives this.
    explicit EarlyStop(Transport& transport);
    /// When the stack is unwinding the job is being ended, and nobody is waited for.
    ~EarlyStop();
    EarlyStop(const EarlyStop&) = delete;
    EarlyStop& operator=(const EarlyStop&) = delete;

    /// Whether training ends before this step of the run, counted from 0: on all ranks or on none. At least one step is
    /// run.
    [[nodiscard]] bool ends_before(std::int64_t step);
    /// Collective, after the last step: a rank whose signal came late is answered, too.
    void finish();

  private:
    struct Agreement;
    Transport& transport_;
    std::shared_ptr<Agreement> agreement_;  // null where nobody has to agree
    std::thread thread_;
};

}  // namespace orrery::exec
