#include "core/json_value.h"

#include <cmath>
#include <nlohmann/json.hpp>
#include <utility>

#include "core/error.h"

namespace orrery {
namespace {

double finite(double value) {
    ORRERY_CHECK(std::isfinite(value), "JSON cannot express a number that is not finite");
    return value;
}

}  // namespace

struct JsonValue::Node {
    Node() = default;
    template <typename Value>
    explicit Node(const Value& value) : json(value) {}
    nlohmann::ordered_json json;
};

JsonValue::JsonValue() : node_(std::make_unique<Node>()) {}
JsonValue::JsonValue(bool value) : node_(std::make_unique<Node>(value)) {}
JsonValue::JsonValue(std::int64_t value) : node_(std::make_unique<Node>(value)) {}
JsonValue::JsonValue(double value) : node_(std::make_unique<Node>(finite(value))) {}
JsonValue::JsonValue(std::string_view value) : node_(std::make_unique<Node>(value)) {}
JsonValue::JsonValue(const std::vector<std::int64_t>& values) : node_(std::make_unique<Node>(values)) {}
JsonValue::JsonValue(const std::vector<double>& values) : node_(std::make_unique<Node>(values)) {
    for (const double value : values) (void)finite(value);
}
JsonValue::JsonValue(const std::vector<std::string>& values) : node_(std::make_unique<Node>(values)) {}
JsonValue::JsonValue(std::vector<JsonValue> values) : node_(std::make_unique<Node>(nlohmann::ordered_json::array())) {
    for (JsonValue& value : values) node_->json.push_back(std::move(value.node_->json));
}
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

JsonValue& JsonValue::set(const std::string& key, JsonValue value) {
    node_->json[key] = std::move(value.node_->json);
    return *this;
}

bool JsonValue::operator==(const JsonValue& other) const {
    return node_->json == other.node_->json;
}

bool JsonValue::is_null() const {
    return node_->json.is_null();
}

std::string JsonValue::text(int indentation) const {
    return node_->json.dump(indentation);
}

}  // namespace orrery
