// A JSON value that is being written. Keys keep the order in which they are set. No JSON library's type appears here.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace orrery {

/// null, a boolean, a number, a string, an array or an object. Copies share nothing.
class JsonValue {
  public:
    JsonValue();
    explicit JsonValue(bool value);
    explicit JsonValue(std::int64_t value);
    explicit JsonValue(double value);  // finite: JSON has no other numbers
    explicit JsonValue(std::string_view value);
    explicit JsonValue(const char* value) : JsonValue(std::string_view(value)) {}
    explicit JsonValue(const std::vector<std::int64_t>& values);
    explicit JsonValue(const std::vector<double>& values);
    explicit JsonValue(const std::vector<std::string>& values);
    explicit JsonValue(std::vector<JsonValue> values);
    [[nodiscard]] static JsonValue object();
    JsonValue(const JsonValue& other);
    JsonValue(JsonValue&& other) noexcept;
    JsonValue& operator=(JsonValue other) noexcept;
    ~JsonValue();

    /// Of an object. Returns the object.
    JsonValue& set(const std::string& key, JsonValue value);
    [[nodiscard]] bool operator==(const JsonValue& other) const;
    [[nodiscard]] bool is_null() const;
    /// On one line, or with this many spaces for each level.
    [[nodiscard]] std::string text(int indentation = -1) const;

  private:
    struct Node;
    std::unique_ptr<Node> node_;
};

}  // namespace orrery
