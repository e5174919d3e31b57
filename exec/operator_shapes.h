// The kernel shapes of each operator, the same for every backend.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

#include "exec/operator_call.h"
#include "kernels/kernels.h"
#include "models/operator.h"

namespace orrery::exec {

[[nodiscard]] kernels::LinearShape linear_shape(const models::Operator& op);
/// Throws BugError if the rows of input and output differ, or are too narrow.
[[nodiscard]] kernels::NormShape norm_shape(const models::Operator& op, const OperatorPointers& at);
[[nodiscard]] kernels::HeadShape head_shape(const models::Operator& op);
[[nodiscard]] kernels::EmbeddingShape embedding_shape(const models::Operator& op, const OperatorContext& context);
[[nodiscard]] kernels::VocabShard vocab_shard(const models::Operator& op, const OperatorContext& context);

[[nodiscard]] kernels::LatentHeads latent_heads(const models::Operator& op, const models::LatentAttention& latent);
/// The sections of whole rows around the all-to-all of Ulysses: q, k and v, or o alone.
[[nodiscard]] std::vector<std::int64_t> head_sections(const models::Operator& op, const OperatorContext& context);
[[nodiscard]] kernels::RouterShape router_shape(const models::Operator& op, const models::ModelSpec& model);
[[nodiscard]] kernels::PermuteShape permute_shape(const models::Operator& op, const models::ModelSpec& model);
/// Throws BugError if the rows of a GEMM's operands are narrower than the columns that it reads or writes.
void check_columns(const models::Operator& op, const OperatorPointers& at);

[[nodiscard]] kernels::RotaryFrequencies rotary_frequencies(const models::ModelSpec& model);

/// For operators with overwrites_gradients: calls `visit` with the position and size of each gradient output, which
/// must be zeroed before the operator adds to it. Throws BugError for a kind without gradients.
void for_each_overwritten(const models::Operator& op,
                          const std::function<void(std::size_t out, std::int64_t elements)>& visit);

}  // namespace orrery::exec
