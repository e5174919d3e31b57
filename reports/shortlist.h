// Plans to be measured, and what their measurements say.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "sim/program/plan_result.h"

namespace orrery::reports {

/// One plan of a shortlist, with its files in the shortlist's folder.
struct ShortlistChoice {
    std::int64_t number = 0;  // 1: predicted to be the fastest
    std::string plan_name, implementation, strategy;
    double step_time_s = 0;                            // predicted
    double step_time_low_s = 0, step_time_high_s = 0;  // 90% interval; 0: not known
    double peak_memory_gib = 0;
    double distance = 0;      // from the first choice (sim::kind_distance)
    std::string plan_file;    // orrery.plan/1
    std::string launch_file;  // empty: the executor cannot run the plan, because of `why_not_run`
    std::string why_not_run;
    std::string record_file;  // where the launch script writes the run record
};

struct Shortlist {
    std::string model, cluster;
    std::int64_t devices = 0, global_batch = 0, sequence_length = 0;
    std::int64_t steps = 0;  // that each launch script measures
    std::vector<ShortlistChoice> choices;
};

/// The choices of the results, which are ordered by step time; `folder` names no file.
[[nodiscard]] std::string shortlist_text(const Shortlist& shortlist, const std::string& folder);
/// `orrery.shortlist/1`. Ends in a newline.
[[nodiscard]] std::string shortlist_json(const Shortlist& shortlist);
/// Throws InputError if the text of `file` is none.
[[nodiscard]] Shortlist shortlist_from_json_text(const std::string& text, const std::string& file);

/// A choice and its record.
struct MeasuredChoice {
    ShortlistChoice choice;
    std::optional<double> step_time_s;  // empty: no complete record
    std::string why_not;                // why there is none: "no record", "ended after 3 of 20 steps"
};

struct Picked {
    bool is_measured = false;             // the records were measured; otherwise simulated
    std::vector<MeasuredChoice> choices;  // in the shortlist's order; at least one has a step time
    [[nodiscard]] const MeasuredChoice& fastest() const;
    /// How much slower the first choice is than the fastest; empty: the first choice has no complete record.
    [[nodiscard]] std::optional<double> regret_avoided() const;
};

[[nodiscard]] std::string picked_text(const Picked& picked);
/// `orrery.pick/1`. Ends in a newline.
[[nodiscard]] std::string picked_json(const Picked& picked);

}  // namespace orrery::reports
