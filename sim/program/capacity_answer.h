// How many devices a job needs to be done by a date, and what it costs.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "sim/program/cost_figures.h"
#include "sim/program/scaling_curve.h"

namespace orrery::program {

/// What has to be done, and within which limits.
struct CapacityGoal {
    std::string model;
    double tokens = 0;
    std::int64_t sequence_length = 0, global_batch_size = 0;
    double days = 0;                        // in which all tokens have to be trained
    double probability = 0.9;               // with which that has to be met
    std::string start, by;                  // dates; empty: not given
    double max_usd = 0, max_megawatts = 0;  // 0: no limit
    std::int64_t max_devices = 0;
};

/// A job on one number of devices.
struct CapacitySize {
    std::int64_t devices = 0;        // with spare ones
    std::int64_t spare_devices = 0;  // whole nodes that replace failed ones; the plan uses the others or fewer
    std::string reason;              // why there is no plan; "": there is one, and what follows is set
    ScalingPoint point;
    double hours_between_interruptions = 0;  // mean
    double checkpoint_gb = 0, checkpoint_s = 0, checkpoint_interval_s = 0, recovery_s = 0;
    double goodput = 0;     // time of work that lasts / elapsed time, mean of the runs simulated
    double days_ideal = 0;  // without failures and checkpoints
    double days_p10 = 0, days_p50 = 0, days_p90 = 0;
    double days_needed = 0;                                // at the probability asked for
    std::optional<double> usd, megawatt_hours, megawatts;  // of all devices, for days_p50

    [[nodiscard]] bool is_found() const { return reason.empty(); }
};

/// What sets the size of the smallest cluster that meets the goal, or why none does.
enum class CapacityLimit : std::uint8_t {
    deadline,  // with fewer devices the job takes too long
    memory,    // on fewer devices no plan fits
    usd,       // every size that meets the deadline costs more
    megawatts,
    devices,  // the largest number allowed takes too long
    scaling,  // more devices hardly make the job faster
    none,     // no size has a plan
};
[[nodiscard]] std::string_view name_of(CapacityLimit limit);

struct CapacityAnswer {
    std::string cluster;
    std::int64_t devices_per_node = 1;
    bool meets = false;
    CapacityLimit limit{};
    CapacitySize best;                   // the smallest that meets the goal; otherwise the one that is nearest to it
    std::vector<CapacitySize> explored;  // in order of devices
    CostFigures figures;
};

struct Capacity {
    CapacityGoal goal;
    FaultFigures faults;
    std::vector<CapacityAnswer> answers;  // best first
};

/// `orrery.capacity/1`.
[[nodiscard]] std::string to_json_text(const Capacity& capacity);
[[nodiscard]] Capacity capacity_from_json_text(const std::string& text, const std::string& file);

}  // namespace orrery::program

namespace orrery {
template <>
inline constexpr int kValuesOf<program::CapacityLimit> = static_cast<int>(program::CapacityLimit::none) + 1;
}  // namespace orrery
