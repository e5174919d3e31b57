// A foreign YAML document as a tree of maps, lists and scalars with their line numbers.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "topologies/importers/foreign_text.h"

namespace orrery::topologies {

struct YamlValue {
    enum class Kind : std::uint8_t { null, scalar, list, map };
    Kind kind = Kind::null;
    std::int64_t line = 1;
    std::string scalar;
    std::vector<YamlValue> list;
    struct Entry;
    std::vector<Entry> map;  // keys are unique

    [[nodiscard]] const YamlValue* find(const std::string& key) const;
};
struct YamlValue::Entry {
    std::string key;
    YamlValue value;
};

/// The document in the text. Throws InputError, usually with file and line, if the text is not well-formed, on anchors,
/// aliases and tags (no topology needs them, and they can make a small file expand without bound), duplicate keys, a
/// second document, more than 64 levels, and more than kMostForeignItems values.
[[nodiscard]] YamlValue yaml_from_text(const std::string& text, const std::string& file);

/// Checks a value's kind: throws InputError "FILE: line N: what: got …; allowed: …".
void expect_kind(const YamlValue& value, YamlValue::Kind kind, const std::string& file, const std::string& what);

}  // namespace orrery::topologies
