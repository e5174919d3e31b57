// Figures of devices and links, each with its origin.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/dtype.h"
#include "core/units.h"

namespace orrery::topologies {

enum class Provenance : std::uint8_t { measured, datasheet, fitted, fallback };
[[nodiscard]] std::string name_of(Provenance provenance);

struct Figure {
    double value = 0;
    Provenance kind = Provenance::fallback;
    std::string source;
    bool operator==(const Figure&) const = default;
};

/// One timed GEMM: y[m,n] = x[m,k] * w[n,k]^T, or one of its two gradients with the forward GEMM's m (rows), n and k.
struct MatmulSample {
    std::string op;  // "linear_forward", "linear_backward_input", "linear_backward_weight"
    std::int64_t m = 0, n = 0, k = 0;
    double seconds = 0;
    DType dtype = DType::fp32;  // of the operands
    bool bias = false;          // added, or its gradient computed
    bool operator==(const MatmulSample&) const = default;
};
/// One timed operator of any other kind, described by the memory traffic that the operator states (bytes_read +
/// bytes_written), and by its shape with the names of models::Operator, where 0 stands for what a kind lacks. Costs use
/// the shape of attention only; the others are for those who time the same operator elsewhere.
struct OperatorSample {
    std::string op;  // OpKind name
    double bytes = 0;
    double flops = 0;
    std::int64_t rows = 0, head_dim = 0, sequence = 0;  // attention: rows = batch * heads * sequence
    double seconds = 0;
    DType dtype = DType::fp32;  // of the computation: models::Operator::math
    std::int64_t n = 0, k = 0, heads = 0, kv_heads = 0, elements = 0;
    bool operator==(const OperatorSample&) const = default;
};
/// One timed transfer through the executor's transport.
struct TransportSample {
    std::string op;  // "all_reduce", "all_gather", "reduce_scatter", "send"
    std::int64_t ranks = 0;
    std::int64_t bytes = 0;  // message size S: all-reduce and send = buffer; all-gather, reduce-scatter = total
    double seconds = 0;
    bool operator==(const TransportSample&) const = default;
};

struct PeakRate {
    DType dtype = DType::fp32;
    Figure tflops;  // dense
    bool operator==(const PeakRate&) const = default;
};

/// A part of a node that holds several devices, from narrow to wide.
enum class NodePart : std::uint8_t { pcie_switch, socket, node };
inline constexpr std::size_t kNodeParts = 3;
[[nodiscard]] std::string name_of(NodePart part);

/// NCCL's collectives on a device, inside a node: parameters of the model in docs/network.md, fitted to measured
/// collectives. A parameter of 0 was not given, and its term is left out.
struct NcclProfile {
    /// Fraction of the port's nominal bandwidth that a ring reaches when its members of a node lie within one such
    /// part.
    struct Ring {
        NodePart within = NodePart::node;
        Figure share_of_port;
        bool operator==(const Ring&) const = default;
    };
    std::int64_t channels = 0;              // used by large messages
    std::vector<Ring> ring;                 // by widening part; the last is the node. With NVLink only the node
    Figure base_us, step_us;                // LL: per operation, and per step
    Figure ll_channel_gb_per_s;             // LL: rate of one channel
    Figure ll_share;                        // LL: fraction of the ring's bandwidth
    Figure ll128_share;                     // LL128: fraction of the ring's bandwidth
    Figure simple_base_us, simple_step_us;  // Simple: per operation, and per step that is not hidden behind the data
    Figure copy_gb_per_s;                   // copy of a member's own shard from its input to its output
    Figure fill;           // Simple: exposed fraction of the time for a member's shard of the first chunks
    Figure grouped_share;  // grouped sends: fraction of the ring's bandwidth
    Figure pair_gb_per_s;  // grouped sends over PCIe: maximum rate of one pair's channels
    Figure nvls_share;     // NVLS, reduction in the switches: fraction of the port's nominal bandwidth
    Figure nvls_rounds;    // NVLS: chunks of all channels that fill the pipeline
    bool operator==(const NcclProfile&) const = default;
};

/// Resources that communication kernels take from concurrent computation. A channel is a thread block that stays on one
/// compute unit from the operation's start to its end.
struct CollectiveKernels {
    Figure compute_units;             // used by a collective's kernel, if its number of channels is not known
    Figure compute_units_one_member;  // used by a collective of a group with one member per node
    Figure compute_units_send;        // used by a send or receive between nodes
    Figure memory_passes;             // bytes read or written in device memory per byte that a member sends
    bool operator==(const CollectiveKernels&) const = default;
};

/// How the rate of GEMMs depends on their shape, for devices where many were timed (formula: sim/cost/product_shape.h).
struct ProductFigures {
    Figure wave_share;   // fraction of the idle time in a kernel's last wave that is really lost, 0 to 1
    Figure tile_share;   // rate of a tile of half the area, as a fraction of the full tile's rate
    Figure fill_length;  // reduction length that costs as much as filling and draining one tile
    Figure kernel_us;    // fixed time per kernel
    Figure power_slope;  // relative slowdown of a GEMM for each factor of ten beyond 10^12 FLOPs
    bool operator==(const ProductFigures&) const = default;
};

/// Plateau of GEMMs in 8 or 4 bits.
struct NarrowPlateau {
    DType dtype = DType::fp8;
    Figure share;  // fraction of that type's peak
    bool operator==(const NarrowPlateau&) const = default;
};

struct DeviceProfile {
    std::string name;                     // "h100-sxm-80gb", "cpu-core"
    std::int64_t compute_capability = 0;  // NVIDIA's, times ten: 70 V100, 80 A100, 90 H100, 100 B200; 0: other vendors
    std::vector<PeakRate> peaks;
    Figure memory_bandwidth_gb_per_s;
    Figure memory_capacity_gib;
    Figure usable_memory_gib;  // part of it that all processes together may allocate; 0: not given, all of it
    Figure power_limit_w;      // of the board, as sold; 0: not given, and variants cannot lower it
    Figure context_gib;        // used before the first tensor is allocated: runtime, libraries, communicators
    Figure matmul_efficiency;  // plateau: fraction of peak that large GEMMs reach
    std::vector<NarrowPlateau> narrow_matmul_efficiency;  // plateaus of types that differ from matmul_efficiency
    Figure memory_efficiency;                             // fraction of memory bandwidth that streaming operators reach
    Figure launch_us;                                     // host time to issue one instruction
    std::int64_t compute_units = 0;                       // streaming multiprocessors; 0 on a CPU
    std::int64_t tile_m = 0, tile_n = 0;                  // output tile of one compute unit; 0 on a CPU
    bool host_runs_compute = false;   // CPU ranks: the issuing thread executes compute instructions itself
    std::int64_t cores_per_node = 0;  // shared by a node's ranks when host_runs_compute
    std::vector<MatmulSample> matmul_samples;
    std::vector<OperatorSample> operator_samples;
    std::optional<ProductFigures> products;               // empty: only the plateau and the profile's tile are known
    std::optional<NcclProfile> nccl;                      // empty: NCCL's published table is used
    std::optional<CollectiveKernels> collective_kernels;  // empty: they take no resources
    bool operator==(const DeviceProfile&) const = default;

    /// Dense peak in FLOP/s; throws InputError naming the profile when it has no figure for the type.
    [[nodiscard]] double peak_flops_per_s(DType dtype) const;
    /// GiB that all processes together may allocate.
    [[nodiscard]] double usable_gib() const;
    /// The type's own plateau if it has one, else matmul_efficiency.
    [[nodiscard]] double matmul_plateau(DType dtype) const;
};

/// NCCL's costs on a network between nodes, fitted to measured collectives.
struct NcclNetwork {
    Figure step_us;             // one LL step from node to node, beyond the links' latencies
    Figure tree_fill;           // fraction of the intra-node pipeline that each level of an inter-node tree refills
    bool plugin_tuner = false;  // the network's plugin chooses algorithms from measurements, in place of NCCL's tuner
    bool operator==(const NcclNetwork&) const = default;
};

/// Technology of a link: selects its cost model and the fitted figures that apply.
enum class LinkMedium : std::uint8_t {
    other,
    nvlink,
    infinity_fabric,
    pcie,
    socket,         // between the CPUs of a node: UPI, xGMI
    shared_memory,  // of a CPU node, between its ranks
    infiniband,
    omnipath,
    efa,
    roce,
    ethernet,  // without RDMA
};
/// The names of all media, in the order of the enumeration.
[[nodiscard]] const std::vector<std::string>& link_medium_names();
[[nodiscard]] std::string name_of(LinkMedium medium);
/// Whether it joins nodes, so that a NIC may use it.
[[nodiscard]] bool joins_nodes(LinkMedium medium);

struct LinkProfile {
    std::string name;  // "nvlink4", "infiniband-ndr"; for display, and for figures of this link alone
    LinkMedium kind = LinkMedium::other;
    Figure bandwidth_gb_per_s_per_direction;
    Figure latency_us;
    Figure efficiency;                // fraction of bandwidth that collectives of large messages reach
    std::optional<NcclNetwork> nccl;  // empty: NCCL's published latencies are used
    bool operator==(const LinkProfile&) const = default;

    /// In each direction, for collectives of large messages.
    [[nodiscard]] double reached_bytes_per_s() const {
        return bandwidth_gb_per_s_per_direction.value * kGigabyte * std::min(1.0, efficiency.value);
    }
};

}  // namespace orrery::topologies
