// Structs whose fields are listed once. visit_fields(object, visit), beside the struct, calls visit(key, field, limits)
// for each field; by it an object is read, checked and written, and tests/unit/program describes it as a JSON schema. A
// field is a bool, a std::int64_t or a double (with the range of its values), a string, a vector of these, an enum with
// names, or such a struct. Another type overloads read_field and field_json in its own namespace.
#pragma once

#include <concepts>
#include <cstdint>
#include <optional>
#include <string>
#include <type_traits>
#include <vector>

#include "core/enum_names.h"
#include "core/json_reader.h"
#include "core/json_value.h"

namespace orrery {

/// T or const T: for `template <Either<T> Object> void visit_fields(Object& object, auto&& visit)`.
template <typename Object, typename T>
concept Either = std::same_as<std::remove_const_t<Object>, T>;

template <typename Object>
concept HasFields = requires(Object& object) {
    visit_fields(object, [](const char*, auto&&...) {});
};

template <typename Field, typename... Limits>
void read_field(const JsonReader& reader, const std::string& key, Field& field, const Limits&... limits);

/// Keys that are absent keep the value that they have. Leaves finish() to the caller.
template <HasFields Object>
void read_fields(const JsonReader& reader, Object& object) {
    visit_fields(object, [&reader](const char* key, auto& field, const auto&... limits) {
        if (reader.has(key)) read_field(reader, key, field, limits...);
    });
}

template <typename Field, typename... Limits>
void read_field(const JsonReader& reader, const std::string& key, Field& field, const Limits&... limits) {
    if constexpr (std::same_as<Field, bool>) {
        field = reader.boolean(key);
    } else if constexpr (std::same_as<Field, std::int64_t>) {
        field = reader.integer(key, limits...);
    } else if constexpr (std::same_as<Field, std::uint64_t>) {
        field = static_cast<std::uint64_t>(reader.integer(key, limits...));
    } else if constexpr (std::same_as<Field, double>) {
        field = reader.number(key, limits...);
    } else if constexpr (std::same_as<Field, std::string>) {
        field = reader.string(key);
    } else if constexpr (std::same_as<Field, std::vector<std::int64_t>>) {
        field = reader.integers(key, limits...);
    } else if constexpr (std::same_as<Field, std::vector<double>>) {
        field = reader.numbers(key, limits...);
    } else if constexpr (std::same_as<Field, std::vector<std::string>>) {
        field = reader.strings(key);
    } else if constexpr (HasFields<Field>) {
        const JsonReader object = reader.object(key);
        read_fields(object, field);
        object.finish();
    } else {
        static_assert(NamedEnum<Field>, "a field that cannot be read");
        field = *value_named<Field>(reader.choice(key, names_of<Field>()));
    }
}

/// A value as messages print it; text as it is.
template <typename Value>
[[nodiscard]] std::string shown(const Value& value) {
    if constexpr (std::same_as<Value, bool>) {
        return value ? "true" : "false";
    } else if constexpr (std::same_as<Value, double>) {
        return shortest(value);
    } else if constexpr (std::integral<Value>) {
        return std::to_string(value);
    } else if constexpr (std::is_enum_v<Value>) {
        return in_quotes(name_of(value));
    } else {
        return std::string(value);
    }
}

/// A value outside the limits of its field, in the words in which a JsonReader refuses it.
struct FieldFault {
    std::string pointer;  // from the object that was checked, such as "/optimizer/beta1"
    std::string value, allowed;
};

template <HasFields Object>
[[nodiscard]] std::optional<FieldFault> field_fault(const Object& object);

/// The fault of one field. Strings are built only if there is one.
template <typename Field, typename... Limits>
[[nodiscard]] std::optional<FieldFault> fault_of(const Field& field, const Limits&... limits) {
    if constexpr (HasFields<const Field>) {
        return field_fault(field);
    } else if constexpr (sizeof...(Limits) == 0) {
        return {};
    } else if constexpr (requires { field.begin(); }) {
        for (std::size_t i = 0; i < field.size(); ++i) {
            std::optional<FieldFault> fault = fault_of(field[i], limits...);
            if (!fault) continue;
            fault->pointer = "/" + std::to_string(i);
            return fault;
        }
        return {};
    } else {
        if ((limits.contains(field) && ...)) return {};
        return FieldFault{"", shown(field), (description(limits) + ...)};
    }
}

/// The first field whose value is not within its limits, if there is one.
template <HasFields Object>
std::optional<FieldFault> field_fault(const Object& object) {
    std::optional<FieldFault> fault;
    visit_fields(object, [&fault](const char* key, const auto& field, const auto&... limits) {
        if (fault) return;
        fault = fault_of(field, limits...);
        if (fault) fault->pointer.insert(0, std::string("/") + key);
    });
    return fault;
}

template <HasFields Object>
void write_fields(JsonValue& json, const Object& object);

template <typename Field>
[[nodiscard]] JsonValue field_json(const Field& field) {
    if constexpr (HasFields<const Field>) {
        JsonValue json = JsonValue::object();
        write_fields(json, field);
        return json;
    } else if constexpr (std::is_enum_v<Field>) {
        return JsonValue(name_of(field));
    } else if constexpr (std::same_as<Field, std::uint64_t>) {
        return JsonValue(static_cast<std::int64_t>(field));
    } else {
        return JsonValue(field);
    }
}

/// Adds the fields to an object, but those of which field_json gives null.
template <HasFields Object>
void write_fields(JsonValue& json, const Object& object) {
    visit_fields(object, [&json](const char* key, const auto& field, const auto&...) {
        if (const JsonValue value = field_json(field); !value.is_null()) json.set(key, value);
    });
}

}  // namespace orrery
