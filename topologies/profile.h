// What a device and its links can do, each figure with its origin.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/dtype.h"

namespace orrery::topologies {

enum class Provenance : std::uint8_t { measured, datasheet, fitted, fallback };
[[nodiscard]] std::string name_of(Provenance provenance);

struct Figure {
    double value = 0;
    Provenance kind = Provenance::fallback;
    std::string source;
    bool operator==(const Figure&) const = default;
};

/// One timed matrix product: y[m,n] = x[m,k] * w[n,k]^T, or one of its two gradients, by the same m (rows), n and k as
/// the operator has.
struct MatmulSample {
    std::string op;  // "linear_forward", "linear_backward_input", "linear_backward_weight"
    std::int64_t m = 0, n = 0, k = 0;
    double seconds = 0;
    DType dtype = DType::fp32;  // of the operands
    bool operator==(const MatmulSample&) const = default;
};
/// One timed operator of any other kind, by the memory traffic that the operator states (bytes_read + bytes_written),
/// and for attention by its shape.
struct OperatorSample {
    std::string op;  // OpKind name
    double bytes = 0;
    double flops = 0;
    std::int64_t rows = 0, head_dim = 0, sequence = 0;  // attention: rows = batch * heads * sequence; else 0
    double seconds = 0;
    DType dtype = DType::fp32;  // that is computed in: models::Operator::math
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

/// What holds several devices of a node, the narrowest first.
enum class NodePart : std::uint8_t { pcie_switch, socket, node };
inline constexpr std::size_t kNodeParts = 3;
[[nodiscard]] std::string name_of(NodePart part);

/// What NCCL's collectives reach on a kind of device, inside a node: the figures of the model in docs/network.md,
/// fitted to measured collectives. A figure that is 0 was not given: the term is left out.
struct NcclProfile {
    /// What a ring carries of the port's nominal bandwidth when its members of a node lie within a part of it.
    struct Ring {
        NodePart within = NodePart::node;
        Figure share_of_port;
        bool operator==(const Ring&) const = default;
    };
    std::int64_t channels = 0;              // that large messages are spread over
    std::vector<Ring> ring;                 // ascending; the last within the node. On NVLink that one only
    Figure base_us, step_us;                // LL: once, and each step
    Figure ll_channel_gb_per_s;             // LL: what one channel moves
    Figure ll_share;                        // LL, of the ring's bandwidth
    Figure ll128_share;                     // LL128, of the ring's bandwidth
    Figure simple_base_us, simple_step_us;  // Simple: once, and each step that is not hidden behind the data
    Figure copy_gb_per_s;                   // a member's own share, copied from its input to its output
    Figure fill;           // Simple: of the time that a member's share of the first chunks takes, what is not hidden
    Figure grouped_share;  // grouped sends, of the ring's bandwidth
    Figure pair_gb_per_s;  // grouped sends over PCIe: what one pair's channels move at most
    Figure nvls_share;     // reduction in the switches, of the port's nominal bandwidth
    Figure nvls_rounds;    // chunks of all channels that fill its pipeline
    bool operator==(const NcclProfile&) const = default;
};

/// What the kernels that move messages take from the computation beside them. A channel is a block of threads that
/// stays on one compute unit from the operation's start to its end.
struct CollectiveKernels {
    Figure compute_units;             // of a collective's kernel, where its channels are not known
    Figure compute_units_one_member;  // of one among groups with one member on each node
    Figure compute_units_send;        // of a send, or a receive, to another node
    Figure memory_passes;             // bytes read or written in the device's memory for each byte that a member sends
    bool operator==(const CollectiveKernels&) const = default;
};

/// How the rate of matrix products depends on their shape, where many were timed (sim/cost/product_shape.h has the
/// formula).
struct ProductFigures {
    Figure wave_share;   // of the units that idle in a kernel's last wave: what is really lost, 0 to 1
    Figure tile_share;   // of a tile's rate: what a tile of half its area reaches
    Figure fill_length;  // reduction length that costs as much as filling and draining one tile
    Figure kernel_us;    // of each kernel, beside its work
    Figure power_slope;  // by what share a product slows down for each factor of ten beyond 10^12 FLOPs
    bool operator==(const ProductFigures&) const = default;
};

/// Of products in 8 or 4 bits.
struct NarrowPlateau {
    DType dtype = DType::fp8;
    Figure share;  // of that type's peak
    bool operator==(const NarrowPlateau&) const = default;
};

struct DeviceProfile {
    std::string name;                     // "h100-sxm-80gb", "cpu-core"
    std::int64_t compute_capability = 0;  // NVIDIA's, times ten: 70 V100, 80 A100, 90 H100, 100 B200; 0: another device
    std::vector<PeakRate> peaks;
    Figure memory_bandwidth_gb_per_s;
    Figure memory_capacity_gib;
    Figure usable_memory_gib;  // of it, what all processes together may take; 0: not given, and then it is all
    Figure power_limit_w;      // of the board, as sold; 0: not given, and then no variant may lower it
    Figure context_gib;        // taken before the first tensor: runtime, libraries, communicators
    Figure matmul_efficiency;  // plateau, fraction of peak that large products reach
    std::vector<NarrowPlateau> narrow_matmul_efficiency;  // the same of types whose products have one of their own
    Figure memory_efficiency;                             // fraction of memory bandwidth that streaming operators reach
    Figure launch_us;                                     // host time to issue one instruction
    std::int64_t compute_units = 0;                       // streaming multiprocessors; 0 on a CPU
    std::int64_t tile_m = 0, tile_n = 0;                  // output tile of one compute unit; 0 on a CPU
    bool host_runs_compute = false;   // CPU ranks: the issuing thread executes compute instructions itself
    std::int64_t cores_per_node = 0;  // shared by a node's ranks when host_runs_compute
    std::vector<MatmulSample> matmul_samples;
    std::vector<OperatorSample> operator_samples;
    std::optional<ProductFigures> products;               // none: only the plateau and the profile's own tile are known
    std::optional<NcclProfile> nccl;                      // none: NCCL's published table is taken
    std::optional<CollectiveKernels> collective_kernels;  // none: they take nothing
    bool operator==(const DeviceProfile&) const = default;

    /// Dense peak in FLOP/s; throws InputError naming the profile when it has no figure for the type.
    [[nodiscard]] double peak_flops_per_s(DType dtype) const;
    /// GiB that all processes together may take.
    [[nodiscard]] double usable_gib() const;
    /// The type's own plateau, or that of all.
    [[nodiscard]] double matmul_plateau(DType dtype) const;
};

/// What a network between nodes costs NCCL, fitted to measured collectives.
struct NcclNetwork {
    Figure step_us;             // one LL step from node to node, beyond the links' latencies
    Figure tree_fill;           // of the pipeline inside a node, what each level of a tree between nodes fills again
    bool plugin_tuner = false;  // the network's plugin chooses the way in place of NCCL's tuner, by measurements
    bool operator==(const NcclNetwork&) const = default;
};

/// What a link is made of, by which it is priced and by which fitted figures go.
enum class LinkMedium : std::uint8_t {
    other,
    nvlink,
    infinity_fabric,
    pcie,
    socket,         // between the CPUs of a node: UPI, xGMI
    shared_memory,  // of a CPU node, in which its ranks meet
    infiniband,
    omnipath,
    efa,
    roce,
    ethernet,  // without RDMA
};
/// Of all of them, in the order of the enumeration.
[[nodiscard]] const std::vector<std::string>& link_medium_names();
[[nodiscard]] std::string name_of(LinkMedium medium);
/// Whether it joins nodes, so that a NIC may be of it.
[[nodiscard]] bool joins_nodes(LinkMedium medium);

struct LinkProfile {
    std::string name;  // "nvlink4", "infiniband-ndr"; for people and for figures of just this link
    LinkMedium kind = LinkMedium::other;
    Figure bandwidth_gb_per_s_per_direction;
    Figure latency_us;
    Figure efficiency;                // fraction of bandwidth that collectives of large messages reach
    std::optional<NcclNetwork> nccl;  // none: NCCL's published latencies are taken
    bool operator==(const LinkProfile&) const = default;
};

}  // namespace orrery::topologies
