// The critical path of a step: a chain of instructions from the step's start to its end, each of which waited last for
// the one before it.
#pragma once

#include <cstdint>
#include <vector>

#include "sim/program/program.h"
#include "sim/program/run_record.h"

namespace orrery::sim {

/// What an instruction waited for last.
enum class PathCause : std::uint8_t {
    earlier_step,  // work of the device or the host before the recorded step, or nothing at all
    stream,        // the previous instruction on its stream
    dependency,    // an instruction of its own rank: `after`, a wait, or the previous operation on its communicator
    partner,       // the member of its group that arrived last
    host,          // the host, which issued it only then
};
inline constexpr std::size_t kPathCauseCount = static_cast<std::size_t>(PathCause::host) + 1;
template <typename T>
using PerPathCause = EnumArray<PathCause, T, kPathCauseCount>;
[[nodiscard]] std::string_view name_of(PathCause cause);

/// A section of the path, from from_ps to to_ps. The time from from_ps to start_ps is delay: launches by the host, or
/// work before the recorded step. From start_ps on the instruction itself runs. If it is the operation of the member
/// that arrived last, the next element is the same operation of a member that was waiting, and to_ps = start_ps.
struct PathElement {
    std::int32_t record = 0;  // index in RunRecord::ranks
    program::Span span;
    program::Stream stream{};
    PathCause cause{};
    std::int64_t from_ps = 0, start_ps = 0, to_ps = 0;
};

struct CriticalPath {
    std::vector<PathElement> elements;  // in order of time; each begins where the previous one ends, the first at 0
    program::PerStream<std::int64_t> stream_ps{};  // time in which the path's instructions run
    PerPathCause<std::int64_t> delay_ps{};         // delay before they start
    /// The end of the step's last instruction, which is the sum of stream_ps and delay_ps.
    std::int64_t length_ps = 0;
};

/// Follows the path backward from the instruction that ends last. If a partner's rank is not in the record, a rank of
/// its class whose operation has the same times represents it. Throws InputError unless the record has every
/// instruction of its ranks.
[[nodiscard]] CriticalPath critical_path(const program::Program& program, const program::RunRecord& record);

}  // namespace orrery::sim
