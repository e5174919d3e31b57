// Frameworks differ in what they issue and keep, not only in speed. An Implementation is that difference as data.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace orrery {
class JsonReader;
}

namespace orrery::models {

struct Implementation {
    std::string name;  // "orrery", "megatron-lm-2022"
    std::string version;
    bool fused_attention = true;  // true: scores are never stored whole, only the log-sum-exp is saved
    bool causal_skip = true;      // true: attention computes only the lower triangle (FLOPs about half)
    bool executable = false;      // the executor runs it
    double default_dropout = 0.0;
    std::int64_t vocab_multiple = 128;         // padded vocabulary is a multiple of this times tp_degree
    std::int64_t ddp_bucket_bytes = 25 << 20;  // a bucket closes when it holds at least this much
    std::int64_t ddp_first_bucket_bytes = 1 << 20;
    std::string source;  // where these facts were read
    bool operator==(const Implementation&) const = default;
};

/// By name; throws InputError with the known names.
[[nodiscard]] Implementation load_implementation(const std::string& name);
[[nodiscard]] std::vector<std::string> implementation_names();
[[nodiscard]] std::string to_json_text(const Implementation& implementation);
[[nodiscard]] Implementation implementation_from_json_text(const std::string& text, const std::string& file);
/// The same from an object inside another document, whose pointers the errors then carry.
[[nodiscard]] Implementation implementation_from_json(const JsonReader& reader);

}  // namespace orrery::models
