// Why a step takes as long as it does: the chain of instructions, each of which began when the one before it on the
// chain let it, from the step's start to its end.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "sim/program/program.h"
#include "sim/program/run_record.h"

namespace orrery::sim {

/// What an instruction waited for last.
enum class PathCause : std::uint8_t {
    earlier_step,  // something before the recorded step, its host included, or nothing at all
    stream,        // the instruction before it on its stream
    dependency,    // an instruction of its own rank: `after`, a wait, or the operation before on its communicator
    partner,       // the member of its group that arrived last
    host,          // the host, which had not issued it before
};
inline constexpr std::size_t kPathCauses = 5;
[[nodiscard]] std::string_view name_of(PathCause cause);

/// A stretch of the path, from_ps to to_ps. What lies between from_ps and start_ps is delay: the host's launches, or
/// what stands before the recorded step. From start_ps on the instruction itself runs; where it only arrived for others
/// of its group that were there already, the next element is the same operation at one of those, and to_ps = start_ps.
struct PathElement {
    std::int32_t record = 0;  // index in RunRecord::ranks
    program::Span span;
    program::Stream stream{};
    PathCause cause{};
    std::int64_t from_ps = 0, start_ps = 0, to_ps = 0;
};

struct CriticalPath {
    std::vector<PathElement> elements;  // in time; each begins where the one before it ends, the first at 0
    program::PerStream<std::int64_t> stream_ps{};  // time that instructions of each stream run
    std::array<std::int64_t, kPathCauses> delay_ps{};             // time before they start, by cause
    /// When the step's last instruction ends: the sum of all these.
    std::int64_t length_ps = 0;
};

/// Walks back from the instruction that ends last. A partner that the record holds only by a rank that stands for it is
/// recognised by its class and times. The record needs every instruction of its ranks, else throws InputError.
[[nodiscard]] CriticalPath critical_path(const program::Program& program, const program::RunRecord& record);

}  // namespace orrery::sim
