#include "sim/program/memory_map.h"

#include <algorithm>
#include <array>
#include <limits>

#include "core/enum_names.h"
#include "core/error.h"

namespace orrery::program {

std::string_view name_of(Region region) {
    static constexpr auto kNames = name_table<Region::gradient_out>(
        {"parameters", "gradients", "parameter shards", "gradient shards", "staging buffers", "weight copies",
         "offload window", "optimizer states", "host memory", "transients", "scalars", "activation frame", "host frame",
         "input boundary", "forward boundary", "backward boundary", "backward boundary of the gradient that leaves"});
    return kNames[region];
}

SpacePart part_of(const Slot& slot) {
    // Elements of the slot's own type, since an fp32 shard and an fp8 shard have the same element offsets.
    constexpr std::array kCountedInElements{Space::parameter,      Space::gradient,       Space::parameter_shard,
                                            Space::gradient_shard, Space::tied_parameter, Space::tied_gradient};
    const bool in_elements = std::ranges::find(kCountedInElements, slot.space) != kCountedInElements.end();
    const std::int64_t size = in_elements ? slot.bytes / size_of(slot.decl.dtype) : slot.bytes;
    return {slot.space, slot.range, slot.offset, slot.offset + size};
}

MemoryRange resolve(const RankClass& ranks, Phase phase, const Segment& segment, const SpacePart& part) {
    const auto at = [&](Region region, std::int64_t base) {
        return MemoryRange{region, base + part.begin, base + part.end};
    };
    const auto handed = [&](std::int64_t offset, Region boundary) {
        return offset < 0 ? at(boundary, 0) : at(Region::activation, offset);
    };
    switch (part.space) {
        case Space::parameter:
            return at(Region::parameter, segment.parameter_base[part.range]);
        case Space::gradient:
            return at(Region::gradient, segment.gradient_base[part.range]);
        case Space::parameter_shard:
            return at(Region::parameter_shard, segment.shard_base[part.range]);
        case Space::gradient_shard:
            return at(Region::gradient_shard, segment.shard_base[part.range]);
        case Space::reduction:
            return at(Region::reduction, segment.reduction_base);
        case Space::weight_copy:
            return at(Region::weight_copy, segment.weight_copy_base);
        case Space::tied_parameter:
            return at(Region::parameter, ranks.tied_parameter_base);
        case Space::tied_gradient:
            return at(Region::gradient, ranks.tied_gradient_base);
        case Space::hidden_in:
            return handed(segment.hidden_in_offset, Region::input_boundary);
        case Space::activation:
            return at(segment.in_offload_window ? Region::offload_window : Region::activation, segment.activation_base);
        case Space::hidden_out:
            return handed(segment.hidden_out_offset, Region::forward_boundary);
        case Space::hidden_gradient:
            return handed(segment.gradient_in_offset, Region::backward_boundary);
        case Space::hidden_gradient_out:
            return handed(segment.gradient_out_offset, Region::gradient_out);
        case Space::transient:
            return at(Region::transient, segment.transient_base);
        case Space::scalars:
            return at(Region::scalars, 0);
        case Space::optimizer:
            return at(Region::optimizer, 0);
        case Space::host:
            return at(phase == Phase::offload ? Region::host_frame : Region::host, segment.host_base);
    }
    throw BugError("a slot lies in no space");
}

Region region_of(Phase phase, const Segment& segment, Space space) {
    static const RankClass any;  // decides where a range begins, not its region
    return resolve(any, phase, segment, SpacePart{.space = space}).region;
}

std::int32_t instance_count(const RankClass& ranks, const Chunk& chunk, Region region) {
    switch (region) {
        case Region::activation:
        case Region::host_frame:
            return chunk.frame_count;
        case Region::input_boundary:
            return ranks.input_boundary_count;
        case Region::forward_boundary:
            return ranks.forward_boundary_count;
        case Region::backward_boundary:
        case Region::gradient_out:
            return ranks.backward_boundary_count;
        default:
            return 1;
    }
}

std::int64_t extent_of(const RankClass& ranks, const Chunk& chunk, Region region) {
    switch (region) {
        case Region::parameter:
            return ranks.parameter_buffer_elements;
        case Region::gradient:
            return ranks.gradient_buffer_elements;
        case Region::parameter_shard:
        case Region::gradient_shard:
            return ranks.shard_elements;
        case Region::reduction:
            return ranks.reduction_bytes;
        case Region::weight_copy:
            return ranks.weight_copy_bytes;
        case Region::offload_window:
            return ranks.offload_window_bytes;
        case Region::optimizer:
            return ranks.memory.optimizer_states;
        case Region::host: {  // without the host frames
            std::int64_t bytes = ranks.host_bytes;
            for (const Chunk& each : ranks.chunks) bytes -= each.host_frame_bytes * each.frame_count;
            return bytes;
        }
        case Region::activation:
            return chunk.frame_bytes;
        case Region::host_frame:
            return chunk.host_frame_bytes;
        case Region::input_boundary:
        case Region::forward_boundary:
        case Region::backward_boundary:
        case Region::gradient_out:
            return ranks.boundary_bytes;
        case Region::transient:
            return ranks.transient_bytes;
        case Region::scalars:
            break;
    }
    return std::numeric_limits<std::int64_t>::max();
}

}  // namespace orrery::program
