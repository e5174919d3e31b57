// Resolves the slots of a body to memory for one call of the body. The lowering uses this map to find waits, the
// validator to check accesses, and the executor to lay out its arena.
#pragma once

#include <cstdint>
#include <string_view>

#include "sim/program/program.h"

namespace orrery::program {

/// The memory to which slots are resolved. Parameters, gradients and their shards are measured in elements, the others
/// in bytes. A shard that aliases a part of the whole buffer is still a region by itself, and waits must order it.
enum class Region : std::uint8_t {
    parameter,
    gradient,
    parameter_shard,
    gradient_shard,
    reduction,
    weight_copy,
    offload_window,
    optimizer,
    host,
    transient,
    scalars,
    activation,         // one instance per frame
    host_frame,         // one instance per frame: the frame's part in host memory
    input_boundary,     // one instance per boundary buffer
    forward_boundary,   // one instance per boundary buffer
    backward_boundary,  // one instance per boundary buffer
    gradient_out,       // an instance of backward_boundary: the one bound as Action::gradient_out
};
inline constexpr int kRegionCount = static_cast<int>(Region::gradient_out) + 1;
template <typename T>
using PerRegion = EnumArray<Region, T, kRegionCount>;
inline constexpr auto kRegions = enum_values<Region, kRegionCount>();
[[nodiscard]] std::string_view name_of(Region region);
/// Whether the region has several instances, of which an action binds one.
[[nodiscard]] constexpr bool is_bound(Region region) {
    return region >= Region::activation;
}

struct MemoryRange {
    Region region{};
    std::int64_t begin = 0;
    std::int64_t end = 0;
};
/// A part of a space, relative to the base that a segment binds, in the region's units.
struct SpacePart {
    Space space{};
    ParameterRange range = ParameterRange::dense;
    std::int64_t begin = 0, end = 0;
};
[[nodiscard]] SpacePart part_of(const Slot& slot);
/// The memory of the part during a call of a body of that phase.
[[nodiscard]] MemoryRange resolve(const RankClass& ranks, Phase phase, const Segment& segment, const SpacePart& part);
[[nodiscard]] inline MemoryRange resolve(const RankClass& ranks, Phase phase, const Segment& segment,
                                         const Slot& slot) {
    return resolve(ranks, phase, segment, part_of(slot));
}

/// The region of the space during a call of a body of that phase.
[[nodiscard]] Region region_of(Phase phase, const Segment& segment, Space space);

/// The instance of a region that an action binds; regions with one instance have index 0.
struct Instance {
    // Never gradient_out. If a chunk's output stays on its rank, its forward boundary is an input boundary.
    Region region{};
    ChunkIndex chunk = 0;    // frames: the chunk that owns the pool
    std::int32_t index = 0;  // -1: the action binds none
    auto operator<=>(const Instance&) const = default;
};
[[nodiscard]] inline Instance bound_by(const Action& action, Region region) {
    switch (region) {
        case Region::activation:
        case Region::host_frame:
            return {region, action.chunk, action.activation_frame};
        case Region::input_boundary:
            return {region, 0, action.input_boundary};
        case Region::forward_boundary:
            return {action.output_stays ? Region::input_boundary : region, 0, action.forward_boundary};
        case Region::backward_boundary:
            return {region, 0, action.backward_boundary};
        case Region::gradient_out:
            return {Region::backward_boundary, 0, action.gradient_out};
        default:
            return {region};
    }
}
/// The number of instances of a region; for frames, of one chunk.
[[nodiscard]] std::int32_t instance_count(const RankClass& ranks, const Chunk& chunk, Region region);
/// The size of one instance of the region, in elements or bytes. The class does not limit scalars.
[[nodiscard]] std::int64_t extent_of(const RankClass& ranks, const Chunk& chunk, Region region);

/// Calls visit(slot, write) for the slots that an instruction reads and writes, in that order for each operator. An
/// operator's accumulation counts as a write.
template <typename Visit>
void visit_accesses(const Body& body, const Instruction& instruction, const Visit& visit) {
    const auto each = [&](models::SlotIndex slot, bool write) {
        if (slot != models::kNoSlot) visit(slot, write);
    };
    if (instruction.is_communication) {
        const Communication& communication = instruction.communication;
        for (const models::SlotIndex slot : communication.slots_read()) each(slot, false);
        if (communication.accumulates) each(communication.out, false);
        each(communication.out, true);
        if (communication.consumes) each(communication.in, true);
        return;
    }
    for (std::int32_t i = 0; i < instruction.operator_count; ++i) {
        const models::Operator& op = body.operators[instruction.first_operator + i];
        for (const models::SlotIndex slot : op.in) each(slot, false);
        each(op.scratch, true);
        for (const models::SlotIndex slot : op.out) each(slot, true);
    }
}

}  // namespace orrery::program
