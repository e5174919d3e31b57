// Operator cost from a cluster's figures: a roofline with an efficiency that depends on the shape, or the device
// profile's timings where it has them.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "core/dtype.h"
#include "models/operator.h"
#include "sim/cost/cost_model.h"
#include "sim/cost/product_shape.h"
#include "sim/cost/timings.h"
#include "topologies/cluster_spec.h"

namespace orrery::sim {

/// Share of the plateau of large GEMMs that fused attention reaches on s keys with heads of width d:
///   kAttentionShareOfPlateau * s / (s + kAttentionFillKeys) * d / (d + kAttentionFillWidth), times
///   kAttentionBackwardShare in the backward pass. s is Operator::reach, so that windows and documents count as short.
/// Its GEMMs are short in the head dimension and wait for the softmax between them; with few keys the half-filled tiles
/// of the diagonal weigh more. The shape is fitted to 280 published timings of fused kernels (FlashAttention-2 and -3,
/// Triton and cuDNN on H100, H200, B200, GB200 and GB300; root mean square error 17%), the share to the kernels written
/// for H100. RateKey::attention covers what a kernel reaches beyond that. Used only if the profile has no timing.
inline constexpr double kAttentionShareOfPlateau = 1.03;
inline constexpr double kAttentionFillKeys = 1000, kAttentionFillWidth = 20;
inline constexpr double kAttentionBackwardShare = 0.72;
/// Fallback: the same share for all shapes where the host computes.
inline constexpr double kAttentionShareOfHost = 0.6;
/// Fallback: the share of nominal host memory bandwidth that a node's processors reach when streaming, as in an
/// optimizer step over offloaded states.
inline constexpr double kHostMemoryEfficiency = 0.8;

class RooflineCost final : public CostModel {
  public:
    /// Without rates operators take their uncalibrated times.
    explicit RooflineCost(const topologies::ClusterSpec& cluster, program::Rates rates = {});

    /// The sum of operator_seconds over the instruction's operators; on a GPU cluster operators on Stream::host take
    /// host_seconds. Copies and host work share links and host memory with all devices of the node that the plan uses,
    /// because ranks do the same work at the same time. Throws InputError if the device profile has no peak for the
    /// type of a GEMM, or if the Program uses host memory and the cluster has no link to it or no bandwidth for it.
    [[nodiscard]] Picoseconds instruction_time(const InstructionContext& where) const override {
        return instruction_cost(where).time;
    }
    void add_terms(const InstructionContext& where, std::vector<TimeTerm>& terms) const override;
    /// The share of compute units is the arithmetic time over the device time, the share of memory the time of the
    /// bytes over it. Streaming operators reach their bandwidth on about half of a device's units, so losing some costs
    /// them nothing.
    [[nodiscard]] InstructionCost instruction_cost(const InstructionContext& where) const override;
    [[nodiscard]] bool depends_on_action() const override { return false; }
    [[nodiscard]] std::vector<std::string> notes(const program::Program& program) const override;

    /// Seconds of one operator on the device, times its rates (program::rates_of). Multiplications run at the peak of
    /// Operator::math:
    ///   products   max(sum over product_shapes of flops / (peak * efficiency), bytes / (bandwidth * efficiency)), or
    ///              flops / measured rate
    ///   attention  the same with kAttentionShareOfPlateau, or flops * measured seconds per flop at the sequence length
    ///              (for rectangles of queries and keys, windows and documents: at the length of a square of equal
    ///              area)
    ///   copies     host link latency + bytes / host_copy_bandwidth with all devices of the node copying; on a CPU
    ///              cluster as others
    ///   host_wait  0
    ///   others     bytes / (bandwidth * efficiency), or measured time over bytes
    /// Each kernel on the device adds ProductFigures::kernel_us.
    [[nodiscard]] double operator_seconds(const models::Operator& op) const;
    struct OperatorTime {
        double seconds = 0;     // with rates
        double on_device = 0;   // without rates and kernel_seconds; 0 for copies and host work
        double arithmetic = 0;  // arithmetic part of on_device
    };
    /// The time of an operator on the compute stream, and its parts.
    [[nodiscard]] OperatorTime operator_time(const models::Operator& op) const;
    /// Seconds of one operator that the host executes: bytes / (host memory bandwidth * kHostMemoryEfficiency /
    /// active_devices); 0 for host_wait.
    [[nodiscard]] double host_seconds(const models::Operator& op, std::int64_t active_devices) const;
    [[nodiscard]] double copy_seconds(const models::Operator& op, std::int64_t active_devices) const;
    /// RateKey::host_step_ms, the host time of a step outside its passes. The first parameter update takes it.
    [[nodiscard]] double step_seconds() const;

  private:
    [[nodiscard]] const topologies::DeviceProfile& device() const { return cluster_.device; }
    [[nodiscard]] double peak_flops_per_s(DType math) const;
    [[nodiscard]] double memory_seconds(const models::Operator& op) const;
    [[nodiscard]] double arithmetic_seconds(const models::Operator& op) const;
    [[nodiscard]] bool has_arithmetic_timing(const models::Operator& op) const;
    /// The factor on the operator's time.
    [[nodiscard]] double rate_of(const models::Operator& op) const;
    /// operator_seconds without rates, given arithmetic_seconds.
    [[nodiscard]] double seconds_of(const models::Operator& op, double arithmetic) const;
    [[nodiscard]] double product_seconds(const models::Operator& op, const models::ProductShapes& shapes) const;
    [[nodiscard]] double attention_seconds(const models::Operator& op) const;
    [[nodiscard]] double epilogue_seconds(const models::Operator& op) const;
    /// Calls visit(operator, OperatorTime) for each operator of the instruction.
    template <typename Visit>
    void for_each_operator(const InstructionContext& where, const Visit& visit) const;
    [[nodiscard]] double kernel_seconds(const models::Operator& op) const;
    /// step_seconds() of the first parameter update, otherwise 0.
    [[nodiscard]] double step_seconds(const InstructionContext& where) const;
    [[nodiscard]] std::int64_t active_devices(const program::Program& program) const;
    /// What was assumed for this kind of operator in this type; empty if nothing was.
    [[nodiscard]] std::string assumption(models::OpKind kind, DType math) const;
    [[nodiscard]] std::string product_assumption(models::OpKind kind, DType math) const;
    [[nodiscard]] std::vector<std::string> host_assumptions(bool copies, bool computes,
                                                            std::int64_t active_devices) const;

    topologies::ClusterSpec cluster_;
    program::Rates rates_;
    Timings timings_;
    std::map<DType, double> peaks_;
    double memory_bytes_per_s_ = 0;  // effective bandwidth of streaming operators
};

}  // namespace orrery::sim
