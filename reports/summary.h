// Text summary of one run, predicted or measured.
#pragma once

#include <cstdint>
#include <string>

#include "models/model_spec.h"
#include "sim/program/program.h"
#include "sim/program/run_record.h"
#include "sim/program/utilization.h"

namespace orrery::reports {

/// The definitions of MFU and HFU: "MFU: model FLOPs a token 6 N + 12 L h s (palm) over 989 TFLOP/s (dense bf16,
/// datasheet); HFU: with recomputed products"; or that the device has no peak for the type.
[[nodiscard]] std::string utilization_words(const program::Plan& plan, const program::Utilization& utilization);

/// What to show of many stages: the worst, the mean and the best, or each stage.
enum class Stages : std::uint8_t { extremes, each };

/// Step time, throughput, MFU, bubble; then busy and exposed time by stream, bytes by stream, and the parts of peak
/// memory, by stage; then the record's notes. Ends in a newline.
[[nodiscard]] std::string summary_text(const program::Program& program, const program::RunRecord& record,
                                       Stages stages = Stages::extremes);

/// "dgx-h100, 64 nodes of 8 (512 h100-sxm-80gb)"; with one node the nodes are left out.
[[nodiscard]] std::string size_text(const topologies::ClusterSpec& cluster);
/// "predicted" or "measured".
[[nodiscard]] std::string name_of(program::Maker maker);

/// The strategy in one line: "dp 8 x tp 4 x pp 2, sequence parallel, 1F1B".
[[nodiscard]] std::string strategy_of(const program::Plan& plan);

}  // namespace orrery::reports
