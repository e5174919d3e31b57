// The rules that validate() applies, one function each, and what they share. Rules after check_indices and
// check_counts may follow every index of the Program without looking.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "sim/program/memory_map.h"
#include "sim/program/program.h"
#include "sim/program/schedule.h"

namespace orrery::program::rules {

/// Where a rule is broken; -1 where a part does not apply.
struct Site {
    std::int32_t rank_class = -1;
    std::int32_t action = -1;
    std::int32_t segment = -1;
    std::int32_t instruction = -1;
};
[[nodiscard]] std::string describe(const Program& program, Site site);
[[noreturn]] void fail(const Program& program, std::string_view rule, Site site, const std::string& what);

/// `count` instructions of `stream` have completed, counted from the start of this step or the previous one.
struct Event {
    Stream stream{};
    std::uint8_t steps_back = 0;
    std::int32_t count = 0;
};

/// One instruction of one step of a class, in the order in which its host issues it.
struct Call {
    std::int32_t action = 0;
    std::int32_t segment = 0;
    std::int32_t instruction = 0;
    Stream stream{};
    std::int32_t position = 0;  // 1 for the first on its stream in this step
    std::int32_t first_event = 0;
    std::int32_t event_count = 0;
};
struct Trace {
    std::int32_t rank_class = 0;
    std::vector<Call> calls;
    std::vector<Event> events;                                     // calls[i].first_event …
    std::array<std::vector<std::int32_t>, kStreamCount> calls_on;  // indices of calls, by stream
    [[nodiscard]] std::int32_t count_on(Stream stream) const {
        return static_cast<std::int32_t>(calls_on[static_cast<std::size_t>(stream)].size());
    }
    [[nodiscard]] Site site(const Call& call) const {
        return {rank_class, call.action, call.segment, call.instruction};
    }
};
[[nodiscard]] std::vector<Trace> traces_of(const Program& program);
[[nodiscard]] const Instruction& instruction_of(const Program& program, const Trace& trace, const Call& call);

/// Ranks of class i do what pipeline rank i does; torch DataParallel has the classes of its master and of the others.
[[nodiscard]] bool is_replicated(const Program& program);
/// A rank of the class.
[[nodiscard]] std::int64_t representative(const Program& program, std::int32_t rank_class);
/// Classes that the group of a class's rank on the axis has members of, ascending.
[[nodiscard]] std::vector<std::int32_t> classes_of_group(const Program& program, GroupAxis axis,
                                                         std::int32_t rank_class);
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
/// Counts, bytes and parameters of plans whose vocabulary is cut over the stages.
void check_vocabulary(const Program& program);

}  // namespace orrery::program::rules
