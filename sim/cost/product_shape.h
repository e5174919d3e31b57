// Share of a device's peak rate that GEMMs reach, by their shape.
#pragma once

#include "models/operator_table.h"
#include "topologies/profile.h"

namespace orrery::sim {

/// Fallback: the reduction length at which a GEMM reaches half of its plateau. Filling and draining the pipeline of one
/// output tile costs about this many steps.
inline constexpr double kHalfRateReductionLength = 64.0;

/// With DeviceProfile::products, the maximum over the tiles for which libraries have kernels (128 x 256 and its halves
/// down to 64 x 64, in both orientations) of
///   plateau of the type * m n count / (units * tile area * waves) * tile_share^halvings * k / (k + fill_length)
///   / slowdown, where
///   waves = wave_share * ceil(w) + (1 - wave_share) * max(w, 1), with w = tiles of all `count` products / units
///   slowdown = 1 + power_slope * max(0, log10(FLOPs / 10^12)): clocks fall because large products draw much power
/// Without it: plateau of the type * tile quantisation * wave quantisation * k / (k + kHalfRateReductionLength), where
///   tile quantisation = m n / (ceil(m / tile_m) tile_m ceil(n / tile_n) tile_n)
///   wave quantisation = tiles / (ceil(tiles / units) units), over the tiles of all `count` products.
/// Batched products (count > 1) take the better orientation of the tile, since their shapes are narrow. Without tiles
/// in the profile (a CPU): only the plateau.
[[nodiscard]] double matmul_efficiency(const topologies::DeviceProfile& device, const models::ProductShape& shape,
                                       DType math = DType::bf16);

}  // namespace orrery::sim
