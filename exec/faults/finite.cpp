#include "exec/faults/finite.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <string>
#include <vector>

#include "core/error.h"
#include "core/float16.h"

namespace orrery::exec {
namespace {

/// The parameters in flat order, so that the first bad element found is the first in the buffers.
std::vector<program::Parameter> in_flat_order(const program::RankClass& rank_class) {
    std::vector<program::Parameter> parameters = rank_class.parameters;
    std::sort(parameters.begin(), parameters.end(),
              [](const program::Parameter& a, const program::Parameter& b) { return a.offset < b.offset; });
    return parameters;
}

/// An element of a parameter or gradient buffer, as float.
float value_at(const std::byte* values, DType dtype, std::int64_t index) {
    std::uint16_t half = 0;
    float whole = 0;
    switch (dtype) {
        case DType::fp32:
            std::memcpy(&whole, values + index * size_of(dtype), sizeof whole);
            return whole;
        case DType::bf16:
        case DType::fp16:
            std::memcpy(&half, values + index * size_of(dtype), sizeof half);
            return dtype == DType::bf16 ? from_bf16(half) : from_fp16(half);
        default:
            throw_bug(__FILE__, __LINE__, "dtype", "parameters of type " + std::string(name_of(dtype)));
    }
}

/// ": element 17 of layers.3.mlp.up.weight is nan" for the first element that is not finite, ", though all …" if all
/// are finite. `at` returns the address of a part.
template <typename At>
std::string blame(const program::RankClass& rank_class, const Shards& shards, const char* what, DType dtype,
                  const At& at) {
    std::string found;
    for (const program::Parameter& parameter : in_flat_order(rank_class)) {
        for (const ShardPiece& part : shards.parts_of(parameter)) {
            const std::byte* const values = at(part);
            for (std::int64_t i = 0; i < part.elements && found.empty(); ++i) {
                const float value = value_at(values, dtype, i);
                if (std::isfinite(value)) continue;
                found = ": element " + std::to_string(part.flat - parameter.offset + i) + " of " + parameter.name +
                        " is " + (std::isnan(value) ? "nan" : "infinite");
            }
        }
        if (!found.empty()) return found;
    }
    return std::string(", though all ") + what + " that this rank updates are finite";
}

}  // namespace

void check_loss(double loss_sum, std::int64_t step, const program::RankClass& rank_class, const Arena& arena,
                const Shards& shards) {
    if (std::isfinite(loss_sum)) [[likely]]
        return;
    throw JobError("the loss of step " + std::to_string(step) + " is not finite" +
                   blame(rank_class, shards, "parameters", arena.resting_dtype(),
                         [&](const ShardPiece& part) { return arena.parameters_at_rest(part); }));
}

void check_gradient_norm(double sum_of_squares, DType dtype, std::int64_t step, const program::RankClass& rank_class,
                         const Arena& arena, const Shards& shards) {
    if (std::isfinite(sum_of_squares)) [[likely]]
        return;
    throw JobError("the gradient norm of step " + std::to_string(step) + " is not finite" +
                   blame(rank_class, shards, "gradients", dtype,
                         [&](const ShardPiece& part) { return arena.gradients_at_rest(part, size_of(dtype)); }));
}

}  // namespace orrery::exec
