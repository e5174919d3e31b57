// Comparison of a prediction and a measurement of the same plan.
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
    step_time_s,        // predicted: the steady period; measured: the median step
    busy_s,             // of a stream, mean over ranks, including waits for peers
    peak_memory_bytes,  // worst rank
    bytes_sent,         // per step, sum over ranks
};
[[nodiscard]] std::string name_of(Quantity quantity);

inline constexpr const char* kAllRanks = "all ranks";

struct ComparisonRow {
    Quantity quantity{};
    std::string scope;   // kAllRanks or the stage's name
    std::string stream;  // its name, "pp" (all pipeline streams together), or "" if the quantity is not of a stream
    double predicted = 0;
    double measured = 0;
    std::optional<double> error;  // predicted / measured - 1; 0 when both are 0; empty when only `measured` is 0
};

/// Instructions of one phase on one kind of stream that are in both records; seconds per step, mean over the ranks.
struct PhaseRow {
    std::string phase;
    std::string stream;
    std::int64_t instructions = 0;  // distinct (stage, key) pairs
    double predicted_s = 0;
    double measured_s = 0;
    std::optional<double> error;
};

/// A part of the step time (breakdown.h), seconds per step, mean over the ranks. The exposed parts sum to the step
/// time.
struct PartRow {
    std::string part;  // name_of(TimePart)
    double predicted_s = 0;
    double measured_s = 0;
    std::optional<double> error;
    double predicted_hidden_s = 0;  // communication and copies: overlapped with computation
    double measured_hidden_s = 0;
};

/// Bytes that all ranks together send per step on a stream by one kind of communication.
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
    double measured_s = 0;        // as predicted_s; each rank counts with its median over the steps
    double predicted_wait_s = 0;  // part of predicted_s from ready to begin: waiting for peers
    double measured_wait_s = 0;
};

struct Comparison {
    std::string plan_name;
    std::string strategy;
    bool judged = true;               // false: shown, but excluded from medians (for example, more ranks than cores)
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

/// Joins two records of one Program. `weight` divides the instructions of both records among kinds of computation, for
/// Comparison::parts. Throws InputError when the records name different plans, when a record has no ranks, and, with
/// `weight`, when a record has some instructions but not all.
[[nodiscard]] Comparison compare(const program::Program& program, const program::RunRecord& predicted,
                                 const program::RunRecord& measured, const OperatorWeight& weight = {});

/// Summary of many comparisons.
struct Agreement {
    std::int64_t judged = 0;
    // Medians and maxima are of |error|, over judged comparisons; empty when there are none.
    std::optional<double> median_step_time_error;
    std::optional<double> worst_step_time_error;
    /// Spearman's rank correlation of predicted and measured step times over judged comparisons; equal times share
    /// their rank. Empty for fewer than two comparisons, or when all times are equal.
    std::optional<double> rank_correlation;
    std::optional<double> median_memory_error;  // of the worst rank's peak
    std::optional<double> worst_memory_error;
    std::int64_t equal_bytes = 0;  // comparisons, judged or not, in which every stream moved the predicted bytes
    std::int64_t plans = 0;
    std::optional<double> median_error_not_judged;  // of step time, over the comparisons that are not judged
};
[[nodiscard]] Agreement agreement_of(std::span<const Comparison> comparisons);

/// One comparison in full: quantities, phases, worst instructions, notes.
[[nodiscard]] std::string comparison_text(const Comparison& comparison);
/// Many comparisons: a table with a block per plan and quantities over all ranks only, and the Agreement.
[[nodiscard]] std::string comparisons_text(std::span<const Comparison> comparisons);
/// `orrery.comparison/1`, ending in a newline.
[[nodiscard]] std::string comparisons_json(std::span<const Comparison> comparisons);

}  // namespace orrery::reports
