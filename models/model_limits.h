// Within what the numbers of a model lie: far above any model, and low enough that no count of parameters, bytes or
// FLOPs can overflow. The readers of files hold to it, and check_model does for models that are made otherwise.
#pragma once

#include "core/json_reader.h"

namespace orrery::models {

inline constexpr IntegerRange kLayerLimits{1, 1 << 14};
inline constexpr IntegerRange kHiddenLimits{1, 1 << 18};
inline constexpr IntegerRange kHeadLimits{1, 1 << 12};  // heads, and dimensions of one
inline constexpr IntegerRange kFfnHiddenLimits{1, 1 << 20};
inline constexpr IntegerRange kSharedFfnHiddenLimits{0, 1 << 20};
inline constexpr IntegerRange kVocabLimits{2, 1 << 24};
inline constexpr IntegerRange kPositionLimits{1, 1 << 30};
inline constexpr IntegerRange kWindowLimits{0, 1 << 30};
inline constexpr IntegerRange kExpertLimits{0, 1 << 12};  // experts, groups of them, those of a token
/// Of one expert; all of a layer together have at most as many.
inline constexpr IntegerRange kExpertFfnHiddenLimits{1, 1 << 24};
inline constexpr IntegerRange kRankLimits{0, 1 << 16};      // of latent attention
inline constexpr IntegerRange kExtraRowLimits{0, 1 << 16};  // of embeddings beside the tokens'
inline constexpr NumberRange kFactorLimits{0, 1e6, true, true};
inline constexpr NumberRange kScaleLimits{0, 1e6, false, true};
inline constexpr NumberRange kThetaLimits{0, 1e15, true, true};
inline constexpr NumberRange kRotaryFractionLimits{0, 1, true};
inline constexpr NumberRange kNormEpsilonLimits{0, 1, true, true};

}  // namespace orrery::models
