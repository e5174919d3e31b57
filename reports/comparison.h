// Predicted against measured: the same plan, interpreted twice.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "reports/time_part.h"
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

/// Where a step goes, by breakdown.h: of the mean over the ranks, seconds a step. Exposed parts sum to the step.
struct PartRow {
    std::string part;  // name_of(TimePart)
    double predicted_s = 0;
    double measured_s = 0;
    std::optional<double> error;
    double predicted_hidden_s = 0;  // of communication and copies: ran while the rank computed
    double measured_hidden_s = 0;
};

/// What the ranks sent on a stream by one kind of communication, in a step, all together.
struct CollectiveRow {
    std::string stream;
    std::string kind;
    std::int64_t predicted_bytes = 0;
    std::int64_t measured_bytes = 0;
};

/// A part of the memory of the worst rank (program::RankRecord::memory).
struct MemoryRow {
    std::string part;
    std::int64_t predicted_bytes = 0;
    std::int64_t measured_bytes = 0;
};

struct InstructionRow {
    std::string stage;
    std::string key;
    std::string stream;
    double predicted_s = 0;       // from ready to end, mean over the stage's ranks
    double measured_s = 0;        // likewise, of each rank the median over its steps
    double predicted_wait_s = 0;  // the part from ready to begin: waiting for peers
    double measured_wait_s = 0;
};

struct Comparison {
    std::string plan_name;
    std::string strategy;
    bool judged = true;               // false: shown, but left out of the median (more ranks than cores, say)
    std::vector<ComparisonRow> rows;  // the first is the step time
    std::vector<PartRow> parts;       // empty when a record holds no spans, or without operator weights
    std::vector<CollectiveRow> collectives;
    std::vector<MemoryRow> memory;
    std::vector<PhaseRow> phases;       // empty when a record holds no spans
    std::vector<InstructionRow> worst;  // by |predicted_s - measured_s|, at most kWorstInstructions
    std::int64_t joined = 0;            // (stage, key) pairs in both records
    std::int64_t only_predicted = 0;
    std::int64_t only_measured = 0;
    std::vector<std::string> notes;  // of both records

    [[nodiscard]] const ComparisonRow& step_time() const { return rows.front(); }
};
inline constexpr std::size_t kWorstInstructions = 10;

/// Joins two records of one Program. With `weight` the instructions of both are divided alike among kinds of
/// computation, for Comparison::parts. Throws InputError when they name different plans or a record has no ranks, or
/// with `weight` when a record has some instructions but not all.
[[nodiscard]] Comparison compare(const program::Program& program, const program::RunRecord& predicted,
                                 const program::RunRecord& measured, const OperatorWeight& weight = {});

/// What many comparisons say together.
struct Agreement {
    std::int64_t judged = 0;
    std::optional<double> median_step_time_error;  // of |error|, as below; over the judged; none when nothing is judged
    std::optional<double> worst_step_time_error;
    /// Spearman's, of predicted and measured step times of the judged; equal times share their rank. None for fewer
    /// than two, or when all are equal.
    std::optional<double> rank_correlation;
    std::optional<double> median_memory_error;  // of the worst rank's peak
    std::optional<double> worst_memory_error;
    std::int64_t equal_bytes = 0;  // judged and not judged: plans of which every stream moved the bytes predicted
    std::int64_t plans = 0;
    std::optional<double> median_error_not_judged;  // of step time
};
[[nodiscard]] Agreement agreement_of(std::span<const Comparison> comparisons);

/// One comparison in full: quantities, phases, worst instructions, notes.
[[nodiscard]] std::string comparison_text(const Comparison& comparison);
/// Many side by side: a table with a block a plan, quantities over all ranks only, and how well they agree.
[[nodiscard]] std::string comparisons_text(std::span<const Comparison> comparisons);
/// `orrery.comparison/1`, ending in a newline.
[[nodiscard]] std::string comparisons_json(std::span<const Comparison> comparisons);

}  // namespace orrery::reports
