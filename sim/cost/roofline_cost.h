// Operator cost from a device profile: a roofline with an efficiency that depends on the shape, or the profile's own
// timings where it has them.
#pragma once

#include <array>
#include <string>
#include <vector>

#include "core/dtype.h"
#include "models/operator.h"
#include "sim/cost/cost_model.h"
#include "sim/cost/interpolation.h"
#include "topologies/profile.h"

namespace orrery::sim {

/// Fraction of the plateau of large matrix products that fused attention reaches: its two products are short in the
/// head dimension and wait for the softmax between them. A fallback, used only when the profile has no timing.
inline constexpr double kAttentionShareOfPlateau = 0.6;
/// Reduction length at which a product reaches half of its plateau, since filling and draining the pipeline of one
/// output tile costs about as much as this many steps. A fallback.
inline constexpr double kHalfRateReductionLength = 64.0;

/// y[m,n] reduced over k: the shape that a matrix product really has on the device.
struct ProductShape {
    std::int64_t m = 0, n = 0, k = 0;
};
/// linear_forward: [T,n] over k; linear_backward_input: [T,k] over n; linear_backward_weight: [n,k] over T.
[[nodiscard]] ProductShape product_shape(const models::Operator& op);

/// plateau * tile quantisation * wave quantisation * k / (k + kHalfRateReductionLength), where
///   tile quantisation = m n / (ceil(m / tile_m) tile_m ceil(n / tile_n) tile_n)
///   wave quantisation = tiles / (ceil(tiles / units) units).
/// Without tiles in the profile (a CPU) only the plateau.
[[nodiscard]] double matmul_efficiency(const topologies::DeviceProfile& device, const ProductShape& shape);

class RooflineCost final : public CostModel {
  public:
    /// `dtype`: of the matrix products. Throws InputError when the profile has no peak for it.
    RooflineCost(const topologies::DeviceProfile& device, DType dtype);

    [[nodiscard]] Picoseconds instruction_time(const InstructionContext& where) const override;
    [[nodiscard]] bool depends_on_action() const override { return false; }
    [[nodiscard]] std::vector<std::string> notes(const program::Program& program) const override;

    /// Seconds of one operator:
    ///   products   max(flops / (peak * efficiency), bytes / (bandwidth * efficiency)), or flops / measured rate
    ///   attention  the same with kAttentionShareOfPlateau, or flops * measured seconds per flop at this sequence
    ///   length others     bytes / (bandwidth * efficiency), or measured time over bytes
    [[nodiscard]] double operator_seconds(const models::Operator& op) const;

  private:
    struct HeadCurve {
        double log_head_dim = 0;
        std::vector<CurvePoint> seconds_per_flop;  // over the sequence length
    };
    [[nodiscard]] double memory_seconds(const models::Operator& op) const;
    [[nodiscard]] double matmul_seconds(const models::Operator& op) const;
    [[nodiscard]] double attention_seconds(const models::Operator& op) const;
    /// Empty: nothing was assumed for this kind of operator.
    [[nodiscard]] std::string assumption(models::OpKind kind) const;

    topologies::DeviceProfile device_;
    double peak_flops_per_s_ = 0;
    double memory_bytes_per_s_ = 0;  // reached by streaming operators
    std::array<std::vector<ShapePoint>, models::kOpKindCount> product_rates_;
    std::vector<ShapePoint> all_product_rates_;
    std::array<std::vector<CurvePoint>, models::kOpKindCount> seconds_over_bytes_;
    std::array<std::vector<HeadCurve>, models::kOpKindCount> attention_;
};

}  // namespace orrery::sim
