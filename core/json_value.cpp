#include "core/json_value.h"

#include <nlohmann/json.hpp>
#include <utility>

namespace orrery {

struct JsonValue::Node {
    Node() = default;
    template <typename Value>
    explicit Node(const Value& value) : json(value) {}
    nlohmann::ordered_json json;
};

JsonValue::JsonValue() : node_(std::make_unique<Node>()) {}
JsonValue::JsonValue(bool value) : node_(std::make_unique<Node>(value)) {}
JsonValue::JsonValue(std::int64_t value) : node_(std::make_unique<Node>(value)) {}
JsonValue::JsonValue(double value) : node_(std::make_unique<Node>(value)) {}
JsonValue::JsonValue(std::string_view value) : node_(std::make_unique<Node>(value)) {}
JsonValue::JsonValue(const std::vector<std::int64_t>& values) : node_(std::make_unique<Node>(values)) {}
JsonValue::JsonValue(const std::vector<double>& values) : node_(std::make_unique<Node>(values)) {}
JsonValue::JsonValue(const std::vector<std::string>& values) : node_(std::make_unique<Node>(values)) {}
JsonValue::JsonValue(const JsonValue& other) : node_(std::make_unique<Node>(other.node_->json)) {}
JsonValue::JsonValue(JsonValue&& other) noexcept = default;
JsonValue& JsonValue::operator=(JsonValue other) noexcept {
    node_ = std::move(other.node_);
    return *this;
}
JsonValue::~JsonValue() = default;

JsonValue JsonValue::object() {
    JsonValue value;
    value.node_->json = nlohmann::ordered_json::object();
    return value;
}

JsonValue& JsonValue::set(const std::string& key, const JsonValue& value) {
    node_->json[key] = value.node_->json;
    return *this;
}

bool JsonValue::is_null() const {
    return node_->json.is_null();
}

std::string JsonValue::text(int indentation) const {
    return node_->json.dump(indentation);
}

}  // namespace orrery
