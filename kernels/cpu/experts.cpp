// Permutation of rows by expert, and a GEMM per expert.
#include "kernels/experts.h"

#include <limits>
#include <vector>

#include "core/error.h"
#include "kernels/cpu/vector.h"
#include "kernels/kernels.h"

namespace orrery::kernels {
namespace {

/// Calls move(offset in source order, offset in expert order, elements) for the rows of each source and expert.
template <typename Move>
void for_each_received(const ReceivedRows& shape, const Move& move) {
    std::vector<std::int64_t> by_expert(static_cast<std::size_t>(shape.experts));  // next row in expert order
    std::int64_t first = 0;
    for (std::int64_t expert = 0; expert < shape.experts; ++expert) {
        by_expert[static_cast<std::size_t>(expert)] = first;
        for (std::int64_t source = 0; source < shape.sources; ++source) {
            first += shape.counts[source * shape.experts + expert];
        }
    }
    std::int64_t by_source = 0;
    for (std::int64_t i = 0; i < shape.sources * shape.experts; ++i) {
        std::int64_t& target = by_expert[static_cast<std::size_t>(i % shape.experts)];
        move(by_source * shape.width, target * shape.width, shape.counts[i] * shape.width);
        by_source += shape.counts[i];
        target += shape.counts[i];
    }
}

/// Calls product(shape of the expert's GEMM, first row, offset of its weight) for every expert that has rows.
template <typename Product>
void for_each_expert(const ExpertLinearShape& shape, const Product& product) {
    std::int64_t row = 0;
    for (std::int64_t group = 0; group < shape.groups; ++group) {
        const std::int64_t rows = shape.counts[group];
        if (rows > 0) product(LinearShape{rows, shape.n, shape.k}, row, group * shape.n * shape.k);
        row += rows;
    }
}

}  // namespace

void count_experts(std::int64_t choices, std::int64_t experts, const std::int32_t* chosen, std::int64_t* counts) {
    for (std::int64_t expert = 0; expert < experts; ++expert) counts[expert] = 0;
    for (std::int64_t i = 0; i < choices; ++i) ++counts[chosen[i]];
}

void expert_rows(std::int64_t choices, std::int64_t experts, const std::int32_t* chosen, const std::int64_t* counts,
                 std::int32_t* rows) {
    ORRERY_CHECK(choices <= std::numeric_limits<std::int32_t>::max(), "too many rows for 32-bit indices");
    std::vector<std::int32_t> next(static_cast<std::size_t>(experts));
    std::int64_t first = 0;
    for (std::size_t expert = 0; expert < next.size(); ++expert) {
        next[expert] = static_cast<std::int32_t>(first);
        first += counts[expert];
    }
    for (std::int64_t i = 0; i < choices; ++i) rows[i] = next[static_cast<std::size_t>(chosen[i])]++;
}

void permute_forward(const PermuteShape& shape, const float* x, const std::int32_t* rows, float* y) {
    for (std::int64_t choice = 0; choice < shape.tokens * shape.top_k; ++choice) {
        copy(shape.width, x + choice / shape.top_k * shape.width, y + rows[choice] * shape.width);
    }
}

void permute_backward(const PermuteShape& shape, const float* dy, const std::int32_t* rows, float* dx) {
    for (std::int64_t token = 0; token < shape.tokens; ++token) {
        float* out = dx + token * shape.width;
        const std::int32_t* from = rows + token * shape.top_k;
        copy(shape.width, dy + from[0] * shape.width, out);
        for (std::int64_t slot = 1; slot < shape.top_k; ++slot) add(shape.width, dy + from[slot] * shape.width, out);
    }
}

ORRERY_VECTOR
void combine_forward(const PermuteShape& shape, const float* y, const float* probabilities, const std::int32_t* rows,
                     float* out) {
    for (std::int64_t token = 0; token < shape.tokens; ++token) {
        float* sum = out + token * shape.width;
        for (std::int64_t slot = 0; slot < shape.top_k; ++slot) {
            const float weight = probabilities[token * shape.top_k + slot];
            const float* row = y + rows[token * shape.top_k + slot] * shape.width;
            if (slot == 0) {
                for (std::int64_t i = 0; i < shape.width; ++i) sum[i] = weight * row[i];
            } else {
                for (std::int64_t i = 0; i < shape.width; ++i) sum[i] += weight * row[i];
            }
        }
    }
}

ORRERY_VECTOR
void combine_backward(const PermuteShape& shape, const float* dout, const float* y, const float* probabilities,
                      const std::int32_t* rows, float* dy, float* dprobabilities) {
    for (std::int64_t token = 0; token < shape.tokens; ++token) {
        const float* gradient = dout + token * shape.width;
        for (std::int64_t slot = 0; slot < shape.top_k; ++slot) {
            const std::int64_t choice = token * shape.top_k + slot;
            const float* row = y + rows[choice] * shape.width;
            float* drow = dy + rows[choice] * shape.width;
            const float weight = probabilities[choice];
            // Computed first, because dy may overwrite y.
            dprobabilities[choice] = static_cast<float>(lane_sum<double>(shape.width, [&](std::int64_t i) {
                return static_cast<double>(gradient[i]) * static_cast<double>(row[i]);
            }));
            ORRERY_INDEPENDENT
            for (std::int64_t i = 0; i < shape.width; ++i) drow[i] = weight * gradient[i];
        }
    }
}

void group_by_expert(const ReceivedRows& shape, const float* x, float* y) {
    for_each_received(shape, [&](std::int64_t by_source, std::int64_t by_expert, std::int64_t elements) {
        copy(elements, x + by_source, y + by_expert);
    });
}

void group_by_source(const ReceivedRows& shape, const float* x, float* y) {
    for_each_received(shape, [&](std::int64_t by_source, std::int64_t by_expert, std::int64_t elements) {
        copy(elements, x + by_expert, y + by_source);
    });
}

void expert_linear_forward(const ExpertLinearShape& shape, const float* x, const float* weight, float* y) {
    for_each_expert(shape, [&](const LinearShape& one, std::int64_t row, std::int64_t first_weight) {
        linear_forward(one, {x + row * shape.k, shape.k}, weight + first_weight, nullptr, {y + row * shape.n, shape.n});
    });
}

void expert_linear_backward_input(const ExpertLinearShape& shape, const float* dy, const float* weight, float* dx) {
    for_each_expert(shape, [&](const LinearShape& one, std::int64_t row, std::int64_t first_weight) {
        linear_backward_input(one, {dy + row * shape.n, shape.n}, weight + first_weight, {dx + row * shape.k, shape.k});
    });
}

void expert_linear_backward_weight(const ExpertLinearShape& shape, const float* dy, const float* x, float* dweight) {
    for_each_expert(shape, [&](const LinearShape& one, std::int64_t row, std::int64_t first_weight) {
        linear_backward_weight(one, {dy + row * shape.n, shape.n}, {x + row * shape.k, shape.k}, dweight + first_weight,
                               nullptr);
    });
}

}  // namespace orrery::kernels
