#include "sim/cost/product_shape.h"

#include <algorithm>
#include <array>
#include <cmath>

namespace orrery::sim {

namespace {

using models::ProductShape;

double tiles_over(std::int64_t length, std::int64_t tile) {
    const std::int64_t tiles = (length + tile - 1) / tile;
    return static_cast<double>(tiles);
}

double with_tile(const topologies::DeviceProfile& device, const ProductShape& shape, std::int64_t tile_m,
                 std::int64_t tile_n) {
    const double tiles_m = tiles_over(shape.m, tile_m);
    const double tiles_n = tiles_over(shape.n, tile_n);
    const double tiles = tiles_m * tiles_n * static_cast<double>(shape.count);
    const auto units = static_cast<double>(device.compute_units);
    const double tile_quantisation = (static_cast<double>(shape.m) / (tiles_m * static_cast<double>(tile_m))) *
                                     (static_cast<double>(shape.n) / (tiles_n * static_cast<double>(tile_n)));
    const double wave_quantisation = tiles / (std::ceil(tiles / units) * units);
    return tile_quantisation * wave_quantisation;
}

/// Sides of the tiles for which libraries have kernels.
enum Side : std::uint8_t { k64, k128, k256 };
constexpr double kLargestTile = 128.0 * 256.0;
std::array<double, 3> tiles_by_side(std::int64_t length) {
    return {tiles_over(length, 64), tiles_over(length, 128), tiles_over(length, 256)};
}
struct Tile {
    Side m{}, n{};
    std::uint8_t halvings = 0;  // of the largest tile's area
};
constexpr std::array<Tile, 8> kTiles{{{k128, k256, 0},
                                      {k256, k128, 0},
                                      {k128, k128, 1},
                                      {k64, k256, 1},
                                      {k256, k64, 1},
                                      {k64, k128, 2},
                                      {k128, k64, 2},
                                      {k64, k64, 3}}};

/// std::ceil for values that fit an integer. Without SSE4.1 std::ceil is a call, once for each tile of each product.
double ceiling(double value) {
    const auto whole = static_cast<double>(static_cast<std::int64_t>(value));
    return whole < value ? whole + 1 : whole;
}

double best_tile(const topologies::DeviceProfile& device, const topologies::ProductFigures& figures,
                 const ProductShape& shape) {
    const auto units = static_cast<double>(device.compute_units);
    const double share = figures.tile_share.value, lost = figures.wave_share.value;
    const std::array<double, 4> shares{1.0, share, share * share, share * share * share};  // by halvings
    const auto count = static_cast<double>(shape.count);
    const std::array<double, 3> along_m = tiles_by_side(shape.m), along_n = tiles_by_side(shape.n);
    double best = 0;  // relative to tiles of the largest area
    for (const Tile& tile : kTiles) {
        const double waves = along_m[tile.m] * along_n[tile.n] * count / units;
        const double taken = lost * ceiling(waves) + (1 - lost) * std::max(waves, 1.0);
        best = std::max(best, static_cast<double>(1 << tile.halvings) * shares[tile.halvings] / taken);
    }
    return best * static_cast<double>(shape.m) * static_cast<double>(shape.n) * count / (units * kLargestTile);
}

double by_figures(const topologies::DeviceProfile& device, const ProductShape& shape, double plateau) {
    const topologies::ProductFigures& figures = *device.products;
    const auto k = static_cast<double>(shape.k);
    const double flops =
        2 * static_cast<double>(shape.m) * static_cast<double>(shape.n) * k * static_cast<double>(shape.count);
    constexpr double kCool = 1e12;
    const double decades = flops > kCool ? std::log10(flops / kCool) : 0.0;
    const double slowdown = 1 + figures.power_slope.value * decades;
    return plateau * best_tile(device, figures, shape) * k / (k + figures.fill_length.value) / slowdown;
}

}  // namespace

double matmul_efficiency(const topologies::DeviceProfile& device, const ProductShape& shape, DType math) {
    const double plateau = device.matmul_plateau(math);
    if (device.compute_units <= 0 || device.tile_m <= 0 || device.tile_n <= 0) return plateau;
    if (shape.m <= 0 || shape.n <= 0 || shape.k <= 0 || shape.count <= 0) return plateau;
    if (device.products) return by_figures(device, shape, plateau);
    double quantisation = with_tile(device, shape, device.tile_m, device.tile_n);
    if (shape.count > 1) quantisation = std::max(quantisation, with_tile(device, shape, device.tile_n, device.tile_m));
    const auto k = static_cast<double>(shape.k);
    return plateau * quantisation * (k / (k + kHalfRateReductionLength));
}

}  // namespace orrery::sim
