// Limits on the numbers of a model: far above any real model, and low enough that no count of parameters, bytes or
// FLOPs can overflow. Enforced by the readers of files, and by check_model for other models.
#pragma once

#include "core/json_reader.h"

namespace orrery::models {

inline constexpr IntegerRange kLayerLimits{1, 1 << 14};
inline constexpr IntegerRange kHiddenLimits{1, 1 << 18};
inline constexpr IntegerRange kHeadLimits{1, 1 << 12};  // number of heads, and head dimensions
inline constexpr IntegerRange kFfnHiddenLimits{1, 1 << 20};
inline constexpr IntegerRange kSharedFfnHiddenLimits{0, 1 << 20};
inline constexpr IntegerRange kVocabLimits{2, 1 << 24};
inline constexpr IntegerRange kPositionLimits{1, 1 << 30};
inline constexpr IntegerRange kWindowLimits{0, 1 << 30};
inline constexpr IntegerRange kExpertLimits{0, 1 << 12};  // number of experts, of groups, and of experts a token
/// For one expert; the same limit applies to the sum over all experts of a layer.
inline constexpr IntegerRange kExpertFfnHiddenLimits{1, 1 << 24};
inline constexpr IntegerRange kRankLimits{0, 1 << 16};      // ranks of latent attention
inline constexpr IntegerRange kExtraRowLimits{0, 1 << 16};  // rows of embedding tables other than the tokens'
inline constexpr IntegerRange kPredictionLayerLimits{0, 1 << 6};
inline constexpr NumberRange kFactorLimits{0, 1e6, true, true};
inline constexpr NumberRange kScaleLimits{0, 1e6, false, true};
inline constexpr NumberRange kThetaLimits{0, 1e15, true, true};
inline constexpr NumberRange kRotaryFractionLimits{0, 1, true};
inline constexpr NumberRange kNormEpsilonLimits{0, 1, true, true};

}  // namespace orrery::models
