#include "models/model_checks.h"

#include <algorithm>
#include <array>
#include <charconv>

#include "core/error.h"

namespace orrery::models {
namespace {

std::string printed(double value) {
    std::array<char, 32> buffer{};
    return std::string(buffer.data(), std::to_chars(buffer.data(), buffer.data() + buffer.size(), value).ptr);
}

class Checker {
  public:
    Checker(const std::string& source, const std::function<std::string(const std::string&)>& pointer_of)
        : source_(source), pointer_of_(pointer_of) {}

    void range(const std::string& key, std::int64_t value, std::int64_t low, std::int64_t high) const {
        if (value < low || value > high) {
            fail(key, std::to_string(value), "an integer from " + std::to_string(low) + " to " + std::to_string(high));
        }
    }
    /// Written so that a NaN is refused too.
    void positive(const std::string& key, double value, double below) const {
        if (!(value > 0 && value < below)) {
            fail(key, printed(value), "a number greater than 0 and below " + printed(below));
        }
    }
    [[noreturn]] void fail(const std::string& key, const std::string& value, const std::string& allowed) const {
        throw InputError(source_, pointer_of_(key), value, allowed);
    }

  private:
    const std::string& source_;
    const std::function<std::string(const std::string&)>& pointer_of_;
};

void check_dimensions(const ModelSpec& model, const Checker& check) {
    // The upper limits are far above any model and low enough that no count of parameters or bytes can overflow.
    check.range("layers", model.layers, 1, 1 << 14);
    check.range("hidden", model.hidden, 1, 1 << 18);
    check.range("heads", model.heads, 1, 1 << 12);
    check.range("kv_heads", model.kv_heads, 1, model.heads);
    check.range("head_dim", model.head_dim, 1, 1 << 12);
    check.range("ffn_hidden", model.ffn_hidden, 1, 1 << 20);
    check.range("vocab", model.vocab, 2, 1 << 24);
    check.range("max_positions", model.max_positions, 1, 1 << 30);
    check.range("sliding_window", model.sliding_window, 0, 1 << 30);
    if (model.heads % model.kv_heads != 0) {
        check.fail("kv_heads", std::to_string(model.kv_heads),
                   "a divisor of the number of heads, " + std::to_string(model.heads));
    }
}

void check_rotary(const ModelSpec& model, const Checker& check) {
    const ModelSpec::RopeScaling& scaling = model.rope_scaling;
    if (model.position == PositionKind::learned) {
        if (scaling != ModelSpec::RopeScaling{}) {
            check.fail("rope_scaling", "\"" + scaling.type + "\"", "none: positions are learned");
        }
        if (model.rope_theta != ModelSpec{}.rope_theta) {
            check.fail("rope_theta", printed(model.rope_theta), "none: positions are learned");
        }
        return;
    }
    if (model.head_dim % 2 != 0) {
        check.fail("head_dim", std::to_string(model.head_dim), "an even number, because positions are rotary");
    }
    check.positive("rope_theta", model.rope_theta, 1e15);
    if (scaling.type == "none") {
        if (scaling != ModelSpec::RopeScaling{}) {
            check.fail("rope_scaling/factor", printed(scaling.factor), "no figures when the type is \"none\"");
        }
        return;
    }
    if (scaling.type != "llama3") check.fail("rope_scaling/type", "\"" + scaling.type + "\"", "\"none\", \"llama3\"");
    check.positive("rope_scaling/factor", scaling.factor, 1e6);
    check.positive("rope_scaling/low_frequency_factor", scaling.low_frequency_factor, 1e6);
    check.positive("rope_scaling/high_frequency_factor", scaling.high_frequency_factor, 1e6);
    if (scaling.high_frequency_factor <= scaling.low_frequency_factor) {
        check.fail("rope_scaling/high_frequency_factor", printed(scaling.high_frequency_factor),
                   "a number greater than low_frequency_factor, " + printed(scaling.low_frequency_factor));
    }
    check.range("rope_scaling/original_max_positions", scaling.original_max_positions, 1, 1 << 30);
}

}  // namespace

void check_model(const ModelSpec& model, const std::string& source) {
    check_model(model, source, [](const std::string& key) { return "/" + key; });
}

void check_model(const ModelSpec& model, const std::string& source,
                 const std::function<std::string(const std::string&)>& pointer_of) {
    const Checker check(source, pointer_of);
    if (model.name.empty()) check.fail("name", "\"\"", "a name");
    const std::vector<std::string>& families = family_names();
    if (std::find(families.begin(), families.end(), model.family) == families.end()) {
        std::string list;
        for (const std::string& family : families) list += (list.empty() ? "\"" : ", \"") + family + "\"";
        check.fail("family", "\"" + model.family + "\"", list);
    }
    check_dimensions(model, check);
    check_rotary(model, check);
    check.positive("norm_epsilon", model.norm_epsilon, 1);
}

const std::vector<std::string>& family_names() {
    static const std::vector<std::string> names{"gpt2", "llama", "mistral", "qwen2", "qwen3"};
    return names;
}

}  // namespace orrery::models
