#include "sim/program/validated.h"

#include <span>

#include "core/embedded.h"
#include "sim/program/rate_fields.h"

namespace orrery {
std::span<const EmbeddedFile> validated_files();
}

namespace orrery::program {
namespace {

constexpr const char *kValidatedSchema = "orrery.validated/1", *kStacks = "implementations";

}  // namespace

const ValidatedStacks& validated_stacks() {
    static const ValidatedStacks built_in =
        validated_from_json_text(std::string(validated_files().front().content), "built-in validation");
    return built_in;
}

ValidatedStacks validated_from_json_text(const std::string& text, const std::string& file) {
    const JsonReader json = JsonReader::parse(text, file);
    json.expect_schema(kValidatedSchema);
    ValidatedStacks stacks;
    read_field(json, kStacks, stacks);
    json.finish();
    return stacks;
}

std::string to_json_text(const ValidatedStacks& stacks) {
    JsonValue json = JsonValue::object();
    json.set("schema", JsonValue(kValidatedSchema)).set(kStacks, orrery::field_json(stacks));
    return json.text(2) + "\n";
}

}  // namespace orrery::program
