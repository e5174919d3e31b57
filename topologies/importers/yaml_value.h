// A foreign YAML document as a small tree of our own: maps, lists and scalars with the lines they stand on.
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
    std::vector<Entry> map;  // keys once each

    [[nodiscard]] const YamlValue* find(const std::string& key) const;
};
struct YamlValue::Entry {
    std::string key;
    YamlValue value;
};

/// The first document of the text. Throws InputError naming file and line on what is not well-formed, on anchors,
/// aliases and tags (which no topology needs and which can make a small file unfold without end), keys that stand
/// twice, a second document, and on more than 64 levels or kMostForeignItems values.
[[nodiscard]] YamlValue yaml_from_text(const std::string& text, const std::string& file);

/// Checks a value's kind: throws InputError "FILE: line N: what: got …; allowed: …".
void expect_kind(const YamlValue& value, YamlValue::Kind kind, const std::string& file, const std::string& what);

}  // namespace orrery::topologies
