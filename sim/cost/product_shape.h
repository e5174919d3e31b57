// What share of a device's peak rate matrix products reach by their shape.
#pragma once

#include "models/operator_table.h"
#include "topologies/profile.h"

namespace orrery::sim {

/// Reduction length at which a product reaches half of its plateau, since filling and draining the pipeline of one
/// output tile costs about as much as this many steps. A fallback.
inline constexpr double kHalfRateReductionLength = 64.0;

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
[[nodiscard]] double matmul_efficiency(const topologies::DeviceProfile& device, const models::ProductShape& shape,
                                       DType math = DType::bf16);

}  // namespace orrery::sim
