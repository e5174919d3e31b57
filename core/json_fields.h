// Structs whose fields are listed once. visit_fields(object, visit), beside the struct, calls visit(key, field, limits)
// for each field; by it an object is read, checked and written, and tests/unit/program describes it as a JSON schema. A
// field is a bool, a std::int64_t or a double (with the range of its values), a string, a vector of these, an enum with
// names, such a struct, a list or an optional of such structs, or a map of any of these by name. Another type, or
// another kind of limits, overloads read_field and field_json in its own namespace. The limits may begin with a
// Presence. An overload of check_fields(reader, object) refuses values that contradict each other. Where the list
// depends on more than the object, fields_of(object, context) returns it as a Group, and the context is the field's
// limit.
#pragma once

#include <algorithm>
#include <concepts>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "core/dtype.h"
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

/// When a key stands in a file. Fields without a Presence may be absent, and then keep the value that they have; they
/// are always written.
struct Presence {
    bool required = false;         // an absent key is an error
    bool only_if_changed = false;  // written only if the value differs from that of a new object
    bool exists = true;            // false: there is no such key, by what the object holds in fields listed before
    bool written = true;
};
inline constexpr Presence kRequired{.required = true};
inline constexpr Presence kIfChanged{.only_if_changed = true};
[[nodiscard]] constexpr Presence required_if(bool exists) {
    return {.required = exists, .exists = exists};
}

/// The Presence with which the limits begin.
template <typename... Limits>
[[nodiscard]] Presence presence_of(const Limits&...) {
    return {};
}
template <typename... Limits>
[[nodiscard]] Presence presence_of(const Presence& presence, const Limits&...) {
    return presence;
}

/// Fields that the file has in an object of their own and the struct has not: a list for visit_fields.
template <typename List>
struct Group {
    List list;
};
template <typename List>
Group(List) -> Group<List>;
template <typename List>
void visit_fields(const Group<List>& group, auto&& visit) {
    group.list(visit);
}

/// A value that follows from others. A file may not contradict it.
template <typename T>
struct Derived {
    T value;
    std::string why;  // ends the message
};

/// A range that depends on other values. A schema can only say the widest one.
struct DependentRange {
    IntegerRange range;
    IntegerRange widest;
};

/// Two numbers in one list.
template <typename T>
struct Pair {
    T& first;
    T& second;
    const char* what = "two numbers";
};
template <typename T>
Pair(T&, T&, const char* = "") -> Pair<T>;

/// Names that are allowed: of a string, or of an element type.
struct OneOf {
    std::vector<std::string> names;
    [[nodiscard]] bool contains(std::string_view name) const {
        return std::find(names.begin(), names.end(), name) != names.end();
    }
    [[nodiscard]] bool contains(DType dtype) const { return contains(name_of(dtype)); }
};
[[nodiscard]] inline std::string description(const OneOf& allowed) {
    return quoted_list(allowed.names);
}

// The overloads of read_field find each other, those of other namespaces included, by the namespace of JsonReader or of
// the field.
template <typename T, typename Range>
void read_field(const JsonReader& reader, const std::string& key, const Pair<T>& field, const Range& range) {
    std::vector<T> numbers;
    read_field(reader, key, numbers, range);
    if (numbers.size() != 2) reader.fail(key, field.what);
    field.first = numbers[0];
    field.second = numbers[1];
}
inline void read_field(const JsonReader& reader, const std::string& key, std::int64_t& field,
                       const DependentRange& limits) {
    field = reader.integer(key, limits.range);
}
inline void read_field(const JsonReader& reader, const std::string& key, std::string& field, const OneOf& allowed) {
    field = reader.choice(key, allowed.names);
}
inline void read_field(const JsonReader& reader, const std::string& key, DType& dtype, const OneOf& allowed) {
    dtype = *dtype_named(reader.choice(key, allowed.names));
}
/// An object with keys of its own choice.
template <typename T, typename... Limits>
void read_field(const JsonReader& reader, const std::string& key, std::map<std::string, T>& field,
                const Limits&... limits) {
    const JsonReader object = reader.object(key);
    for (const std::string& name : object.keys()) read_field(object, name, field[name], limits...);
}

/// Reads a field if it must or may be there.
template <typename Field, typename... Limits>
void read_listed(const JsonReader& reader, const std::string& key, Field& field, const Limits&... limits) {
    if (reader.has(key)) read_field(reader, key, field, limits...);
}
template <typename Field, typename... Limits>
void read_listed(const JsonReader& reader, const std::string& key, Field& field, const Presence& presence,
                 const Limits&... limits) {
    if (presence.exists && (presence.required || reader.has(key))) read_field(reader, key, field, limits...);
}

/// Leaves finish() to the caller.
template <HasFields Object>
void read_fields(const JsonReader& reader, Object& object) {
    visit_fields(object, [&reader](const char* key, auto& field, const auto&... limits) {
        read_listed(reader, key, field, limits...);
    });
    if constexpr (requires { check_fields(reader, object); }) check_fields(reader, object);
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

template <typename Field, typename... Limits>
[[nodiscard]] std::optional<FieldFault> fault_of(const Field& field, const Presence&, const Limits&... limits) {
    return fault_of(field, limits...);
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
void read_field(const JsonReader& reader, const std::string& key, std::vector<Object>& list) {
    list.clear();
    for (const JsonReader& item : reader.objects(key)) {
        read_fields(item, list.emplace_back());
        item.finish();
    }
}

template <HasFields Object>
void read_field(const JsonReader& reader, const std::string& key, std::optional<Object>& field) {
    read_field(reader, key, field.emplace());
}

template <typename T, typename... Limits>
void read_field(const JsonReader& reader, const std::string& key, const Derived<T>& field, const Limits&... limits) {
    T found{};
    read_field(reader, key, found, limits...);
    if (found == field.value) return;
    if constexpr (std::same_as<T, std::string>) {
        reader.fail(key, field.value + field.why);
    } else {
        reader.fail(key, JsonValue(field.value).text() + field.why);
    }
}

template <typename Object, typename Context>
concept HasFieldsIn = requires(Object& object, const Context& context) {
    fields_of(object, context);
};

template <typename Object, typename Context>
requires HasFieldsIn<Object, Context>
void read_field(const JsonReader& reader, const std::string& key, Object& object, const Context& context) {
    const auto fields = fields_of(object, context);
    read_field(reader, key, fields);
}

template <typename Object, typename Context>
requires HasFieldsIn<Object, Context>
void read_field(const JsonReader& reader, const std::string& key, std::vector<Object>& list, const Context& context) {
    list.clear();
    for (const JsonReader& item : reader.objects(key)) {
        const auto fields = fields_of(list.emplace_back(), context);
        read_fields(item, fields);
        item.finish();
    }
}

template <typename T>
[[nodiscard]] JsonValue field_json(const Derived<T>& field) {
    return JsonValue(field.value);
}
template <typename T>
[[nodiscard]] JsonValue field_json(const Pair<T>& field) {
    return JsonValue(std::vector<std::remove_const_t<T>>{field.first, field.second});
}

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

template <typename T>
[[nodiscard]] JsonValue field_json(const std::map<std::string, T>& field) {
    JsonValue json = JsonValue::object();
    for (const auto& [key, value] : field) json.set(key, field_json(value));
    return json;
}

template <HasFields Object>
[[nodiscard]] JsonValue field_json(const std::vector<Object>& list) {
    std::vector<JsonValue> items;
    items.reserve(list.size());
    for (const Object& one : list) items.push_back(field_json(one));
    return JsonValue(std::move(items));
}

template <HasFields Object>
[[nodiscard]] JsonValue field_json(const std::optional<Object>& field) {
    return field ? field_json(*field) : JsonValue();
}

template <typename Object, typename Context>
requires HasFieldsIn<const Object, Context>
[[nodiscard]] JsonValue field_json(const Object& object, const Context& context) {
    return field_json(fields_of(object, context));
}

template <typename Object, typename Context>
requires HasFieldsIn<const Object, Context>
[[nodiscard]] JsonValue field_json(const std::vector<Object>& list, const Context& context) {
    std::vector<JsonValue> items;
    items.reserve(list.size());
    for (const Object& one : list) items.push_back(field_json(one, context));
    return JsonValue(std::move(items));
}

/// As it is written: limits may say in which unit.
template <typename Field, typename... Limits>
[[nodiscard]] JsonValue listed_json(const Field& field, const Limits&... limits) {
    if constexpr (requires { field_json(field, limits...); }) {
        return field_json(field, limits...);
    } else {
        return field_json(field);
    }
}
template <typename Field, typename... Limits>
[[nodiscard]] JsonValue listed_json(const Field& field, const Presence& presence, const Limits&... limits) {
    return presence.exists && presence.written ? listed_json(field, limits...) : JsonValue();
}

/// What a new object would write, by key.
template <std::default_initializable Object>
[[nodiscard]] const std::map<std::string, JsonValue>& values_of_new() {
    static const std::map<std::string, JsonValue> values = [] {
        std::map<std::string, JsonValue> result;
        const Object plain{};
        visit_fields(plain, [&result](const char* key, const auto& field, const auto&... limits) {
            result.emplace(key, listed_json(field, limits...));
        });
        return result;
    }();
    return values;
}

/// Adds the fields to an object, but those that are not to be written and those of which field_json gives null.
template <HasFields Object>
void write_fields(JsonValue& json, const Object& object) {
    visit_fields(object, [&json](const char* key, const auto& field, const auto&... limits) {
        JsonValue value = listed_json(field, limits...);
        if (value.is_null()) return;
        if constexpr (std::default_initializable<Object>) {
            if (presence_of(limits...).only_if_changed && value == values_of_new<Object>().at(key)) return;
        }
        json.set(key, std::move(value));
    });
}

/// A file that holds one object, with its schema as the first key. Ends in a newline.
template <HasFields Object>
[[nodiscard]] std::string document_text(const char* schema, const Object& object) {
    JsonValue json = JsonValue::object();
    json.set("schema", JsonValue(schema));
    write_fields(json, object);
    return json.text(2) + "\n";
}

/// Throws InputError naming `file` if the text is not such a file of this schema.
template <HasFields Object>
[[nodiscard]] Object object_of_document(const char* schema, const std::string& text, const std::string& file) {
    const JsonReader reader = JsonReader::parse(text, file);
    reader.expect_schema(schema);
    Object object;
    read_fields(reader, object);
    reader.finish();
    return object;
}

/// The object alone, on one line, and back.
template <HasFields Object>
[[nodiscard]] std::string object_text(const Object& object) {
    JsonValue json = JsonValue::object();
    write_fields(json, object);
    return json.text();
}
template <HasFields Object>
[[nodiscard]] Object object_of_text(const std::string& text, const std::string& file) {
    const JsonReader reader = JsonReader::parse(text, file);
    Object object;
    read_fields(reader, object);
    reader.finish();
    return object;
}

}  // namespace orrery
