#include "sim/program/device_memory.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <set>

#include "core/units.h"
#include "sim/program/kernel_memory.h"

namespace orrery::program {
namespace {

/// Channels of a communicator with one member on each node, and of a pair (NCCL opens two for each network peer of a
/// send).
constexpr std::int64_t kOneMemberChannels = 4;
constexpr std::int64_t kPairChannels = 2;
/// Channels if the device profile has no measured number: NCCL's rings over NVLink.
constexpr std::int64_t kChannels = 16;
/// Connections of a channel on which a rank receives: one of the ring, two of the tree. Over the network both ends of a
/// connection have buffers.
constexpr std::int64_t kCollectiveConnections = 3;

CommunicatorShape shape_of(const std::vector<std::int64_t>& members, bool is_pair, std::int64_t devices_per_node) {
    std::set<std::int64_t> nodes;
    for (const std::int64_t member : members) nodes.insert(member / devices_per_node);
    return {std::ssize(members), std::ssize(nodes), is_pair};
}

template <typename Visit>
void for_each_communication(const Program& program, const RankClass& rank_class, Visit visit) {
    for (const auto& list : rank_class.segment_lists) {
        for (const Segment& segment : list) {
            for (const Instruction& instruction : program.bodies[segment.body].instructions) {
                if (instruction.is_communication) visit(instruction);
            }
        }
    }
}

/// The executor has a communicator of all ranks, whose parts share its buffers, one for each stream of pipeline
/// transfers, and one for the stages over which a vocabulary is spread.
std::int64_t bytes_of_executor(const Program& program, const RankClass& rank_class, std::int64_t rank) {
    const topologies::ClusterSpec& cluster = program.plan->cluster;
    bool communicates = false;
    for (const RankClass& one : program.classes) {
        for_each_communication(program, one, [&](const Instruction&) { communicates = true; });
    }
    if (!communicates) return 0;
    std::int64_t bytes =
        communicator_bytes(shape_of_all(program.world_size(), cluster.devices_per_node), cluster.device);
    std::set<Stream> streams;
    for_each_communication(program, rank_class, [&](const Instruction& instruction) {
        if (is_pipeline(instruction.stream)) streams.insert(instruction.stream);
    });
    if (stages_have_own_buffers(program.plan->parallelism)) {
        bytes += communicator_bytes(
            shape_of(program.group_of(GroupAxis::pipeline, rank), false, cluster.devices_per_node), cluster.device);
    }
    for (const Stream stream : streams) {
        const CommunicatorShape shape = shape_of({rank, program.peer_of(stream, rank)}, true, cluster.devices_per_node);
        bytes += communicator_bytes(shape, cluster.device);
    }
    return bytes;
}

/// The buffers of the class's communicators, one for each axis on which it communicates.
std::int64_t communicator_bytes(const Program& program, const RankClass& rank_class) {
    const topologies::ClusterSpec& cluster = program.plan->cluster;
    const std::int64_t rank = program.mesh->rank_at(
        {.pp = program.classes.size() > 1 && program.plan->parallelism.pp > 1 ? rank_class.pp_index : 0});
    if (program.plan->implementation.executable) return bytes_of_executor(program, rank_class, rank);
    std::set<GroupAxis> axes;
    for_each_communication(program, rank_class,
                           [&](const Instruction& instruction) { axes.insert(instruction.communication.axis); });
    std::int64_t bytes = 0;
    for (const GroupAxis axis : axes) {
        bytes += communicator_bytes(shape_of(program.group_of(axis, rank), is_pair(axis), cluster.devices_per_node),
                                    cluster.device);
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

bool stages_have_own_buffers(const Parallelism& parallelism) {
    return parallelism.spreads_vocabulary() && parallelism.pp < parallelism.world_size();
}

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

CommunicatorShape shape_of_all(std::int64_t ranks, std::int64_t devices_per_node) {
    return {.ranks = ranks, .nodes = (ranks + devices_per_node - 1) / devices_per_node};
}

DeviceMemory fixed_device_memory(const topologies::DeviceProfile& device,
                                 const models::Implementation& implementation) {
    DeviceMemory result{.context = std::llround(device.context_gib.value * kGibibyte)};
    if (device.host_runs_compute) return result;
    result.workspaces = gemm_workspace_bytes(device.compute_capability);
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
    if (program.plan->implementation.executable) {
        result.workspaces = kernel_memory(program, rank_class).bytes(device.compute_capability);
    }
    result.communicators = communicator_bytes(program, rank_class);
    return result;
}

}  // namespace orrery::program
