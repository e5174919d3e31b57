// The router: selects each token's experts and their weights.
#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "core/error.h"
#include "kernels/cpu/vector.h"
#include "kernels/experts.h"
#include "kernels/kernels.h"

namespace orrery::kernels {
namespace {

double logistic(double x) {
    return 1.0 / (1.0 + std::exp(-x));
}

constexpr float kLowest = -std::numeric_limits<float>::infinity();
/// Marks values that cannot be chosen: NaN is neither greater than nor equal to any value.
constexpr float kClosed = std::numeric_limits<float>::quiet_NaN();

/// Writes the keys by which experts are compared. Without a correction these are the logits: both kinds of scores
/// increase with them, and logits have no additional ties from rounding. NaN counts as the lowest key, so that a
/// diverging run is reported by its loss and does not fail here.
ORRERY_VECTOR
void write_keys(const RouterShape& shape, const float* logits, const float* correction, float* keys) {
    const std::int64_t n = shape.experts;
    if (correction == nullptr) {
        for (std::int64_t i = 0; i < n; ++i) keys[i] = logits[i];
    } else if (shape.sigmoid_scores) {
        for (std::int64_t i = 0; i < n; ++i) keys[i] = 1.0F / (1.0F + fast_exp(-logits[i])) + correction[i];
    } else {
        const float top = lane_max(n, logits, kLowest);
        for (std::int64_t i = 0; i < n; ++i) keys[i] = fast_exp(logits[i] - top);
        const float sum = lane_sum<float>(n, [&](std::int64_t i) { return keys[i]; });
        for (std::int64_t i = 0; i < n; ++i) keys[i] = keys[i] / sum + correction[i];
    }
    for (std::int64_t i = 0; i < n; ++i) {
        if (std::isnan(keys[i])) keys[i] = kLowest;
    }
}

/// Returns the index of the largest value, the lowest index for ties, and marks the value as chosen.
ORRERY_VECTOR
std::int64_t take_largest(std::int64_t n, float* values) {
    const float top = lane_max(n, values, kLowest);
    std::int64_t i = 0;
    for (; i + kLanes <= n; i += kLanes) {
        int equal = 0;
        for (int lane = 0; lane < kLanes; ++lane) equal += values[i + lane] == top ? 1 : 0;
        if (equal > 0) break;
    }
    while (i < n && values[i] != top) ++i;
    ORRERY_CHECK(i < n, "top_k exceeds the number of candidates");
    values[i] = kClosed;
    return i;
}

/// Chooses the experts of one token at a time, with buffers that are allocated once.
class Chooser {
  public:
    Chooser(const RouterShape& shape, const float* correction)
        : shape_(shape),
          correction_(correction),
          keys_(static_cast<std::size_t>(shape.experts)),
          group_scores_(static_cast<std::size_t>(shape.expert_groups)) {
        ORRERY_CHECK(shape.expert_groups == 0 || shape.experts % shape.expert_groups == 0,
                     "the experts cannot be split into equal groups");
    }
    void choose(const float* logits, std::int32_t* experts) {
        write_keys(shape_, logits, correction_, keys_.data());
        if (shape_.expert_groups > 0) close_groups();
        for (std::int64_t slot = 0; slot < shape_.top_k; ++slot) {
            experts[slot] = static_cast<std::int32_t>(take_largest(shape_.experts, keys_.data()));
        }
    }

  private:
    void close_groups() {
        const std::int64_t size = shape_.experts / shape_.expert_groups;
        for (std::size_t group = 0; group < group_scores_.size(); ++group) {
            group_scores_[group] = group_score(size, keys_.data() + static_cast<std::int64_t>(group) * size);
        }
        for (std::int64_t i = 0; i < shape_.top_k_groups; ++i) {
            (void)take_largest(shape_.expert_groups, group_scores_.data());
        }
        for (std::size_t group = 0; group < group_scores_.size(); ++group) {
            if (std::isnan(group_scores_[group])) continue;  // chosen
            fill(size, kClosed, keys_.data() + static_cast<std::int64_t>(group) * size);
        }
    }
    [[nodiscard]] float group_score(std::int64_t size, const float* keys) const {
        float first = keys[0], second = kLowest;
        for (std::int64_t i = 1; i < size; ++i) {
            second = std::max(second, std::min(first, keys[i]));
            first = std::max(first, keys[i]);
        }
        return correction_ != nullptr && size > 1 ? first + second : first;
    }

    const RouterShape& shape_;
    const float* correction_;
    std::vector<float> keys_;
    std::vector<float> group_scores_;
};

/// The softmax of one token's logits: their maximum, and the sum of exp(logit - maximum).
struct Softmax {
    float top = kLowest;
    double sum = 0.0;
    [[nodiscard]] double score(float logit) const { return std::exp(static_cast<double>(logit - top)) / sum; }
};
ORRERY_VECTOR
Softmax softmax_of(std::int64_t n, const float* logits) {
    Softmax result;
    result.top = lane_max(n, logits, result.top);
    result.sum =
        lane_sum<double>(n, [&](std::int64_t i) { return static_cast<double>(fast_exp(logits[i] - result.top)); });
    return result;
}

/// The scores of the chosen experts. If they are normalised later, they may have a common factor.
void write_scores(const RouterShape& shape, const float* logits, const std::int32_t* experts, double* scores) {
    if (shape.sigmoid_scores) {
        for (std::int64_t i = 0; i < shape.top_k; ++i) scores[i] = logistic(static_cast<double>(logits[experts[i]]));
    } else if (shape.normalize_top_k) {
        // Relative to the highest chosen logit, because relative to the highest of all they could underflow.
        Softmax softmax{.sum = 1.0};
        for (std::int64_t i = 0; i < shape.top_k; ++i) softmax.top = std::max(softmax.top, logits[experts[i]]);
        for (std::int64_t i = 0; i < shape.top_k; ++i) scores[i] = softmax.score(logits[experts[i]]);
    } else {
        const Softmax softmax = softmax_of(shape.experts, logits);
        for (std::int64_t i = 0; i < shape.top_k; ++i) scores[i] = softmax.score(logits[experts[i]]);
    }
}

double sum_of(const std::vector<double>& values) {
    double sum = 0.0;
    for (const double value : values) sum += value;
    return sum;
}

/// dlogits of a softmax over all experts, from the gradients of the chosen scores.
ORRERY_VECTOR
void softmax_backward(const RouterShape& shape, const float* logits, const std::int32_t* experts,
                      const std::vector<double>& scores, const std::vector<double>& dscores, float* dlogits) {
    const Softmax softmax = softmax_of(shape.experts, logits);
    double dot = 0.0;
    for (std::size_t i = 0; i < scores.size(); ++i) dot += scores[i] * dscores[i];
    const float top = softmax.top;
    const float factor = static_cast<float>(-dot / softmax.sum);
    for (std::int64_t i = 0; i < shape.experts; ++i) dlogits[i] = fast_exp(logits[i] - top) * factor;
    for (std::size_t i = 0; i < scores.size(); ++i) {
        dlogits[experts[i]] = static_cast<float>(scores[i] * (dscores[i] - dot));
    }
}

}  // namespace

void router_forward(const RouterShape& shape, const float* logits, const float* correction, float* probabilities,
                    std::int32_t* experts) {
    Chooser chooser(shape, correction);
    std::vector<double> scores(static_cast<std::size_t>(shape.top_k));
    for (std::int64_t token = 0; token < shape.tokens; ++token) {
        const float* row = logits + token * shape.experts;
        std::int32_t* chosen = experts + token * shape.top_k;
        chooser.choose(row, chosen);
        write_scores(shape, row, chosen, scores.data());
        const double factor = shape.normalize_top_k ? shape.routed_scale / sum_of(scores) : shape.routed_scale;
        float* out = probabilities + token * shape.top_k;
        for (std::size_t i = 0; i < scores.size(); ++i) out[i] = static_cast<float>(scores[i] * factor);
    }
}

void router_backward(const RouterShape& shape, const float* dprobabilities, const float* probabilities,
                     const std::int32_t* experts, const float* logits, float* dlogits) {
    ORRERY_CHECK(logits != nullptr || !shape.backward_needs_logits(), "the router's logits are missing");
    std::vector<double> scores(static_cast<std::size_t>(shape.top_k)), dscores(scores.size());
    for (std::int64_t token = 0; token < shape.tokens; ++token) {
        const float* dp = dprobabilities + token * shape.top_k;
        const float* p = probabilities + token * shape.top_k;
        const std::int32_t* chosen = experts + token * shape.top_k;
        const float* row = logits != nullptr ? logits + token * shape.experts : nullptr;
        float* out = dlogits + token * shape.experts;
        fill(shape.experts, 0.0F, out);
        // Normalisation cancels the mean of the gradients, weighted by the normalised scores.
        double mean = 0.0;
        if (shape.normalize_top_k) {
            for (std::int64_t i = 0; i < shape.top_k; ++i) {
                mean += static_cast<double>(dp[i]) * static_cast<double>(p[i]) / shape.routed_scale;
            }
        }
        if (!shape.backward_needs_logits()) {
            for (std::int64_t i = 0; i < shape.top_k; ++i) {
                out[chosen[i]] = static_cast<float>(static_cast<double>(p[i]) * (static_cast<double>(dp[i]) - mean));
            }
            continue;
        }
        write_scores(shape, row, chosen, scores.data());
        const double factor = shape.normalize_top_k ? shape.routed_scale / sum_of(scores) : shape.routed_scale;
        for (std::size_t i = 0; i < scores.size(); ++i) dscores[i] = factor * (static_cast<double>(dp[i]) - mean);
        if (!shape.sigmoid_scores) {
            softmax_backward(shape, row, chosen, scores, dscores, out);
            continue;
        }
        for (std::size_t i = 0; i < scores.size(); ++i) {
            const double slope = scores[i] * logistic(-static_cast<double>(row[chosen[i]]));
            out[chosen[i]] = static_cast<float>(dscores[i] * slope);
        }
    }
}

}  // namespace orrery::kernels
