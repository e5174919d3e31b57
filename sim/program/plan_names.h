// Names of the values of a plan's enums, both ways, for what lists or reads all of them.
#pragma once

#include <string>
#include <vector>

#include "core/enum_names.h"
#include "sim/program/plan.h"

namespace orrery {

template <>
inline constexpr int kValuesOf<program::Schedule> = program::kScheduleCount;
template <>
inline constexpr int kValuesOf<program::DataParallel> = program::kDataParallelRows.size();
template <>
inline constexpr int kValuesOf<program::VocabularyParallel> =
    static_cast<int>(program::VocabularyParallel::interlaced) + 1;
template <>
inline constexpr int kValuesOf<program::MeshAxis> = static_cast<int>(program::kMeshAxes);
template <>
inline constexpr int kValuesOf<program::OptimizerKind> = static_cast<int>(program::OptimizerKind::sgd_momentum) + 1;
template <>
inline constexpr int kValuesOf<program::Recompute> = static_cast<int>(program::Recompute::full) + 1;
template <>
inline constexpr int kValuesOf<program::ContextParallel> = static_cast<int>(program::ContextParallel::ulysses) + 1;
template <>
inline constexpr int kValuesOf<models::Fp8Scaling> = static_cast<int>(models::Fp8Scaling::mxfp4) + 1;
template <>
inline constexpr int kValuesOf<models::BlockPart> = models::kBlockParts;

}  // namespace orrery

namespace orrery::program {

inline constexpr const char* kMeshOrderRule = "tp, cp, ep, dp and pp, each once, such as \"tp,cp,ep,dp,pp\"";

/// Throws InputError unless the ranks are few enough that no later product overflows. Every degree is at least 1.
void check_rank_count(const Parallelism& parallelism, const std::string& source);
/// "dp 2 * tp 2 * pp 2 = 8"; cp is named when it is above 1.
[[nodiscard]] std::string degrees_text(const Parallelism& parallelism);

/// The parts of a block that selective recomputation can name: all but the residual sums.
[[nodiscard]] std::vector<std::string> recomputable_parts();

}  // namespace orrery::program
