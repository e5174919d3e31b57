#include "sim/program/validated.h"

#include <nlohmann/json.hpp>
#include <span>

#include "core/embedded.h"
#include "core/json_reader.h"

namespace orrery {
std::span<const EmbeddedFile> validated_files();
}

namespace orrery::program {
namespace {

constexpr const char* kSchema = "orrery.validated/1";

}  // namespace

const ValidatedStacks& validated_stacks() {
    static const ValidatedStacks built_in =
        validated_from_json_text(std::string(validated_files().front().content), "built-in validation");
    return built_in;
}

ValidatedStacks validated_from_json_text(const std::string& text, const std::string& file) {
    const JsonReader json = JsonReader::parse(text, file);
    json.expect_schema(kSchema);
    ValidatedStacks stacks;
    const JsonReader all = json.object("implementations");
    for (const std::string& name : all.keys()) {
        const JsonReader one = all.object(name);
        stacks[name] = {.runs = one.integer("runs", kPositiveInteger),
                        .median = one.number("median", kNotNegative),
                        .mean = one.number("mean", kNotNegative),
                        .bias = one.number("bias", {-1, kLargestNumber})};
        one.finish();
    }
    json.finish();
    return stacks;
}

std::string to_json_text(const ValidatedStacks& stacks) {
    nlohmann::ordered_json json{{"schema", kSchema}, {"implementations", nlohmann::ordered_json::object()}};
    for (const auto& [name, one] : stacks) {
        json["implementations"][name] = {
            {"runs", one.runs}, {"median", one.median}, {"mean", one.mean}, {"bias", one.bias}};
    }
    return json.dump(2) + "\n";
}

}  // namespace orrery::program
