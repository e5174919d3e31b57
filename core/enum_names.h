// Names of enum values, both ways. An enum whose values count from 0 has its number of values in kValuesOf and a
// name_of() in its own namespace.
#pragma once

#include <concepts>
#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "core/error.h"
#include "core/index.h"

namespace orrery {

/// Names of the values of an enum in their order, one for each up to the last value:
///     static constexpr auto kNames = name_table<Colour::blue>({"red", "green", "blue"});
template <auto kLast, std::size_t kCount>
[[nodiscard]] consteval EnumArray<decltype(kLast), std::string_view, kCount> name_table(
    const std::string_view (&names)[kCount]) {
    static_assert(kCount == static_cast<std::size_t>(kLast) + 1, "one name for each value");
    EnumArray<decltype(kLast), std::string_view, kCount> table{};
    for (std::size_t i = 0; i < kCount; ++i) table[static_cast<decltype(kLast)>(i)] = names[i];
    return table;
}

template <typename Enum>
inline constexpr int kValuesOf = 0;

template <typename Enum>
concept NamedEnum = std::is_enum_v<Enum> && kValuesOf<Enum> >
0;

template <NamedEnum Enum>
[[nodiscard]] std::vector<std::string> names_of() {
    std::vector<std::string> names;
    names.reserve(static_cast<std::size_t>(kValuesOf<Enum>));
    for (int i = 0; i < kValuesOf<Enum>; ++i) names.emplace_back(name_of(static_cast<Enum>(i)));
    return names;
}

template <NamedEnum Enum>
[[nodiscard]] std::optional<Enum> value_named(std::string_view name) {
    for (int i = 0; i < kValuesOf<Enum>; ++i) {
        if (name_of(static_cast<Enum>(i)) == name) return static_cast<Enum>(i);
    }
    return std::nullopt;
}

[[nodiscard]] inline std::string in_quotes(std::string_view text) {
    return std::string(1, '"').append(text) + '"';
}
/// a, b, c
[[nodiscard]] inline std::string comma_list(const std::vector<std::string>& names) {
    std::string text;
    for (const std::string& name : names) text += (text.empty() ? "" : ", ") + name;
    return text;
}
/// "a", "b", "c"
[[nodiscard]] inline std::string quoted_list(const std::vector<std::string>& names) {
    std::string text;
    for (const std::string& name : names) text += (text.empty() ? "" : ", ") + in_quotes(name);
    return text;
}

/// Throws InputError with the names that exist. `what`: what is named.
template <NamedEnum Enum>
[[nodiscard]] Enum named(const std::string& name, const std::string& what) {
    if (const std::optional<Enum> value = value_named<Enum>(name)) return *value;
    throw InputError(what + " \"" + name + "\": nothing has this name; allowed: " + quoted_list(names_of<Enum>()));
}

}  // namespace orrery
