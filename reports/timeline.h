// One step as a picture: a self-contained SVG that opens in any browser.
#pragma once

#include <span>
#include <string>

#include "sim/program/program.h"
#include "sim/program/run_record.h"

namespace orrery::reports {

/// Draws one or several records of the same Program. For each rank class and record it shows the first rank with spans;
/// the records of a class are drawn below each other on a common axis of milliseconds, one lane per stream. Colours are
/// phases; the lighter part of a communication is the wait for its partners (ready to begin). Dashed lines mark the end
/// of the step and, if it is within the picture, the end of the previous step. Numbers on the compute lane are
/// micro-batches, preceded by their chunk where ranks hold several. The axis begins with a record's first computation
/// on any rank, so that the records of a plan are aligned; waits before it are cut off.
///
/// The picture is 1000 px wide and drawn in columns of half a pixel, or wider ones when the text would exceed about
/// 250 kB. A column shows the phase that took most of it, and is empty when less than a quarter of it is busy, unless
/// nothing is drawn near it.
///
/// Throws InputError when no record has spans.
[[nodiscard]] std::string timeline_svg(const program::Program& program,
                                       std::span<const program::RunRecord* const> records);
[[nodiscard]] std::string timeline_svg(const program::Program& program, const program::RunRecord& record);
[[nodiscard]] std::string timeline_svg(const program::Program& program, const program::RunRecord& predicted,
                                       const program::RunRecord& measured);

}  // namespace orrery::reports
