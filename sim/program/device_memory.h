// The device memory of a rank, by the kinds that measuring tools report.
#pragma once

#include <cstdint>

#include "sim/program/program.h"

namespace orrery::program {

/// Bytes at the peak. On a GPU, in_use() is what nvidia-smi shows, allocated() and reserved() what the allocator
/// reports.
struct DeviceMemory {
    std::int64_t tensors = 0;        // of layers, optimizer and framework; if the host computes: the whole arena
    std::int64_t workspaces = 0;     // of cuBLAS, also from the allocator; of the executor: of all kernels
    std::int64_t cached = 0;         // held by the allocator beyond these two
    std::int64_t context = 0;        // of the driver; if the host computes: of the process
    std::int64_t communicators = 0;  // NCCL's buffers
    std::int64_t runtime = 0;        // libraries and preloaded kernels of the implementation
    [[nodiscard]] std::int64_t allocated() const { return tensors + workspaces; }
    [[nodiscard]] std::int64_t reserved() const { return allocated() + cached; }
    [[nodiscard]] std::int64_t in_use() const { return reserved() + context + communicators + runtime; }
    bool operator==(const DeviceMemory&) const = default;
};

/// The shape of a group that communicates.
struct CommunicatorShape {
    std::int64_t ranks = 0, nodes = 0;
    bool is_pair = false;  // sender and receiver
};
/// The buffers that NCCL allocates on one rank for a communicator.
[[nodiscard]] std::int64_t communicator_bytes(const CommunicatorShape& shape, const topologies::DeviceProfile& device);
/// The communicator of all ranks, which fill one node after the other.
[[nodiscard]] CommunicatorShape shape_of_all(std::int64_t ranks, std::int64_t devices_per_node);
/// Of the executor on GPUs (exec/cuda/communicators.h): whether the communicator of the stages over which a vocabulary
/// is spread has buffers of its own. If they are all ranks, it is the communicator of all ranks.
[[nodiscard]] bool stages_have_own_buffers(const Parallelism& parallelism);
/// The kinds that do not depend on the plan: context, workspaces, runtime.
[[nodiscard]] DeviceMemory fixed_device_memory(const topologies::DeviceProfile& device,
                                               const models::Implementation& implementation);
/// From the footprint and the communicators of the class, the device profile and the implementation.
[[nodiscard]] DeviceMemory device_memory(const Program& program, const RankClass& rank_class);

/// Buffers of one connection of a channel, for NCCL's three protocols of 8 steps each (src/include/device.h): Simple
/// with 4 MiB (NCCL_BUFFSIZE), LL128 with 120 words for each of 640 threads, LL with 8 lines of 16 bytes for each of
/// 512 threads.
inline constexpr std::int64_t kNcclConnectionBytes =
    (std::int64_t{4} << 20) + std::int64_t{8} * 640 * 120 * 8 + std::int64_t{8} * 512 * 8 * 16;

}  // namespace orrery::program
