// Private to plans: conversion between enum values and their names.
#pragma once

#include <array>
#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/error.h"
#include "sim/program/plan.h"

namespace orrery::program {

template <typename Enum>
inline constexpr int kValuesOf = 0;
template <>
inline constexpr int kValuesOf<Schedule> = kScheduleCount;
template <>
inline constexpr int kValuesOf<DataParallel> = static_cast<int>(DataParallel::zero3) + 1;
template <>
inline constexpr int kValuesOf<VocabularyParallel> = static_cast<int>(VocabularyParallel::interlaced) + 1;
template <>
inline constexpr int kValuesOf<MeshAxis> = static_cast<int>(kMeshAxes);
template <>
inline constexpr int kValuesOf<OptimizerKind> = static_cast<int>(OptimizerKind::sgd_momentum) + 1;
template <>
inline constexpr int kValuesOf<Recompute> = static_cast<int>(Recompute::full) + 1;
template <>
inline constexpr int kValuesOf<ContextParallel> = static_cast<int>(ContextParallel::ulysses) + 1;
template <>
inline constexpr int kValuesOf<Fp8Scaling> = static_cast<int>(Fp8Scaling::mxfp4) + 1;
template <>
inline constexpr int kValuesOf<models::BlockPart> = models::kBlockParts;

template <typename Enum>
[[nodiscard]] std::vector<std::string> names_of() {
    static_assert(kValuesOf<Enum> > 0, "kValuesOf has no specialization for this enum");
    std::vector<std::string> names;
    names.reserve(static_cast<std::size_t>(kValuesOf<Enum>));
    for (int i = 0; i < kValuesOf<Enum>; ++i) names.emplace_back(name_of(static_cast<Enum>(i)));
    return names;
}

template <typename Enum>
[[nodiscard]] std::optional<Enum> value_named(std::string_view name) {
    static_assert(kValuesOf<Enum> > 0, "kValuesOf has no specialization for this enum");
    for (int i = 0; i < kValuesOf<Enum>; ++i) {
        if (name_of(static_cast<Enum>(i)) == name) return static_cast<Enum>(i);
    }
    return std::nullopt;
}

/// The names in quotes, separated by commas: "a", "b", "c"
[[nodiscard]] inline std::string quoted_list(const std::vector<std::string>& names) {
    std::string text;
    for (const std::string& name : names) text += (text.empty() ? "\"" : ", \"") + name + "\"";
    return text;
}

/// The value with this name; throws InputError with the names that exist. `what` says what the name stands for.
template <typename Enum>
[[nodiscard]] Enum named(const std::string& name, const std::string& what) {
    if (const std::optional<Enum> value = value_named<Enum>(name)) return *value;
    throw InputError(what + " \"" + name + "\": nothing has this name; allowed: " + quoted_list(names_of<Enum>()));
}

inline constexpr const char* kMeshOrderRule = "tp, cp, ep, dp and pp, each once, such as \"tp,cp,ep,dp,pp\"";
/// The order that the names describe; empty unless each axis occurs once.
[[nodiscard]] std::optional<std::array<MeshAxis, kMeshAxes>> mesh_order_of(const std::vector<std::string>& axes);

/// Throws InputError if there are so many ranks that later products could overflow. Every degree must be at least 1.
void check_rank_count(const Parallelism& parallelism, const std::string& source);
/// The degrees and their product, such as "dp 2 * tp 2 * pp 2 = 8"; cp is included if it is above 1.
[[nodiscard]] std::string degrees_text(const Parallelism& parallelism);

}  // namespace orrery::program
