// The router, one warp per token: lane i holds the token's i-th choice.
#include <climits>
#include <cmath>

#include "kernels/cuda/experts.h"
#include "kernels/cuda/launch.cuh"

namespace orrery::kernels::cuda {
namespace {

constexpr int kTokensPerBlock = kThreads / kWarp;

__device__ int lane() {
    return static_cast<int>(threadIdx.x % kWarp);
}

__device__ std::int64_t token_of_warp() {
    return static_cast<std::int64_t>(blockIdx.x) * kTokensPerBlock + threadIdx.x / kWarp;
}

__device__ double logistic(double x) {
    return 1.0 / (1.0 + exp(-x));
}

/// An expert, or a group of them, and the key by which it is compared.
struct Candidate {
    float key;
    int index;
};

/// The highest key first, and the lowest index of equal ones.
__device__ bool is_before(const Candidate& a, const Candidate& b) {
    return a.key > b.key || (a.key == b.key && a.index < b.index);
}

/// The first after `last` of the candidates 0 … count - 1 that are open. NaN counts as the lowest key. Choices are not
/// marked: the next one is found by its place in the order.
template <typename KeyOf, typename IsOpen>
__device__ Candidate next_after(const Candidate& last, int count, const KeyOf& key_of, const IsOpen& is_open) {
    Candidate best{-INFINITY, INT_MAX};
    for (int i = lane(); i < count; i += kWarp) {
        if (!is_open(i)) continue;
        const float key = key_of(i);
        const Candidate one{isnan(key) ? -INFINITY : key, i};
        if (is_before(last, one) && is_before(one, best)) best = one;
    }
    for (int distance = kWarp / 2; distance > 0; distance /= 2) {
        const Candidate other{__shfl_xor_sync(kAllLanes, best.key, distance),
                              __shfl_xor_sync(kAllLanes, best.index, distance)};
        if (is_before(other, best)) best = other;
    }
    return best;
}

__device__ Candidate before_all() {
    return {INFINITY, -1};
}

/// The softmax of one token's logits.
struct Softmax {
    float top;
    double sum;
    __device__ double score(float logit) const { return exp(static_cast<double>(logit - top)) / sum; }
};
__device__ Softmax softmax_of(int experts, ConstFloats logits) {
    float top = -INFINITY;
    for (int i = lane(); i < experts; i += kWarp) top = fmaxf(top, get(logits, i));
    top = warp_max(top);
    double sum = 0;
    for (int i = lane(); i < experts; i += kWarp) sum += static_cast<double>(expf(get(logits, i) - top));
    return {top, warp_sum(sum)};
}

/// The keys of one token's experts: its logits, or corrected scores.
struct Keys {
    ConstFloats logits;
    const float* correction;
    bool sigmoid_scores;
    float top, sum;  // of a softmax
    __device__ Keys(const RouterShape& shape, ConstFloats of, const float* corrections)
        : logits(of), correction(corrections), sigmoid_scores(shape.sigmoid_scores), top(0), sum(1) {
        if (correction == nullptr || sigmoid_scores) return;
        const Softmax softmax = softmax_of(static_cast<int>(shape.experts), logits);
        top = softmax.top;
        sum = static_cast<float>(softmax.sum);
    }
    __device__ float operator()(int expert) const {
        const float logit = get(logits, expert);
        if (correction == nullptr) return logit;
        const float score = sigmoid_scores ? 1.0F / (1.0F + expf(-logit)) : expf(logit - top) / sum;
        return score + correction[expert];
    }
};

/// One bit for each group that the token may choose from.
__device__ unsigned long long open_groups(const RouterShape& shape, const Keys& keys) {
    const auto groups = static_cast<int>(shape.expert_groups);
    const int size = static_cast<int>(shape.experts) / groups;
    const auto score_of = [&](int group) {
        float first = -INFINITY, second = -INFINITY;
        for (int i = group * size; i < (group + 1) * size; ++i) {
            const float key = fmaxf(keys(i), -INFINITY);  // not a NaN
            second = fmaxf(second, fminf(first, key));
            first = fmaxf(first, key);
        }
        return keys.correction != nullptr && size > 1 ? first + second : first;
    };
    unsigned long long open = 0;
    Candidate last = before_all();
    for (int i = 0; i < shape.top_k_groups; ++i) {
        last = next_after(last, groups, score_of, [](int) { return true; });
        open |= 1ULL << last.index;
    }
    return open;
}

/// The expert of this lane's choice.
__device__ int choose(const RouterShape& shape, const Keys& keys) {
    const bool has_groups = shape.expert_groups > 0;
    const unsigned long long open = has_groups ? open_groups(shape, keys) : 0;
    const int size = has_groups ? static_cast<int>(shape.experts / shape.expert_groups) : 1;
    int mine = 0;
    Candidate last = before_all();
    for (int slot = 0; slot < shape.top_k; ++slot) {
        last = next_after(last, static_cast<int>(shape.experts), keys,
                          [&](int i) { return !has_groups || (open >> (i / size) & 1) != 0; });
        if (slot == lane()) mine = last.index;
    }
    return mine;
}

/// The score of this lane's choice, 0 in lanes without one. Scores that are normalised later may have a common factor.
__device__ double score_of_choice(const RouterShape& shape, ConstFloats logits, int expert, bool has_choice) {
    const float logit = has_choice ? get(logits, expert) : -INFINITY;
    double score = 0;
    if (shape.sigmoid_scores) {
        score = logistic(static_cast<double>(logit));
    } else if (shape.normalize_top_k) {
        // Relative to the highest chosen logit, because relative to the highest of all they could underflow.
        const Softmax softmax{warp_max(logit), 1.0};
        score = softmax.score(logit);
    } else {
        score = softmax_of(static_cast<int>(shape.experts), logits).score(logit);
    }
    return has_choice ? score : 0.0;
}

__device__ double factor_on(const RouterShape& shape, double score) {
    return shape.normalize_top_k ? shape.routed_scale / warp_sum(score) : shape.routed_scale;
}

__global__ void router_forward_kernel(RouterShape shape, ConstFloats logits, const float* correction,
                                      Floats probabilities, std::int32_t* experts) {
    const std::int64_t token = token_of_warp();
    if (token >= shape.tokens) return;
    const ConstFloats row = logits.from(token * shape.experts);
    const int expert = choose(shape, Keys(shape, row, correction));
    const bool has_choice = lane() < shape.top_k;
    const double score = score_of_choice(shape, row, expert, has_choice);
    const double factor = factor_on(shape, score);
    if (!has_choice) return;
    const std::int64_t choice = token * shape.top_k + lane();
    experts[choice] = expert;
    put(probabilities, choice, static_cast<float>(score * factor));
}

/// The gradient of the logit of this lane's choice. Writes those of a softmax's other logits.
__device__ double gradient_of_choice(const RouterShape& shape, ConstFloats logits, int expert, double score,
                                     double dscore, Floats dlogits) {
    if (shape.sigmoid_scores) return dscore * score * logistic(-static_cast<double>(get(logits, expert)));
    const Softmax softmax = softmax_of(static_cast<int>(shape.experts), logits);
    const double dot = warp_sum(score * dscore);
    const auto factor = static_cast<float>(-dot / softmax.sum);
    for (int i = lane(); i < shape.experts; i += kWarp) put(dlogits, i, expf(get(logits, i) - softmax.top) * factor);
    return score * (dscore - dot);
}

__global__ void router_backward_kernel(RouterShape shape, ConstFloats dprobabilities, ConstFloats probabilities,
                                       const std::int32_t* experts, ConstFloats logits, Floats dlogits) {
    const std::int64_t token = token_of_warp();
    if (token >= shape.tokens) return;
    const bool has_choice = lane() < shape.top_k;
    const std::int64_t choice = token * shape.top_k + lane();
    const int expert = has_choice ? experts[choice] : 0;
    const double dp = has_choice ? static_cast<double>(get(dprobabilities, choice)) : 0.0;
    const double p = has_choice ? static_cast<double>(get(probabilities, choice)) : 0.0;
    const Floats out = dlogits.from(token * shape.experts);
    for (int i = lane(); i < shape.experts; i += kWarp) put(out, i, 0.0F);
    // Normalisation cancels the mean of the gradients, weighted by the normalised scores.
    const double mean = shape.normalize_top_k ? warp_sum(dp * p / shape.routed_scale) : 0.0;
    double gradient = p * (dp - mean);
    if (shape.sigmoid_scores || !shape.normalize_top_k) {
        const ConstFloats row = logits.from(token * shape.experts);
        const double score = score_of_choice(shape, row, expert, has_choice);
        const double dscore = factor_on(shape, score) * (dp - mean);
        gradient = gradient_of_choice(shape, row, expert, score, dscore, out);
    }
    __syncwarp();  // the lanes of the choices write over what other lanes have written
    if (has_choice) put(out, expert, static_cast<float>(gradient));
}

void check_shape(const RouterShape& shape) {
    const std::int64_t groups = shape.expert_groups;
    ORRERY_CHECK(shape.top_k <= kMostChoices && groups <= kMostExpertGroups,
                 "a router on CUDA takes up to 32 experts per token and up to 64 groups");
    ORRERY_CHECK(groups == 0 || shape.experts % groups == 0, "the experts cannot be split into equal groups");
    const std::int64_t candidates = groups == 0 ? shape.experts : shape.experts / groups * shape.top_k_groups;
    ORRERY_CHECK(shape.top_k <= candidates && shape.top_k_groups <= groups, "top_k exceeds the number of candidates");
}

}  // namespace

void router_forward(StreamHandle stream, const RouterShape& shape, ConstFloats logits, const float* correction,
                    Floats probabilities, std::int32_t* experts) {
    check_shape(shape);
    launch(stream, blocks_for(shape.tokens, kTokensPerBlock), kThreads, "router_forward", router_forward_kernel, shape,
           logits, correction, probabilities, experts);
}

void router_backward(StreamHandle stream, const RouterShape& shape, ConstFloats dprobabilities,
                     ConstFloats probabilities, const std::int32_t* experts, ConstFloats logits, Floats dlogits) {
    check_shape(shape);
    ORRERY_CHECK(logits.present() || !shape.backward_needs_logits(), "the router's logits are missing");
    launch(stream, blocks_for(shape.tokens, kTokensPerBlock), kThreads, "router_backward", router_backward_kernel,
           shape, dprobabilities, probabilities, experts, logits, dlogits);
}

}  // namespace orrery::kernels::cuda
