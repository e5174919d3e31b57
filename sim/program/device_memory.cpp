#include "sim/program/device_memory.h"

#include <cmath>
#include <set>

#include "core/units.h"

namespace orrery::program {
namespace {

/// cuBLAS's workspace, as PyTorch sizes it (aten/src/ATen/cuda/CublasHandlePool.cpp).
constexpr std::int64_t kWorkspaceBytes = 4096 * 1024 * 2 + 16 * 1024 * 8;
constexpr std::int64_t kHopperWorkspaceBytes = 4096 * 1024 * 8;
constexpr std::int64_t kHopper = 90;

/// Channels of a communicator whose members lie on different nodes one each, and of a pair (NCCL opens two for each
/// network peer of a send).
constexpr std::int64_t kOneMemberChannels = 4;
constexpr std::int64_t kPairChannels = 2;
/// Where no figure was measured: NCCL's ring over NVLink.
constexpr std::int64_t kChannels = 16;
/// Receiving ends of a channel: one of the ring, two of the tree. Over the network both ends have buffers.
constexpr std::int64_t kCollectiveConnections = 3;

std::int64_t communicator_bytes_on(const Program& program, GroupAxis axis, std::int64_t rank) {
    const std::vector<std::int64_t> members = program.group_of(axis, rank);
    std::set<std::int64_t> nodes;
    for (const std::int64_t member : members) nodes.insert(member / program.plan->cluster.devices_per_node);
    return communicator_bytes({.ranks = static_cast<std::int64_t>(members.size()),
                               .nodes = static_cast<std::int64_t>(nodes.size()),
                               .is_pair = is_pair(axis)},
                              program.plan->cluster.device);
}

/// A communicator for each family of groups in which the class communicates.
std::int64_t communicator_bytes(const Program& program, const RankClass& rank_class) {
    std::set<GroupAxis> axes;
    for (const auto& list : rank_class.segment_lists) {
        for (const Segment& segment : list) {
            for (const Instruction& instruction : program.bodies[static_cast<std::size_t>(segment.body)].instructions) {
                if (instruction.is_communication) axes.insert(instruction.communication.axis);
            }
        }
    }
    const std::int64_t rank = program.mesh->rank_at(
        {.pp = program.classes.size() > 1 && program.plan->parallelism.pp > 1 ? rank_class.pp_index : 0});
    std::int64_t bytes = 0;
    for (const GroupAxis axis : axes) bytes += communicator_bytes_on(program, axis, rank);
    return bytes;
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
    result.cached = choices.lays_out_ahead
                        ? memory.allocated(false) - result.tensors
                        : std::llround(static_cast<double>(result.allocated()) * choices.cached_share.value);
    result.communicators = communicator_bytes(program, rank_class);
    return result;
}

}  // namespace orrery::program
