// Mixture of experts: the router, the order of rows by expert, and products with a weight for each expert.
#pragma once

#include <cstdint>

namespace orrery::kernels {

// ---- router ---------------------------------------------------------------------------------------------------------

/// How tokens choose. Scores are the softmax over all experts, or the sigmoid of each logit. A token takes the top_k
/// highest scores; equal ones by the lower index.
struct RouterShape {
    std::int64_t tokens = 0;   // T
    std::int64_t experts = 0;  // E
    std::int64_t top_k = 0;    // K
    bool sigmoid_scores = false;
    bool normalize_top_k = true;     // scores of the chosen are divided by their sum
    double routed_scale = 1.0;       // factor of the result
    std::int64_t expert_groups = 0;  // equal groups of neighbouring experts; 0: a token may choose from all
    std::int64_t top_k_groups = 0;   // groups that a token may choose from
    /// What router_backward has to be given the logits for: all but the softmax over the chosen alone.
    [[nodiscard]] bool backward_needs_logits() const { return sigmoid_scores || !normalize_top_k; }
};
/// logits[T,E] -> probabilities[T,K], experts[T,K], the highest score first. The softmax over all experts, normalised
/// over the chosen, is the softmax over the chosen (Mixtral). `correction`[E] or null is added to the scores for the
/// choice alone (DeepSeek-V3, arXiv 2412.19437). Groups are chosen by the sum of their two highest corrected scores
/// when there is a correction, by their highest score otherwise (DeepSeek-V2, arXiv 2405.04434).
void router_forward(const RouterShape& shape, const float* logits, const float* correction, float* probabilities,
                    std::int32_t* experts);
/// dprobabilities[T,K], probabilities[T,K], experts[T,K], logits[T,E] (null unless backward_needs_logits) ->
/// dlogits[T,E], overwritten. The choice itself has no gradient.
void router_backward(const RouterShape& shape, const float* dprobabilities, const float* probabilities,
                     const std::int32_t* experts, const float* logits, float* dlogits);

// ---- rows by expert -------------------------------------------------------------------------------------------------

/// counts[E] = how many of the choices name each expert.
void count_experts(std::int64_t choices, std::int64_t experts, const std::int32_t* chosen, std::int64_t* counts);
/// rows[i] = where choice i (= token * K + slot) stands when choices are ordered by expert, equal ones by i. `counts`
/// as count_experts leaves them.
void expert_rows(std::int64_t choices, std::int64_t experts, const std::int32_t* chosen, const std::int64_t* counts,
                 std::int32_t* rows);

/// Tokens and their rows in expert order: one for each of the top_k choices, R = tokens * top_k.
struct PermuteShape {
    std::int64_t tokens = 0;  // T
    std::int64_t top_k = 0;   // K
    std::int64_t width = 0;   // k
};
/// x[T,k], rows[T,K] -> y[R,k], y[rows[t,s]] = x[t].
void permute_forward(const PermuteShape& shape, const float* x, const std::int32_t* rows, float* y);
/// dy[R,k], rows -> dx[T,k] = the sum over a token's rows, in the order of its choices.
void permute_backward(const PermuteShape& shape, const float* dy, const std::int32_t* rows, float* dx);
/// y[R,k], probabilities[T,K], rows -> out[T,k] = sum over s of probabilities[t,s] * y[rows[t,s]].
void combine_forward(const PermuteShape& shape, const float* y, const float* probabilities, const std::int32_t* rows,
                     float* out);
/// dout[T,k], y[R,k], probabilities, rows -> dy[R,k], dprobabilities[T,K]; dy may be y.
void combine_backward(const PermuteShape& shape, const float* dout, const float* y, const float* probabilities,
                      const std::int32_t* rows, float* dy, float* dprobabilities);

/// Rows that arrived from several ranks for the experts of this one: counts[sources, experts].
struct ReceivedRows {
    std::int64_t sources = 0;
    std::int64_t experts = 0;  // local ones
    std::int64_t width = 0;
    const std::int64_t* counts = nullptr;
};
/// x, grouped by source and then by expert -> y, grouped by expert and then by source.
void group_by_expert(const ReceivedRows& shape, const float* x, float* y);
/// And back.
void group_by_source(const ReceivedRows& shape, const float* x, float* y);

// ---- products -------------------------------------------------------------------------------------------------------

/// Rows in the order of their experts, counts[g] of expert g (some may be 0), in all R.
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
