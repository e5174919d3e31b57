#include "sim/cost/product_shape.h"

#include <algorithm>
#include <cmath>

namespace orrery::sim {

namespace {

using models::Operator;
using models::OpKind;

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

}  // namespace

std::vector<ProductShape> product_shapes(const Operator& op) {
    const std::int64_t groups = std::max<std::int64_t>(op.groups, 1);
    const std::int64_t rows = op.is_expert_matmul() ? (op.rows + groups - 1) / groups : op.rows;
    const std::int64_t count = op.is_expert_matmul() ? groups : 1;
    const std::int64_t keys = op.sequence;
    const std::int64_t queries = op.queries > 0 ? op.queries : op.sequence;
    const std::int64_t values = op.value_dim > 0 ? op.value_dim : op.head_dim;
    const std::int64_t heads = op.micro_batch * op.heads;
    switch (op.kind) {
        case OpKind::linear_forward:
        case OpKind::expert_linear_forward:
            return {{rows, op.n, op.k, count}};
        case OpKind::linear_backward_input:
        case OpKind::expert_linear_backward_input:
            return {{rows, op.k, op.n, count}};
        case OpKind::linear_backward_weight:
        case OpKind::expert_linear_backward_weight:
            return {{op.n, op.k, rows, count}};
        case OpKind::scores_forward:
            return {{queries, keys, op.head_dim, heads}};
        case OpKind::scores_backward:
            return {{queries, op.head_dim, keys, heads}, {keys, op.head_dim, queries, heads}};
        case OpKind::context_forward:
            return {{queries, values, keys, heads}};
        case OpKind::context_backward:
            return {{queries, keys, values, heads}, {keys, values, queries, heads}};
        default:
            return {};
    }
}

double matmul_efficiency(const topologies::DeviceProfile& device, const ProductShape& shape) {
    const double plateau = device.matmul_efficiency.value;
    if (device.compute_units <= 0 || device.tile_m <= 0 || device.tile_n <= 0) return plateau;
    if (shape.m <= 0 || shape.n <= 0 || shape.k <= 0 || shape.count <= 0) return plateau;
    double quantisation = with_tile(device, shape, device.tile_m, device.tile_n);
    if (shape.count > 1) quantisation = std::max(quantisation, with_tile(device, shape, device.tile_n, device.tile_m));
    const auto k = static_cast<double>(shape.k);
    return plateau * quantisation * (k / (k + kHalfRateReductionLength));
}

}  // namespace orrery::sim
