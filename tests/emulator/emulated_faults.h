// Jobs of the command without MPI, on emulated GPUs.
#pragma once

#include <string>

#include "tests/faults/running_job.h"

namespace orrery::test {

/// A plan for so many GPUs whose steps take a fraction of a second on the emulator.
inline nlohmann::json gpu_plan(int ranks) {
    nlohmann::json plan = small_plan(ranks);
    plan["training"] = {{"sequence_length", 4}, {"global_batch_size", ranks}, {"precision", "fp32"}};
    return plan;
}

class EmulatedFaults : public Faults {
  protected:
    EmulatedFaults() : Faults(ORRERY_EMULATED) {
        here_.write("one.plan.json", gpu_plan(1));
        here_.write("two.plan.json", gpu_plan(2));
        here_.write("three.plan.json", gpu_plan(3));
    }
};

}  // namespace orrery::test
