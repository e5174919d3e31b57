// One step as a picture: SVG that stands alone and opens in any browser.
#pragma once

#include <span>
#include <string>

#include "sim/program/program.h"
#include "sim/program/run_record.h"

namespace orrery::reports {

/// One record or several of the same Program. Of each rank class and record, the first rank with spans; its records
/// lie under each other on a common axis of milliseconds, one lane a stream. Colours are phases; the lighter part of a
/// communication is the wait for its partners (ready to begin). Dashed lines are the end of the step and, where it lies
/// within the picture, that of the step before: a step time apart. Numbers on the compute lane are micro-batches, after
/// their chunk where ranks hold several. The axis begins with a record's first computation on any rank, so that the
/// records of a plan begin together; waiting before it is cut off.
///
/// The picture is 1000 px wide and drawn in columns of half a pixel, coarser when the text would exceed about 250 kB;
/// a column shows what took most of it, and is left empty when less than a quarter of it is busy.
///
/// Throws InputError when no record has spans.
[[nodiscard]] std::string timeline_svg(const program::Program& program,
                                       std::span<const program::RunRecord* const> records);
[[nodiscard]] std::string timeline_svg(const program::Program& program, const program::RunRecord& record);
[[nodiscard]] std::string timeline_svg(const program::Program& program, const program::RunRecord& predicted,
                                       const program::RunRecord& measured);

}  // namespace orrery::reports
