// Which matrix products an operator consists of, and what share of a device's peak rate they reach by their shape.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "models/operator.h"
#include "topologies/profile.h"

namespace orrery::sim {

/// Reduction length at which a product reaches half of its plateau, since filling and draining the pipeline of one
/// output tile costs about as much as this many steps. A fallback.
inline constexpr double kHalfRateReductionLength = 64.0;

/// y[m,n] reduced over k: the shape that a matrix product really has on the device. `count` equal ones run side by side
/// in one kernel (grouped or batched).
struct ProductShape {
    std::int64_t m = 0, n = 0, k = 0;
    std::int64_t count = 1;
    bool operator==(const ProductShape&) const = default;
};

/// Those of one operator, at most two; no allocation, since they are asked for with each operator's time.
class ProductShapes {
  public:
    ProductShapes() = default;
    explicit ProductShapes(const ProductShape& only) : shapes_{only}, count_(1) {}
    ProductShapes(const ProductShape& first, const ProductShape& second) : shapes_{first, second}, count_(2) {}
    [[nodiscard]] std::size_t size() const { return count_; }
    [[nodiscard]] bool empty() const { return count_ == 0; }
    [[nodiscard]] const ProductShape* begin() const { return shapes_.data(); }
    [[nodiscard]] const ProductShape* end() const { return shapes_.data() + count_; }
    bool operator==(const ProductShapes&) const = default;

  private:
    std::array<ProductShape, 2> shapes_{};
    std::size_t count_ = 0;
};

/// The operator's products; empty when it is none of these. Each does an equal part of the operator's FLOPs.
///   linear_forward [T,n] over k; linear_backward_input [T,k] over n; linear_backward_weight [n,k] over T
///   expert_linear_*: the same with T / groups (rounded up: the fullest group) in T's place, `groups` times
///   a piece of a product has the whole product's shape: its tiles fill the waves together with those of the others
///   unfused attention, for each head of each sequence, with q queries, s keys, head width d and value width e:
///     scores_forward [q,s] over d; context_forward [q,e] over s
///     scores_backward [q,d] over s and [s,d] over q; context_backward [q,s] over e and [s,e] over q
[[nodiscard]] ProductShapes product_shapes(const models::Operator& op);

/// With DeviceProfile::products, the best over the tiles that libraries have kernels of (128 x 256 and its halves, down
/// to 64 x 64, as they are or turned by 90 degrees) of
///   plateau of the type * m n count / (units * tile area * waves) * tile_share^halvings * k / (k + fill_length) /
///   slowdown, where waves = wave_share * ceil(w) + (1 - wave_share) * max(w, 1) for w = tiles of all `count` products
///   / units slowdown = 1 + power_slope * max(0, log10(FLOPs / 10^12)): large products draw so much power that clocks
///   fall
/// Without: plateau of the type * tile quantisation * wave quantisation * k / (k + kHalfRateReductionLength), where
///   tile quantisation = m n / (ceil(m / tile_m) tile_m ceil(n / tile_n) tile_n)
///   wave quantisation = tiles / (ceil(tiles / units) units), over the tiles of all `count` products.
/// Of several side by side the better of the tile as it is and turned, since their shapes are narrow. Without tiles in
/// the profile (a CPU) only the plateau.
[[nodiscard]] double matmul_efficiency(const topologies::DeviceProfile& device, const ProductShape& shape,
                                       DType math = DType::bf16);

}  // namespace orrery::sim
