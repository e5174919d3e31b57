// The rules that validate() applies, one function each, and what they share. Rules after check_indices and
// check_counts may follow every index of the Program without looking.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "sim/program/issue_trace.h"
#include "sim/program/memory_map.h"
#include "sim/program/program.h"
#include "sim/program/schedule.h"

namespace orrery::program::rules {

/// Where a rule is broken; -1 where a part does not apply.
struct Site {
    ClassIndex rank_class = -1;
    ActionIndex action = -1;
    SegmentIndex segment = -1;
    InstructionIndex instruction = -1;
};
[[nodiscard]] std::string describe(const Program& program, Site site);
[[noreturn]] void fail(const Program& program, std::string_view rule, Site site, const std::string& what);

[[nodiscard]] std::vector<Trace> traces_of(const Program& program);
[[nodiscard]] inline Site site_of(const Trace& trace, const Call& call) {
    return {trace.rank_class, call.action, call.segment, call.instruction};
}

/// Ranks of class i do what pipeline rank i does; torch DataParallel has the classes of its master and of the others.
[[nodiscard]] bool is_replicated(const Program& program);
/// A rank of the class.
[[nodiscard]] std::int64_t representative(const Program& program, ClassIndex rank_class);
/// Classes that the group of a class's rank on the axis has members of, ascending.
[[nodiscard]] std::vector<std::int32_t> classes_of_group(const Program& program, GroupAxis axis, ClassIndex rank_class);
/// On which a pipeline stream's message arrives, or from which it comes.
[[nodiscard]] Stream opposite(Stream pipeline_stream);
[[nodiscard]] constexpr bool is_send(Stream s) {
    return s == Stream::pp_send_forward || s == Stream::pp_send_backward || s == Stream::pp_up_send_forward ||
           s == Stream::pp_up_send_backward;
}
/// The plan's pipeline, read from the plan alone.
[[nodiscard]] ScheduleShape shape_of(const Plan& plan);
/// First and one past the last micro-batch that passes the chunk: in dualpipe each copy of the model has one half.
struct MicroBatches {
    std::int32_t begin = 0, end = 0;
};
[[nodiscard]] MicroBatches micro_batches_of(const Plan& plan, const Chunk& chunk);

void check_indices(const Program& program);
void check_counts(const Program& program);
void check_transfers(const Program& program, const std::vector<Trace>& traces);
void check_collective_order(const Program& program, const std::vector<Trace>& traces);
void check_progress(const Program& program, const std::vector<Trace>& traces);
/// Rules "ordered accesses" and "fresh values" in one walk.
void check_accesses(const Program& program, const std::vector<Trace>& traces);
void check_buffers(const Program& program);
void check_footprint(const Program& program);
void check_parameters(const Program& program);
void check_bytes(const Program& program);

}  // namespace orrery::program::rules
