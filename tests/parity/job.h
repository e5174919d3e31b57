// Real training runs of the built orrery, and the one-rank reference runs that others are compared with.
#pragma once

#include <string>
#include <vector>

#include "exec/gradients.h"
#include "sim/program/program.h"
#include "sim/program/run_record.h"
#include "tests/cli/command.h"
#include "tests/unit/core/test_folder.h"

namespace orrery::parity {

inline constexpr std::int64_t kSteps = 10;

/// The program that runs a job.
struct Runner {
    std::string program = test::orrery_path();
    std::vector<std::string> environment;  // as in test::CommandOptions
};

/// Trains one plan with `orrery run`, in separate processes.
class Job {
  public:
    explicit Job(const program::Plan& plan, Runner runner = {});
    [[nodiscard]] const program::Program& program() const { return program_; }

    /// Runs this many steps without warm-up; `more` are further arguments of `orrery run`. Throws std::runtime_error
    /// with orrery's error if it fails. It is a test failure if orrery prints anything or a process outlives the job.
    void run(std::int64_t steps, const std::vector<std::string>& more = {});
    /// The record and the last step's gradients of the last run.
    [[nodiscard]] program::RunRecord record() const;
    [[nodiscard]] exec::GlobalTensors gradients() const;
    [[nodiscard]] std::string record_path() const { return folder_.file("record.json"); }
    [[nodiscard]] std::string gradients_path() const { return folder_.file("gradients"); }

  private:
    TestFolder folder_;
    Runner runner_;
    program::Program program_;
};

struct Reference {
    std::vector<double> losses;           // of kSteps steps
    exec::GlobalTensors first_gradients;  // of the first step, in which all plans still have equal weights
};

/// The model's run on one rank, in micro-batches of one sequence. Computed once per process, or read from the folder
/// ORRERY_PARITY_FOLDER if store_reference() has stored it there.
[[nodiscard]] const Reference& reference_of(const std::string& model);
/// Runs the model and stores the result in ORRERY_PARITY_FOLDER, if that is set.
void store_reference(const std::string& model);

}  // namespace orrery::parity
