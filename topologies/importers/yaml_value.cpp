#include "topologies/importers/yaml_value.h"

#include <yaml-cpp/eventhandler.h>
#include <yaml-cpp/yaml.h>

#include <algorithm>
#include <set>
#include <sstream>
#include <utility>

#include "core/enum_names.h"
#include "core/error.h"

namespace orrery::topologies {
namespace {

constexpr std::size_t kMostLevels = 64;
constexpr std::size_t kMostYamlBytes = std::size_t{16} << 20;

std::string kind_name(YamlValue::Kind kind) {
    static constexpr auto kNames = name_table<YamlValue::Kind::map>({"nothing", "a scalar", "a list", "a map"});
    return std::string(kNames[kind]);
}

/// Builds the tree from the parser's events: yaml-cpp's own nodes would share aliased values.
class Builder : public YAML::EventHandler {
  public:
    explicit Builder(const std::string& file) : file_(file) {}

    [[nodiscard]] YamlValue take() { return std::move(root_); }

    void OnDocumentStart(const YAML::Mark& /*mark*/) override {}
    void OnDocumentEnd() override {}
    void OnNull(const YAML::Mark& mark, YAML::anchor_t anchor) override {
        begin(mark, "", anchor, YamlValue::Kind::null);
    }
    void OnAlias(const YAML::Mark& mark, YAML::anchor_t /*anchor*/) override { refuse(mark, "an alias"); }
    void OnScalar(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                  const std::string& value) override {
        if (is_key()) {
            check(mark, tag, anchor);
            add_key(mark, value);
        } else {
            begin(mark, tag, anchor, YamlValue::Kind::scalar).scalar = value;
        }
    }
    void OnSequenceStart(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                         YAML::EmitterStyle::value /*style*/) override {
        open(begin(mark, tag, anchor, YamlValue::Kind::list), mark);
    }
    void OnSequenceEnd() override { close(); }
    void OnMapStart(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                    YAML::EmitterStyle::value /*style*/) override {
        open(begin(mark, tag, anchor, YamlValue::Kind::map), mark);
    }
    void OnMapEnd() override { close(); }

  private:
    [[noreturn]] void refuse(const YAML::Mark& mark, const std::string& what) const {
        throw InputError(line_place(file_, static_cast<std::size_t>(std::max(mark.line, 0))) + ": got " + what +
                         "; allowed: maps with plain keys, lists and scalars");
    }

    void check(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor) {
        if (anchor != YAML::NullAnchor) refuse(mark, "an anchor");
        if (!tag.empty() && tag != "?" && tag != "!") refuse(mark, "the tag " + shown(tag));
        if (++values_ > kMostForeignItems) refuse(mark, "more than " + std::to_string(kMostForeignItems) + " values");
    }

    /// Whether the next scalar is a key: inside a map, with no key waiting for its value.
    [[nodiscard]] bool is_key() const {
        return !open_.empty() && open_.back()->kind == YamlValue::Kind::map && !has_key_.back();
    }

    void add_key(const YAML::Mark& mark, const std::string& key) {
        YamlValue& map = *open_.back();
        if (!keys_.back().insert(key).second) refuse(mark, "the key " + shown(key) + " twice");
        map.map.push_back({key, {}});
        has_key_.back() = true;
    }

    YamlValue& begin(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor, YamlValue::Kind kind) {
        check(mark, tag, anchor);
        if (is_key()) refuse(mark, "a key that is " + kind_name(kind));
        YamlValue* value = &root_;
        if (!open_.empty() && open_.back()->kind == YamlValue::Kind::list) {
            value = &open_.back()->list.emplace_back();
        } else if (!open_.empty()) {
            value = &open_.back()->map.back().value;
            has_key_.back() = false;
        }
        value->kind = kind;
        value->line = mark.line + 1;
        return *value;
    }

    /// The pointer to an open container stays valid: its parent gets no other child until it closes.
    void open(YamlValue& value, const YAML::Mark& mark) {
        if (open_.size() >= kMostLevels) refuse(mark, "more than " + std::to_string(kMostLevels) + " levels");
        open_.push_back(&value);
        has_key_.push_back(false);
        keys_.emplace_back();
    }
    void close() {
        open_.pop_back();
        has_key_.pop_back();
        keys_.pop_back();
    }

    const std::string& file_;
    YamlValue root_;
    std::vector<YamlValue*> open_;
    std::vector<bool> has_key_;
    std::vector<std::set<std::string>> keys_;
    std::int64_t values_ = 0;
};

}  // namespace

const YamlValue* YamlValue::find(const std::string& key) const {
    const auto found = std::find_if(map.begin(), map.end(), [&](const auto& one) { return one.key == key; });
    return found == map.end() ? nullptr : &found->value;
}

YamlValue yaml_from_text(const std::string& text, const std::string& file) {
    check_foreign_text(text, file);
    if (text.size() > kMostYamlBytes) {
        throw InputError(file, "size", std::to_string(text.size()) + " bytes", "at most 16 MiB of YAML");
    }
    std::istringstream stream(text);
    Builder builder(file);
    try {
        YAML::Parser parser(stream);
        parser.HandleNextDocument(builder);
        YamlValue first = builder.take();
        Builder second(file);
        if (parser.HandleNextDocument(second)) throw InputError(file + ": got a second document; allowed: one");
        return first;
    } catch (const YAML::Exception& error) {
        throw InputError(line_place(file, static_cast<std::size_t>(std::max(error.mark.line, 0))) +
                         ": not well-formed YAML: " + error.msg);
    }
}

void expect_kind(const YamlValue& value, YamlValue::Kind kind, const std::string& file, const std::string& what) {
    if (value.kind == kind) return;
    throw InputError(line_place(file, static_cast<std::size_t>(value.line - 1)), what,
                     value.kind == YamlValue::Kind::scalar ? shown(value.scalar) : kind_name(value.kind),
                     kind_name(kind));
}

}  // namespace orrery::topologies
