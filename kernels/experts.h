// Mixture of experts: the router, the permutation of rows by expert, and GEMMs with a weight per expert.
#pragma once

#include <cstdint>

namespace orrery::kernels {

// ---- router ---------------------------------------------------------------------------------------------------------

/// The routing rule. Scores are the softmax over all experts, or the sigmoid of each logit. A token chooses the top_k
/// experts with the highest scores; ties go to the lower index.
struct RouterShape {
    std::int64_t tokens = 0;   // T
    std::int64_t experts = 0;  // E
    std::int64_t top_k = 0;    // K
    bool sigmoid_scores = false;
    bool normalize_top_k = true;     // divide the scores of the chosen experts by their sum
    double routed_scale = 1.0;       // factor on the result
    std::int64_t expert_groups = 0;  // number of equal groups of consecutive experts; 0: no groups
    std::int64_t top_k_groups = 0;   // number of groups that a token may choose from
    /// Whether router_backward() needs the logits: for all scores except a softmax normalised over the chosen experts.
    [[nodiscard]] bool backward_needs_logits() const { return sigmoid_scores || !normalize_top_k; }
};
/// logits[T,E] -> probabilities[T,K], experts[T,K], the highest score first. The softmax over all experts, normalised
/// over the chosen ones, equals the softmax over the chosen ones (Mixtral). `correction`[E] or null is added to the
/// scores for the choice only (DeepSeek-V3, arXiv 2412.19437). Groups are chosen by the sum of their two highest
/// corrected scores if there is a correction, otherwise by their highest score (DeepSeek-V2, arXiv 2405.04434).
void router_forward(const RouterShape& shape, const float* logits, const float* correction, float* probabilities,
                    std::int32_t* experts);
/// dprobabilities[T,K], probabilities[T,K], experts[T,K], logits[T,E] (null unless backward_needs_logits) ->
/// dlogits[T,E], overwritten. The choice itself has no gradient.
void router_backward(const RouterShape& shape, const float* dprobabilities, const float* probabilities,
                     const std::int32_t* experts, const float* logits, float* dlogits);

// ---- rows by expert -------------------------------------------------------------------------------------------------

/// counts[E] = number of choices of each expert.
void count_experts(std::int64_t choices, std::int64_t experts, const std::int32_t* chosen, std::int64_t* counts);
/// rows[i] = index of choice i (= token * K + slot) after a stable sort of the choices by expert. `counts` are those of
/// count_experts().
void expert_rows(std::int64_t choices, std::int64_t experts, const std::int32_t* chosen, const std::int64_t* counts,
                 std::int32_t* rows);

/// Tokens, and their R = tokens * top_k rows in expert order, one for each choice.
struct PermuteShape {
    std::int64_t tokens = 0;  // T
    std::int64_t top_k = 0;   // K
    std::int64_t width = 0;   // k
};
/// x[T,k], rows[T,K] -> y[R,k], y[rows[t,s]] = x[t].
void permute_forward(const PermuteShape& shape, const float* x, const std::int32_t* rows, float* y);
/// dy[R,k], rows -> dx[T,k] = sum over the token's rows, in the order of its choices.
void permute_backward(const PermuteShape& shape, const float* dy, const std::int32_t* rows, float* dx);
/// y[R,k], probabilities[T,K], rows -> out[T,k] = sum over s of probabilities[t,s] * y[rows[t,s]].
void combine_forward(const PermuteShape& shape, const float* y, const float* probabilities, const std::int32_t* rows,
                     float* out);
/// dout[T,k], y[R,k], probabilities, rows -> dy[R,k], dprobabilities[T,K]; dy may be y.
void combine_backward(const PermuteShape& shape, const float* dout, const float* y, const float* probabilities,
                      const std::int32_t* rows, float* dy, float* dprobabilities);

/// Rows received from several ranks for this rank's experts: counts[sources, experts].
struct ReceivedRows {
    std::int64_t sources = 0;
    std::int64_t experts = 0;  // local experts
    std::int64_t width = 0;
    const std::int64_t* counts = nullptr;
};
/// x, grouped by source and then by expert -> y, grouped by expert and then by source.
void group_by_expert(const ReceivedRows& shape, const float* x, float* y);
/// The inverse of group_by_expert().
void group_by_source(const ReceivedRows& shape, const float* x, float* y);

// ---- GEMMs per expert -----------------------------------------------------------------------------------------------

/// R rows in the order of their experts: counts[g] rows of expert g, possibly 0.
struct ExpertLinearShape {
    std::int64_t groups = 0;  // G
    std::int64_t n = 0;       // output width
    std::int64_t k = 0;       // input width
    const std::int64_t* counts = nullptr;
};
/// x[R,k], weight[G,n,k] -> y[R,n] = x weight[g]^T.
void expert_linear_forward(const ExpertLinearShape& shape, const float* x, const float* weight, float* y);
/// dy[R,n], weight[G,n,k] -> dx[R,k].
void expert_linear_backward_input(const ExpertLinearShape& shape, const float* dy, const float* weight, float* dx);
/// dy[R,n], x[R,k] -> dweight[G,n,k] +=.
void expert_linear_backward_weight(const ExpertLinearShape& shape, const float* dy, const float* x, float* dweight);

}  // namespace orrery::kernels
