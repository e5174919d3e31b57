// Operator cost from a cluster's figures: a roofline with an efficiency that depends on the shape, or the device
// profile's own timings where it has them.
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

/// What share of the plateau of large matrix products fused attention reaches on s keys with heads of width d:
///   kAttentionShareOfPlateau * s / (s + kAttentionFillKeys) * d / (d + kAttentionFillWidth), times
///   kAttentionBackwardShare in the backward pass; s is Operator::reach, so that windows and documents count as short.
/// Its products are short in the head dimension and wait for the softmax between them, and few keys leave the
/// diagonal's half-filled tiles a large part. The shape follows 280 published timings of fused kernels
/// (FlashAttention-2 and -3, Triton and cuDNN on H100, H200, B200, GB200 and GB300; 17% from them in the root mean
/// square), the share the kernels written for H100; what a kernel reaches beyond that is RateKey::attention. Used only
/// when the profile has no timing.
inline constexpr double kAttentionShareOfPlateau = 1.03;
inline constexpr double kAttentionFillKeys = 1000, kAttentionFillWidth = 20;
inline constexpr double kAttentionBackwardShare = 0.72;
/// The same where the host computes, for all shapes. A fallback.
inline constexpr double kAttentionShareOfHost = 0.6;
/// Fraction of its nominal host memory bandwidth that a node's processors reach when they stream, as in an optimizer
/// step over offloaded states. A fallback.
inline constexpr double kHostMemoryEfficiency = 0.8;

class RooflineCost final : public CostModel {
  public:
    /// By default operators take what they take alone.
    explicit RooflineCost(const topologies::ClusterSpec& cluster, program::Rates rates = {});

    /// The sum over the instruction's operators, each by operator_seconds; on a GPU cluster those on Stream::host by
    /// host_seconds. Copies and the host's work share links and host memory with every device of the node that the plan
    /// uses, as if all copied at once: ranks that do the same thing do it at the same time.
    /// Throws InputError when the device profile has no peak for the type of a product, or the cluster no link to or
    /// bandwidth of its host memory where the Program uses them.
    [[nodiscard]] Picoseconds instruction_time(const InstructionContext& where) const override {
        return instruction_cost(where).time;
    }
    void add_terms(const InstructionContext& where, std::vector<TimeTerm>& terms) const override;
    /// Of compute units what multiplies takes, for its time; of memory what the bytes would take alone. Streaming
    /// operators reach their bandwidth on about half of a device's units, so that losing some costs them nothing.
    [[nodiscard]] InstructionCost instruction_cost(const InstructionContext& where) const override;
    [[nodiscard]] bool depends_on_action() const override { return false; }
    [[nodiscard]] std::vector<std::string> notes(const program::Program& program) const override;

    /// Seconds of one operator on the device, times the rates that hold for it (program::rates_of), by Operator::math's
    /// peak where it multiplies:
    ///   products   max(sum over product_shapes of flops / (peak * efficiency), bytes / (bandwidth * efficiency)), or
    ///              flops / measured rate
    ///   attention  the same with kAttentionShareOfPlateau, or flops * measured seconds per flop at the sequence length
    ///              (at the length of as large a square, when there are not as many queries as keys, or a window or
    ///              documents end)
    ///   copies     host link latency + bytes / host_copy_bandwidth, all devices of the node copying; on a CPU cluster
    ///              like the others
    ///   host_wait  0
    ///   and of each kernel on the device ProductFigures::kernel_us beside its work
    ///   others     bytes / (bandwidth * efficiency), or measured time over bytes
    [[nodiscard]] double operator_seconds(const models::Operator& op) const;
    /// Seconds of one operator that the host works out itself: bytes / (host memory bandwidth * kHostMemoryEfficiency /
    /// active_devices); host_wait 0.
    [[nodiscard]] double host_seconds(const models::Operator& op, std::int64_t active_devices) const;
    [[nodiscard]] double copy_seconds(const models::Operator& op, std::int64_t active_devices) const;

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
    struct OperatorTime {
        double seconds = 0;     // with rates
        double on_device = 0;   // without them and what starting a kernel takes; 0 of copies and of the host's work
        double arithmetic = 0;  // of on_device
    };
    /// Of the instruction's operators, one after the other: visit(operator, OperatorTime).
    template <typename Visit>
    void for_each_operator(const InstructionContext& where, const Visit& visit) const;
    [[nodiscard]] double kernel_seconds(const models::Operator& op) const;
    [[nodiscard]] double step_seconds(const InstructionContext& where) const;
    [[nodiscard]] std::int64_t active_devices(const program::Program& program) const;
    /// Empty: nothing was assumed for this kind of operator in this type.
    [[nodiscard]] std::string assumption(models::OpKind kind, DType math) const;
    [[nodiscard]] std::string product_assumption(models::OpKind kind, DType math) const;
    [[nodiscard]] std::vector<std::string> host_assumptions(bool copies, bool computes,
                                                            std::int64_t active_devices) const;

    topologies::ClusterSpec cluster_;
    program::Rates rates_;
    Timings timings_;
    std::map<DType, double> peaks_;
    double memory_bytes_per_s_ = 0;  // reached by streaming operators
};

}  // namespace orrery::sim
