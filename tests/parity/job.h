// Real training runs by the built orrery, and the one-rank runs that others are held against.
#pragma once

#include <string>

#include "exec/gradients.h"
#include "sim/program/program.h"
#include "sim/program/run_record.h"
#include "tests/unit/core/test_folder.h"

namespace orrery::parity {

inline constexpr std::int64_t kSteps = 10;

/// One plan, which `orrery run` trains by in processes of its own.
class Job {
  public:
    explicit Job(const program::Plan& plan);
    [[nodiscard]] const program::Program& program() const { return program_; }

    /// Runs this many steps without warm-up. Throws std::runtime_error with what orrery wrote when it fails; a process
    /// that outlives the job or a word that it prints is a test failure. `more`: arguments of orrery run.
    void run(std::int64_t steps, const std::vector<std::string>& more = {});
    /// Of the last run.
    [[nodiscard]] program::RunRecord record() const;
    [[nodiscard]] exec::GlobalTensors gradients() const;  // of the last step
    [[nodiscard]] std::string record_path() const { return folder_.file("record.json"); }
    [[nodiscard]] std::string gradients_path() const { return folder_.file("gradients"); }

  private:
    TestFolder folder_;
    program::Program program_;
};

struct Reference {
    std::vector<double> losses;           // of kSteps steps
    exec::GlobalTensors first_gradients;  // of the first step, where all plans still have equal weights
};

/// One rank's run of the model, in micro-batches of one sequence. Made once a process, or once for many when
/// ORRERY_PARITY_FOLDER names a folder where store_reference has put it.
[[nodiscard]] const Reference& reference_of(const std::string& model);
/// Runs the model anew and keeps the result in ORRERY_PARITY_FOLDER, if that is set.
void store_reference(const std::string& model);

}  // namespace orrery::parity
