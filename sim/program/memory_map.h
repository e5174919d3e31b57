// Where the slots of a body lie, for one call of it: the map by which waits are found, the validator checks accesses
// and the executor lays out its arena.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "sim/program/program.h"

namespace orrery::program {

/// Memory that slots are resolved to. Parameters, gradients and their shards count in elements, the others in bytes.
/// A shard that is a part of the whole buffer counts as memory of its own: waits must order it all the same.
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
    activation,      // one instance per frame
    host_frame,      // likewise: its part in host memory
    input_boundary,  // one instance per boundary buffer, as the next three
    forward_boundary,
    backward_boundary,
    gradient_out,  // a backward boundary, bound as the one through which the gradient leaves
};
inline constexpr int kRegionCount = static_cast<int>(Region::gradient_out) + 1;
template <typename T>
using PerRegion = EnumArray<Region, T, kRegionCount>;
inline constexpr auto kRegions = enum_values<Region, kRegionCount>();
[[nodiscard]] std::string_view name_of(Region region);
/// Whether there are several instances, of which an action binds one.
[[nodiscard]] constexpr bool is_bound(Region region) {
    return region >= Region::activation;
}

struct MemoryRange {
    Region region{};
    std::int64_t begin = 0;
    std::int64_t end = 0;
};
/// A part of a slot's space, from the base that a segment binds; in the region's units.
struct SpacePart {
    Space space{};
    ParameterRange range = ParameterRange::dense;
    std::int64_t begin = 0, end = 0;
};
[[nodiscard]] SpacePart part_of(const Slot& slot);
/// Where it lies in a call of a body of that phase.
[[nodiscard]] MemoryRange resolve(const RankClass& ranks, Phase phase, const Segment& segment, const SpacePart& part);
[[nodiscard]] inline MemoryRange resolve(const RankClass& ranks, Phase phase, const Segment& segment,
                                         const Slot& slot) {
    return resolve(ranks, phase, segment, part_of(slot));
}

/// The instance that an action binds; regions that exist once have index 0.
struct Instance {
    Region region{};         // never gradient_out; where a chunk's output stays on its rank, the input boundary
    ChunkIndex chunk = 0;    // frames: whose pool
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
/// How many there are of a region; frames: of one chunk.
[[nodiscard]] std::int32_t instance_count(const RankClass& ranks, const Chunk& chunk, Region region);
/// Units of one instance of the region: elements or bytes. Scalars are not laid out by the class: no limit.
[[nodiscard]] std::int64_t extent_of(const RankClass& ranks, const Chunk& chunk, Region region);

struct SlotAccess {
    models::SlotIndex slot = models::kNoSlot;
    bool write = false;
};
/// Calls visit(slot, write) for what an instruction reads and writes, in the order in which it does. An operator's
/// accumulation counts as a write.
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
[[nodiscard]] std::vector<SlotAccess> accesses_of(const Body& body, const Instruction& instruction);

}  // namespace orrery::program
