#include "core/json_reader.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <string_view>
#include <utility>

#include "core/enum_names.h"
#include "core/error.h"
#include "core/file.h"

namespace orrery {
namespace {

constexpr std::size_t kMaxDepth = 64;
constexpr std::size_t kMaxPrinted = 80;  // characters of a value in a message

struct Value {
    JsonKind kind = JsonKind::null;
    bool boolean = false;
    bool fits_integer = false;  // kind integer: the value fits into `integer`
    std::int64_t integer = 0;
    double number = 0;
    std::string text;                           // strings: the content; numbers: as written in the file
    std::vector<Value> items;                   // values of an array, or of an object in the file's order
    std::vector<std::string> names;             // objects: names[i] is the key of items[i]
    std::map<std::string, std::size_t> lookup;  // objects: name -> index
};

std::string escaped_for_pointer(const std::string& key) {
    std::string result;
    for (char c : key) {
        if (c == '~') {
            result += "~0";
        } else if (c == '/') {
            result += "~1";
        } else {
            result += c;
        }
    }
    return result;
}

std::string quoted(const std::string& text) {
    // The replace handler avoids an exception if the text was cut inside a multi-byte character.
    return nlohmann::json(text).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

std::string shortened(const std::string& text) {
    return text.size() <= kMaxPrinted ? text : text.substr(0, kMaxPrinted) + "...";
}

/// The value for a message. Of long lists and of objects only the number of elements is shown.
std::string printed(const Value& value) {
    switch (value.kind) {
        case JsonKind::null:
            return "null";
        case JsonKind::boolean:
            return value.boolean ? "true" : "false";
        case JsonKind::integer:
        case JsonKind::number:
            return shortened(value.text);
        case JsonKind::string:
            return quoted(shortened(value.text));
        case JsonKind::array: {
            std::string list;
            bool shows = true;
            for (const Value& item : value.items) {
                shows = shows && item.kind != JsonKind::array && item.kind != JsonKind::object;
                if (shows) list += (list.empty() ? "" : ", ") + printed(item);
                shows = shows && list.size() <= kMaxPrinted;
            }
            return shows ? "[" + list + "]" : "a list of " + std::to_string(value.items.size()) + " values";
        }
        case JsonKind::object:
            return "an object with " + std::to_string(value.items.size()) + " keys";
    }
    return "?";
}

std::string list_or_none(const std::vector<std::string>& names) {
    return names.empty() ? "none" : comma_list(names);
}

std::string position_in(const std::string& text, std::size_t offset) {
    const std::string_view before = std::string_view(text).substr(0, std::min(offset, text.size()));
    const auto line = 1 + std::count(before.begin(), before.end(), '\n');
    const std::size_t newline = before.rfind('\n');
    const std::size_t column = newline == std::string_view::npos ? before.size() : before.size() - newline - 1;
    return std::to_string(line) + ":" + std::to_string(column + 1);
}

/// Builds the tree and refuses duplicate keys and deep nesting, which the library accepts.
class TreeBuilder : public nlohmann::json_sax<nlohmann::json> {
  public:
    TreeBuilder(const std::string& file, const std::string& text) : file_(file), text_(text) {}
    [[nodiscard]] Value take() { return std::move(root_); }

    bool null() override { return add({}); }
    bool boolean(bool value) override {
        Value leaf;
        leaf.kind = JsonKind::boolean;
        leaf.boolean = value;
        return add(std::move(leaf));
    }
    bool number_integer(number_integer_t value) override { return add_integer(value, std::to_string(value), true); }
    bool number_unsigned(number_unsigned_t value) override {
        return add_integer(static_cast<std::int64_t>(value), std::to_string(value), std::in_range<std::int64_t>(value));
    }
    bool number_float(number_float_t value, const string_t& token) override {
        // Integers that do not fit into 64 bits arrive here too.
        const bool whole = token.find_first_of(".eE") == std::string::npos;
        Value leaf;
        leaf.kind = whole ? JsonKind::integer : JsonKind::number;
        leaf.number = value;
        leaf.text = token;
        return add(std::move(leaf));
    }
    bool string(string_t& value) override {
        Value leaf;
        leaf.kind = JsonKind::string;
        leaf.text = std::move(value);
        return add(std::move(leaf));
    }
    bool binary(binary_t&) override { return false; }  // does not occur in JSON text
    bool start_object(std::size_t) override { return open(JsonKind::object); }
    bool start_array(std::size_t) override { return open(JsonKind::array); }
    bool end_object() override { return close(); }
    bool end_array() override { return close(); }
    bool key(string_t& name) override {
        Value& object = open_.back();
        if (!object.lookup.emplace(name, object.names.size()).second) {
            throw InputError(file_ + ": " + pointer() + "/" + escaped_for_pointer(name) +
                             ": the key appears twice in the same object; allowed: once");
        }
        object.names.push_back(name);
        return true;
    }
    bool parse_error(std::size_t position, const std::string&, const nlohmann::json::exception& error) override {
        std::string what = error.what();
        // "[json.exception.parse_error.101] parse error at line 1, column 2: the reason"; other errors have no
        // position.
        if (const std::size_t column = what.find(", column "); column != std::string::npos) {
            if (const std::size_t end = what.find(": ", column); end != std::string::npos) what = what.substr(end + 2);
        } else if (const std::size_t end = what.find("] "); end != std::string::npos) {
            what = what.substr(end + 2);
        }
        if (what.size() > 4 * kMaxPrinted) what = what.substr(0, 4 * kMaxPrinted) + "...";
        const std::size_t at = position == 0 ? 0 : position - 1;
        throw InputError(file_ + ":" + position_in(text_, at) + ": not valid JSON: " + what);
    }

  private:
    bool add_integer(std::int64_t value, std::string token, bool fits) {
        Value leaf;
        leaf.kind = JsonKind::integer;
        leaf.fits_integer = fits;
        leaf.integer = fits ? value : 0;
        leaf.text = std::move(token);
        leaf.number = fits ? static_cast<double>(value) : static_cast<double>(static_cast<std::uint64_t>(value));
        return add(std::move(leaf));
    }
    bool add(Value value) {
        if (open_.empty()) {
            root_ = std::move(value);
        } else {
            open_.back().items.push_back(std::move(value));
        }
        return true;
    }
    bool open(JsonKind kind) {
        if (open_.size() == kMaxDepth) {
            throw InputError(file_ + ": objects and lists are nested too deep; allowed: " + std::to_string(kMaxDepth) +
                             " levels");
        }
        open_.emplace_back().kind = kind;
        return true;
    }
    bool close() {
        Value done = std::move(open_.back());
        open_.pop_back();
        return add(std::move(done));
    }
    [[nodiscard]] std::string pointer() const {
        std::string result;
        for (std::size_t i = 0; i + 1 < open_.size(); ++i) {
            const Value& value = open_[i];
            result += "/" + (value.kind == JsonKind::object ? escaped_for_pointer(value.names.back())
                                                            : std::to_string(value.items.size()));
        }
        return result;
    }

    const std::string& file_;
    const std::string& text_;
    Value root_;
    std::vector<Value> open_;
};

Value parse_tree(const std::string& text, const std::string& file) {
    if (text.find_first_not_of(" \t\r\n") == std::string::npos) {
        throw InputError(file + ": the file is empty; allowed: a JSON object");
    }
    // The library treats a NUL as the end of the text and would ignore the rest.
    if (const std::size_t nul = text.find('\0'); nul != std::string::npos) {
        throw InputError(file + ":" + position_in(text, nul) + ": not valid JSON: a NUL byte");
    }
    TreeBuilder builder(file, text);
    ORRERY_CHECK(nlohmann::json::sax_parse(text, &builder), "the parser stopped without an error");
    Value root = builder.take();
    if (root.kind != JsonKind::object) throw InputError(file, "top level", printed(root), "a JSON object");
    return root;
}

}  // namespace

std::string shortest(double value) {
    std::array<char, 64> buffer{};
    const auto end = std::to_chars(buffer.data(), buffer.data() + buffer.size(), value).ptr;
    return std::string(buffer.data(), end);
}

std::string description(IntegerRange range) {
    const IntegerRange all;
    if (range.low == all.low && range.high == all.high) return "an integer";
    if (range.high == all.high) return "an integer of at least " + std::to_string(range.low);
    if (range.low == all.low) return "an integer of at most " + std::to_string(range.high);
    return "an integer from " + std::to_string(range.low) + " to " + std::to_string(range.high);
}

std::string description(NumberRange range) {
    const NumberRange all;
    std::string result = "a number";
    if (range.low == kSmallestNumber) {
        result += " greater than 0 (at least " + shortest(range.low) + ")";
    } else if (range.low != all.low) {
        result += (range.low_open ? " greater than " : " of at least ") + shortest(range.low);
    }
    if (range.high == all.high) return result;
    result += range.low != all.low ? ", " : range.high_open ? " " : " of ";
    result += (range.high_open ? "below " : "at most ") + shortest(range.high);
    return result;
}

struct JsonReader::Node {
    struct Document {
        std::string file;
        JsonPolicy policy;
        Value root;
    };
    std::shared_ptr<const Document> document;
    const Value* object = nullptr;
    std::string pointer;
    mutable std::set<std::string> known;  // keys that an accessor was called with

    [[nodiscard]] std::string pointer_to(const std::string& key) const {
        return pointer + "/" + escaped_for_pointer(key);
    }
    [[nodiscard]] const Value* find(const std::string& key) const {
        known.insert(key);
        const auto found = object->lookup.find(key);
        return found == object->lookup.end() ? nullptr : &object->items[found->second];
    }
    [[noreturn]] void refuse(const std::string& at, const Value& value, const std::string& allowed) const {
        throw InputError(document->file, at, printed(value), allowed);
    }
    [[nodiscard]] const Value& require(const std::string& key, const std::string& allowed) const {
        if (const Value* value = find(key)) return *value;
        throw InputError(document->file + ": " + pointer_to(key) + ": the key is missing; allowed: " + allowed +
                         "; keys here: " + list_or_none(object->names));
    }
    [[nodiscard]] const Value& require(const std::string& key, JsonKind kind, const std::string& allowed) const {
        const Value& value = require(key, allowed);
        if (value.kind != kind) refuse(pointer_to(key), value, allowed);
        return value;
    }
    [[nodiscard]] std::int64_t integer_of(const Value& value, const std::string& at, IntegerRange range) const {
        if (value.kind != JsonKind::integer || !value.fits_integer || !range.contains(value.integer)) {
            refuse(at, value, description(range));
        }
        return value.integer;
    }
    [[nodiscard]] double number_of(const Value& value, const std::string& at, NumberRange range) const {
        const bool numeric = value.kind == JsonKind::number || value.kind == JsonKind::integer;
        if (!numeric || !std::isfinite(value.number) || !range.contains(value.number)) {
            refuse(at, value, description(range));
        }
        return value.number;
    }
    [[nodiscard]] const std::string& text_of(const Value& value, const std::string& at) const {
        if (value.kind != JsonKind::string) refuse(at, value, "a string");
        if (on_one_line(value.text) != value.text) refuse(at, value, "a string without control characters");
        return value.text;
    }
    [[nodiscard]] std::shared_ptr<const Node> child(const Value& value, std::string at) const {
        auto node = std::make_shared<Node>();
        node->document = document;
        node->object = &value;
        node->pointer = std::move(at);
        return node;
    }
    [[nodiscard]] std::vector<std::string> unread() const {
        std::vector<std::string> result;
        for (const std::string& name : object->names) {
            if (known.count(name) == 0) result.push_back(name);
        }
        return result;
    }
};

JsonReader::JsonReader(std::shared_ptr<const Node> node) : node_(std::move(node)) {}

JsonReader JsonReader::open_file(const std::string& path, JsonPolicy policy) {
    return parse(read_text_file(path), path, policy);
}

JsonReader JsonReader::parse(const std::string& text, const std::string& file_name, JsonPolicy policy) {
    auto document =
        std::make_shared<const Node::Document>(Node::Document{file_name, policy, parse_tree(text, file_name)});
    auto node = std::make_shared<Node>();
    node->object = &document->root;
    node->document = std::move(document);
    return JsonReader(std::move(node));
}

const std::string& JsonReader::file() const {
    return node_->document->file;
}
const std::string& JsonReader::pointer() const {
    return node_->pointer;
}

bool JsonReader::has(const std::string& key) const {
    return node_->find(key) != nullptr;
}

bool JsonReader::is_null(const std::string& key) const {
    const Value* value = node_->find(key);
    return value != nullptr && value->kind == JsonKind::null;
}

JsonKind JsonReader::kind(const std::string& key) const {
    return node_->require(key, "any value").kind;
}

std::int64_t JsonReader::integer(const std::string& key, IntegerRange range) const {
    return node_->integer_of(node_->require(key, description(range)), node_->pointer_to(key), range);
}

std::int64_t JsonReader::integer_or(const std::string& key, IntegerRange range, std::int64_t fallback) const {
    return has(key) ? integer(key, range) : fallback;
}

double JsonReader::number(const std::string& key, NumberRange range) const {
    return node_->number_of(node_->require(key, description(range)), node_->pointer_to(key), range);
}

double JsonReader::number_or(const std::string& key, NumberRange range, double fallback) const {
    return has(key) ? number(key, range) : fallback;
}

bool JsonReader::boolean(const std::string& key) const {
    return node_->require(key, JsonKind::boolean, "true or false").boolean;
}

bool JsonReader::boolean_or(const std::string& key, bool fallback) const {
    return has(key) ? boolean(key) : fallback;
}

std::string JsonReader::string(const std::string& key) const {
    return node_->text_of(node_->require(key, "a string"), node_->pointer_to(key));
}

std::string JsonReader::string_or(const std::string& key, const std::string& fallback) const {
    return has(key) ? string(key) : fallback;
}

std::string JsonReader::choice(const std::string& key, const std::vector<std::string>& allowed) const {
    std::string list;
    for (const std::string& name : allowed) list += (list.empty() ? "" : ", ") + quoted(name);
    const Value& value = node_->require(key, JsonKind::string, list);
    if (std::find(allowed.begin(), allowed.end(), value.text) == allowed.end()) {
        node_->refuse(node_->pointer_to(key), value, list);
    }
    return value.text;
}

JsonReader JsonReader::object(const std::string& key) const {
    return JsonReader(node_->child(node_->require(key, JsonKind::object, "an object"), node_->pointer_to(key)));
}

std::vector<JsonReader> JsonReader::objects(const std::string& key) const {
    const Value& list = node_->require(key, JsonKind::array, "a list of objects");
    std::vector<JsonReader> result;
    for (std::size_t i = 0; i < list.items.size(); ++i) {
        std::string at = node_->pointer_to(key) + "/" + std::to_string(i);
        if (list.items[i].kind != JsonKind::object) node_->refuse(at, list.items[i], "an object");
        result.push_back(JsonReader(node_->child(list.items[i], std::move(at))));
    }
    return result;
}

std::vector<std::int64_t> JsonReader::integers(const std::string& key, IntegerRange range) const {
    const Value& list = node_->require(key, JsonKind::array, "a list, each " + description(range));
    std::vector<std::int64_t> result;
    for (std::size_t i = 0; i < list.items.size(); ++i) {
        result.push_back(node_->integer_of(list.items[i], node_->pointer_to(key) + "/" + std::to_string(i), range));
    }
    return result;
}

std::vector<double> JsonReader::numbers(const std::string& key, NumberRange range) const {
    const Value& list = node_->require(key, JsonKind::array, "a list, each " + description(range));
    std::vector<double> result;
    for (std::size_t i = 0; i < list.items.size(); ++i) {
        result.push_back(node_->number_of(list.items[i], node_->pointer_to(key) + "/" + std::to_string(i), range));
    }
    return result;
}

std::vector<std::string> JsonReader::strings(const std::string& key) const {
    const Value& list = node_->require(key, JsonKind::array, "a list of strings");
    std::vector<std::string> result;
    for (std::size_t i = 0; i < list.items.size(); ++i) {
        const std::string at = node_->pointer_to(key) + "/" + std::to_string(i);
        result.push_back(node_->text_of(list.items[i], at));
    }
    return result;
}

std::size_t JsonReader::size(const std::string& key) const {
    return node_->require(key, JsonKind::array, "a list").items.size();
}

std::vector<std::string> JsonReader::keys() const {
    return node_->object->names;
}

void JsonReader::expect_schema(const std::string& schema) const {
    (void)choice("schema", {schema});
}

void JsonReader::skip(const std::string& key) const {
    node_->known.insert(key);
}

void JsonReader::finish() const {
    if (node_->document->policy == JsonPolicy::lenient) return;
    const std::vector<std::string> unread = node_->unread();
    if (unread.empty()) return;
    const std::string& key = unread.front();
    const std::string nearest = nearest_name(key, node_->known);
    const std::string hint = nearest.empty() ? ";" : "; did you mean " + quoted(nearest) + "?";
    const Value& value = node_->object->items[node_->object->lookup.at(key)];
    throw InputError(file() + ": " + node_->pointer_to(key) + ": unknown key, got " + printed(value) + hint +
                     " allowed keys: " + list_or_none({node_->known.begin(), node_->known.end()}));
}

std::vector<std::string> JsonReader::unread_keys() const {
    return node_->unread();
}

std::string JsonReader::shown(const std::string& key) const {
    return printed(node_->require(key, "any value"));
}

void JsonReader::fail(const std::string& key, const std::string& allowed) const {
    node_->refuse(node_->pointer_to(key), node_->require(key, allowed), allowed);
}

}  // namespace orrery
