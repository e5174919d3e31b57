// Predicted against measured: the same plan, interpreted twice.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "sim/program/program.h"
#include "sim/program/run_record.h"

namespace orrery::reports {

enum class Quantity : std::uint8_t {
    step_time_s,        // steady period against the median step
    busy_s,             // of a stream, mean over ranks; waiting for peers included
    peak_memory_bytes,  // worst rank
    bytes_sent,         // sum over ranks in a step
};
[[nodiscard]] std::string name_of(Quantity quantity);

inline constexpr const char* kAllRanks = "all ranks";

struct ComparisonRow {
    Quantity quantity{};
    std::string scope;   // kAllRanks or the stage's name
    std::string stream;  // its name, "pp" (all pipeline streams together), or "" where none applies
    double predicted = 0;
    double measured = 0;
    std::optional<double> error;  // predicted / measured - 1; none when only the measured value is 0
};

/// Instructions of one phase on one kind of stream; seconds a step, mean over the ranks, of the instructions that both
/// records hold.
struct PhaseRow {
    std::string phase;
    std::string stream;
    std::int64_t instructions = 0;  // distinct (stage, key) pairs
    double predicted_s = 0;
    double measured_s = 0;
    std::optional<double> error;
};

struct InstructionRow {
    std::string stage;
    std::string key;
    std::string stream;
    double predicted_s = 0;  // from ready to end, mean over the stage's ranks
    double measured_s = 0;
    double predicted_wait_s = 0;  // the part from ready to begin: waiting for peers
    double measured_wait_s = 0;
};

struct Comparison {
    std::string plan_name;
    std::string strategy;
    bool judged = true;                 // false: shown, but left out of the median (more ranks than cores, say)
    std::vector<ComparisonRow> rows;    // the first is the step time
    std::vector<PhaseRow> phases;       // empty when a record holds no spans
    std::vector<InstructionRow> worst;  // by |predicted_s - measured_s|, at most kWorstInstructions
    std::int64_t joined = 0;            // (stage, key) pairs in both records
    std::int64_t only_predicted = 0;
    std::int64_t only_measured = 0;
    std::vector<std::string> notes;  // of both records

    [[nodiscard]] const ComparisonRow& step_time() const { return rows.front(); }
};
inline constexpr std::size_t kWorstInstructions = 10;

/// Joins two records of one Program. Throws InputError when they name different plans or a record has no ranks.
[[nodiscard]] Comparison compare(const program::Program& program, const program::RunRecord& predicted,
                                 const program::RunRecord& measured);

/// Median of |step time error| over the judged comparisons; none when nothing is judged.
[[nodiscard]] std::optional<double> median_step_time_error(std::span<const Comparison> comparisons);

/// One comparison in full: quantities, phases, worst instructions, notes.
[[nodiscard]] std::string comparison_text(const Comparison& comparison);
/// Many side by side: a table with a block a plan, quantities over all ranks only, and the median error of step time.
[[nodiscard]] std::string comparisons_text(std::span<const Comparison> comparisons);
/// `orrery.comparison/1`, ending in a newline.
[[nodiscard]] std::string comparisons_json(std::span<const Comparison> comparisons);

}  // namespace orrery::reports
