// The rules that validate() applies, each one function, and helpers that several rules use. check_indices and
// check_counts run first; the later rules rely on them and follow the Program's indices unchecked.
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

/// Where a rule is broken; -1: the part does not apply.
struct Site {
    ClassIndex rank_class = -1;
    ActionIndex action = -1;
    SegmentIndex segment = -1;
    InstructionIndex instruction = -1;
};
[[nodiscard]] std::string describe(const Program& program, Site site);
/// Throws the BugError for a broken rule.
[[noreturn]] void fail(const Program& program, std::string_view rule, Site site, const std::string& what);

[[nodiscard]] IndexedVector<ClassIndex, Trace> traces_of(const Program& program);
[[nodiscard]] inline Site site_of(const Trace& trace, const Call& call) {
    return {trace.rank_class, call.action, call.segment, call.instruction};
}

/// Whether the plan uses torch DataParallel: its classes are the master and the other replicas, not pipeline ranks.
[[nodiscard]] bool is_replicated(const Program& program);
/// One rank of the class.
[[nodiscard]] std::int64_t representative(const Program& program, ClassIndex rank_class);
/// The classes, ascending, of the members of the group that a rank of the class has on the axis.
[[nodiscard]] std::vector<ClassIndex> classes_of_group(const Program& program, GroupAxis axis, ClassIndex rank_class);
/// The stream at the other end of a pipeline stream's transfers: the receiving one of a send and vice versa.
[[nodiscard]] Stream opposite(Stream pipeline_stream);
[[nodiscard]] constexpr bool is_send(Stream s) {
    return s == Stream::pp_send_forward || s == Stream::pp_send_backward || s == Stream::pp_up_send_forward ||
           s == Stream::pp_up_send_backward;
}
[[nodiscard]] ScheduleShape shape_of(const Plan& plan);
/// The micro-batches [begin, end) that pass a chunk: in dualpipe each copy of the model has one half of them.
struct MicroBatches {
    std::int32_t begin = 0, end = 0;
};
[[nodiscard]] MicroBatches micro_batches_of(const Plan& plan, const Chunk& chunk);

void check_indices(const Program& program);
void check_counts(const Program& program);
void check_transfers(const Program& program, const IndexedVector<ClassIndex, Trace>& traces);
void check_collective_order(const Program& program, const IndexedVector<ClassIndex, Trace>& traces);
void check_progress(const Program& program, const IndexedVector<ClassIndex, Trace>& traces);
/// The rules "ordered accesses" and "fresh values", in one walk.
void check_accesses(const Program& program, const IndexedVector<ClassIndex, Trace>& traces);
void check_buffers(const Program& program);
void check_footprint(const Program& program);
void check_parameters(const Program& program);
void check_bytes(const Program& program);

}  // namespace orrery::program::rules
