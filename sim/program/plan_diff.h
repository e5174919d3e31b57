// How the steps of two plans differ: time by what it is spent on, memory by what it holds, and the inputs.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace orrery::program {

struct DiffRow {
    std::string what;                    // "tp", "bubble"; "weights", "activations"
    std::int64_t before = 0, after = 0;  // ps, or bytes
    [[nodiscard]] std::int64_t change() const { return after - before; }
};

struct ChangedInput {
    std::string path;           // keys of the plan file joined by dots
    std::string before, after;  // JSON; "": the key is missing
};

struct PlanDiff {
    std::string before, after;  // files
    bool measured = false;      // by records of runs; otherwise predicted
    double step_before_s = 0, step_after_s = 0;
    double tokens_per_s_before = 0, tokens_per_s_after = 0;
    /// Of a mean rank; they sum to the step times. Parts that are 0 in both are left out.
    std::vector<DiffRow> time_ps;
    /// Of the fullest rank; they sum to the memory that it needs.
    std::vector<DiffRow> memory_bytes;
    std::vector<ChangedInput> inputs;
};

/// `orrery.diff/1`.
[[nodiscard]] std::string to_json_text(const PlanDiff& diff);
[[nodiscard]] PlanDiff diff_from_json_text(const std::string& text, const std::string& file);

}  // namespace orrery::program
