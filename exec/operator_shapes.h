// The shapes that kernels are called with, by operator: the same wherever the kernels run.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>

#include "exec/operator_call.h"
#include "kernels/kernels.h"
#include "models/operator.h"

namespace orrery::exec {

[[nodiscard]] kernels::LinearShape linear_shape(const models::Operator& op);
[[nodiscard]] kernels::NormShape norm_shape(const models::Operator& op);
[[nodiscard]] kernels::HeadShape head_shape(const models::Operator& op);
[[nodiscard]] kernels::EmbeddingShape embedding_shape(const models::Operator& op, const OperatorContext& context);
[[nodiscard]] kernels::VocabShard vocab_shard(const models::Operator& op, const OperatorContext& context);

[[nodiscard]] kernels::RotaryFrequencies rotary_frequencies(const models::ModelSpec& model);

/// For operators with overwrites_gradients: visits the outputs that are to be zero before the operator adds to them,
/// by position and with their elements. Throws BugError for a kind without gradients.
void for_each_overwritten(const models::Operator& op,
                          const std::function<void(std::size_t out, std::int64_t elements)>& visit);

}  // namespace orrery::exec
