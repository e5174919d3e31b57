#include "models/implementation.h"

#include <nlohmann/json.hpp>

#include "core/embedded.h"
#include "core/error.h"
#include "core/file.h"
#include "core/json_reader.h"

namespace orrery {
std::span<const EmbeddedFile> implementation_files();
}

namespace orrery::models {
namespace {

constexpr const char* kSchema = "orrery.implementation/1";
constexpr IntegerRange kVocabMultiple{1, 1 << 16};  // keeps a padded vocabulary far from overflow

}  // namespace

std::vector<std::string> implementation_names() {
    std::vector<std::string> names;
    for (const EmbeddedFile& file : implementation_files()) names.emplace_back(file.name);
    return names;
}

Implementation load_implementation(const std::string& name) {
    for (const EmbeddedFile& file : implementation_files()) {
        if (file.name == name)
            return implementation_from_json_text(std::string(file.content), "implementation " + name);
    }
    const std::vector<std::string> names = implementation_names();
    std::string list;
    for (const std::string& known : names) list += (list.empty() ? "" : ", ") + known;
    const std::string nearest = nearest_name(name, names);
    throw InputError("implementation \"" + name + "\": no implementation has this name" +
                     (nearest.empty() ? ";" : "; did you mean \"" + nearest + "\"?") + " allowed: " + list);
}

std::string to_json_text(const Implementation& implementation) {
    nlohmann::ordered_json json;
    json["schema"] = kSchema;
    json["name"] = implementation.name;
    json["version"] = implementation.version;
    json["source"] = implementation.source;
    json["fused_attention"] = implementation.fused_attention;
    json["causal_skip"] = implementation.causal_skip;
    json["executable"] = implementation.executable;
    json["default_dropout"] = implementation.default_dropout;
    json["vocab_multiple"] = implementation.vocab_multiple;
    json["ddp_bucket_bytes"] = implementation.ddp_bucket_bytes;
    json["ddp_first_bucket_bytes"] = implementation.ddp_first_bucket_bytes;
    return json.dump(2) + "\n";
}

Implementation implementation_from_json(const JsonReader& reader) {
    reader.expect_schema(kSchema);
    Implementation result;
    result.name = reader.string("name");
    result.version = reader.string("version");
    result.source = reader.string("source");
    result.fused_attention = reader.boolean("fused_attention");
    result.causal_skip = reader.boolean("causal_skip");
    result.executable = reader.boolean("executable");
    result.default_dropout = reader.number("default_dropout", kFraction);
    if (result.default_dropout >= 1) reader.fail("default_dropout", "a number of at least 0 and below 1");
    result.vocab_multiple = reader.integer("vocab_multiple", kVocabMultiple);
    result.ddp_bucket_bytes = reader.integer("ddp_bucket_bytes", kPositiveInteger);
    result.ddp_first_bucket_bytes = reader.integer("ddp_first_bucket_bytes", kPositiveInteger);
    reader.finish();
    return result;
}

Implementation implementation_from_json_text(const std::string& text, const std::string& file) {
    return implementation_from_json(JsonReader::parse(text, file));
}

}  // namespace orrery::models
