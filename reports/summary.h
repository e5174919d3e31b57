// One run, predicted or measured, as text for people.
#pragma once

#include <optional>
#include <string>

#include "models/model_spec.h"
#include "sim/program/program.h"
#include "sim/program/run_record.h"

namespace orrery::reports {

/// Rates that follow from a step time. Devices are ranks: a plan has one rank a device (on `local`, a share of a core).
struct Throughput {
    double tokens_per_s = 0;
    double tokens_per_s_per_device = 0;
    double model_flops_per_s_per_device = 0;  // achieved; no recomputation counted
    std::optional<double> peak_flops_per_s;   // dense, of the plan's activation type; none: the profile has no figure
    std::optional<double> mfu;                // none without a peak
    models::FlopsConvention convention{};
    std::string statement;  // "MFU 41.7% (convention palm; peak 312 TFLOP/s bf16 dense, datasheet)"
};

/// step_time_s > 0, in seconds (ORRERY_CHECK).
[[nodiscard]] Throughput throughput_of(const program::Plan& plan, double step_time_s,
                                       models::FlopsConvention convention = models::FlopsConvention::palm);

/// Step time, throughput, MFU, bubble; then for each rank class busy and exposed time by stream, bytes by stream, and
/// the parts of peak memory; then the record's notes. Ends in a newline.
[[nodiscard]] std::string summary_text(const program::Program& program, const program::RunRecord& record,
                                       models::FlopsConvention convention = models::FlopsConvention::palm);

/// "predicted" or "measured".
[[nodiscard]] std::string name_of(program::Maker maker);

/// "dp 8 x tp 4 x pp 2, sequence parallel, 1F1B": the strategy in a line.
[[nodiscard]] std::string strategy_of(const program::Plan& plan);

}  // namespace orrery::reports
