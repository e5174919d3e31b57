// What a rank holds of its device, in the kinds in which memory is measured.
#pragma once

#include <cstdint>

#include "sim/program/program.h"

namespace orrery::program {

/// Bytes at the peak. On a GPU all together are what nvidia-smi shows; each kind is what its tool reports.
struct DeviceMemory {
    std::int64_t tensors = 0;        // of layers, optimizer and framework; where the host computes: the whole arena
    std::int64_t workspaces = 0;     // of cuBLAS, taken from the allocator as well
    std::int64_t cached = 0;         // that the allocator holds beyond both
    std::int64_t context = 0;        // of the driver; where the host computes: of the process
    std::int64_t communicators = 0;  // NCCL's buffers
    std::int64_t runtime = 0;        // of the implementation: libraries, kernels loaded ahead
    [[nodiscard]] std::int64_t allocated() const { return tensors + workspaces; }
    [[nodiscard]] std::int64_t reserved() const { return allocated() + cached; }
    [[nodiscard]] std::int64_t in_use() const { return reserved() + context + communicators + runtime; }
    bool operator==(const DeviceMemory&) const = default;
};

/// A group that communicates.
struct CommunicatorShape {
    std::int64_t ranks = 0, nodes = 0;
    bool is_pair = false;  // for sends
};
/// NCCL's buffers of one rank's communicator.
[[nodiscard]] std::int64_t communicator_bytes(const CommunicatorShape& shape, const topologies::DeviceProfile& device);
/// Of these what no plan changes: context, workspaces, runtime.
[[nodiscard]] DeviceMemory fixed_device_memory(const topologies::DeviceProfile& device,
                                               const models::Implementation& implementation);
/// By the class's footprint, its communicators, and the figures of device profile and implementation.
[[nodiscard]] DeviceMemory device_memory(const Program& program, const RankClass& rank_class);

/// Buffers of one receiving end of a channel, for NCCL's three protocols in 8 steps each (src/include/device.h): Simple
/// with NCCL_BUFFSIZE's 4 MiB, LL128 with 120 words for each of 640 threads, LL with 8 lines of 16 bytes for each of
/// 512.
inline constexpr std::int64_t kNcclConnectionBytes =
    (std::int64_t{4} << 20) + std::int64_t{8} * 640 * 120 * 8 + std::int64_t{8} * 512 * 8 * 16;

}  // namespace orrery::program
