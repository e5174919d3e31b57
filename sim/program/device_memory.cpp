#include "sim/program/device_memory.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <set>

#include "core/units.h"

namespace orrery::program {
namespace {

/// The workspace that PyTorch gives to cuBLAS (aten/src/ATen/cuda/CublasHandlePool.cpp).
constexpr std::int64_t kWorkspaceBytes = 4096 * 1024 * 2 + 16 * 1024 * 8;
constexpr std::int64_t kHopperWorkspaceBytes = 4096 * 1024 * 8;
constexpr std::int64_t kHopper = 90;

/// Channels of a communicator with one member on each node, and of a pair (NCCL opens two for each network peer of a
/// send).
constexpr std::int64_t kOneMemberChannels = 4;
constexpr std::int64_t kPairChannels = 2;
/// Channels if the device profile has no measured number: NCCL's rings over NVLink.
constexpr std::int64_t kChannels = 16;
/// Connections of a channel on which a rank receives: one of the ring, two of the tree. Over the network both ends of a
/// connection have buffers.
constexpr std::int64_t kCollectiveConnections = 3;

/// The buffers of the class's communicators, one for each axis on which it communicates.
std::int64_t communicator_bytes(const Program& program, const RankClass& rank_class) {
    std::set<GroupAxis> axes;
    for (const auto& list : rank_class.segment_lists) {
        for (const Segment& segment : list) {
            for (const Instruction& instruction : program.bodies[segment.body].instructions) {
                if (instruction.is_communication) axes.insert(instruction.communication.axis);
            }
        }
    }
    const std::int64_t rank = program.mesh->rank_at(
        {.pp = program.classes.size() > 1 && program.plan->parallelism.pp > 1 ? rank_class.pp_index : 0});
    const topologies::ClusterSpec& cluster = program.plan->cluster;
    std::int64_t bytes = 0;
    for (const GroupAxis axis : axes) {
        const std::vector<std::int64_t> members = program.group_of(axis, rank);
        std::set<std::int64_t> nodes;
        for (const std::int64_t member : members) nodes.insert(member / cluster.devices_per_node);
        const CommunicatorShape shape{std::ssize(members), std::ssize(nodes), is_pair(axis)};
        bytes += communicator_bytes(shape, cluster.device);
    }
    return bytes;
}

/// XLA and DeepSpeed gather each weight before its GEMM and reduce each gradient after it, while the Program's windows
/// have slots for whole units. They hold at most two gathered weights (one of them prefetched), one gradient (two
/// without a staging buffer), one staged gradient, and fp8 copies of one weight in two layouts. Returns the bytes by
/// which the Program's windows exceed this, if every weight is as large as the largest one.
std::int64_t bytes_beyond_single_weights(const Program& program, const RankClass& ranks) {
    const Precision& precision = program.plan->training.precision;
    const MemoryFootprint& memory = ranks.memory;
    if (memory.gathered == 0) return 0;
    std::int64_t largest = 0;
    for (const Parameter& parameter : ranks.parameters) largest = std::max(largest, parameter.elements);
    const auto beyond = [&](std::int64_t window_bytes, std::int64_t tensors, std::int64_t element_bytes) {
        return std::max<std::int64_t>(0, window_bytes - checked_product(tensors * largest, element_bytes));
    };
    const std::int64_t shards =
        ranks.gradient_shards_alias ? 0 : checked_product(ranks.shard_elements, size_of(precision.gradient));
    const std::int64_t gradients = memory.gradients - shards;
    const std::int64_t of_gradient = gradients / std::max<std::int64_t>(1, ranks.gradient_buffer_elements);
    return beyond(memory.gathered, 2, size_of(precision.parameter)) +
           beyond(gradients, memory.reductions > 0 ? 1 : 2, of_gradient) +
           beyond(memory.reductions, 1, size_of(precision.reduction)) +
           beyond(ranks.weight_copy_bytes, 1, 2 * size_of(DType::fp8));
}

}  // namespace

std::int64_t communicator_bytes(const CommunicatorShape& shape, const topologies::DeviceProfile& device) {
    if (shape.ranks < 2 || device.host_runs_compute) return 0;
    const bool crosses = shape.nodes > 1;
    if (shape.is_pair) return (crosses ? 2 : 1) * kPairChannels * kNcclConnectionBytes;
    if (crosses && shape.nodes == shape.ranks) {
        return 2 * kCollectiveConnections * kOneMemberChannels * kNcclConnectionBytes;
    }
    const std::int64_t channels = device.nccl ? device.nccl->channels : 0;
    return kCollectiveConnections * (channels > 0 ? channels : kChannels) * kNcclConnectionBytes;
}

DeviceMemory fixed_device_memory(const topologies::DeviceProfile& device,
                                 const models::Implementation& implementation) {
    DeviceMemory result{.context = std::llround(device.context_gib.value * kGibibyte)};
    if (device.host_runs_compute) return result;
    result.workspaces = device.compute_capability >= kHopper ? kHopperWorkspaceBytes : kWorkspaceBytes;
    result.runtime = std::llround(implementation.memory.runtime_gib.value * kGibibyte);
    return result;
}

DeviceMemory device_memory(const Program& program, const RankClass& rank_class) {
    const topologies::DeviceProfile& device = program.plan->cluster.device;
    const models::MemoryChoices& choices = program.plan->implementation.memory;
    const MemoryFootprint& memory = rank_class.memory;
    DeviceMemory result = fixed_device_memory(device, program.plan->implementation);
    if (device.host_runs_compute) {
        result.tensors = memory.allocated(true);
        return result;
    }
    result.tensors = memory.most_alive(false);
    // If gradients are reduced only after the last backward, staging buffers exist only when no activation is alive.
    if (!choices.lays_out_ahead && !program.plan->implementation.data_parallel.overlaps_backward) {
        result.tensors = std::max(memory.fixed(), result.tensors - memory.reductions);
    }
    if (choices.windows_hold_tensors) result.tensors -= bytes_beyond_single_weights(program, rank_class);
    result.cached = choices.lays_out_ahead
                        ? memory.allocated(false) - result.tensors
                        : std::llround(static_cast<double>(result.allocated()) * choices.cached_share.value);
    result.communicators = communicator_bytes(program, rank_class);
    return result;
}

}  // namespace orrery::program
