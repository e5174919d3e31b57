#include "sim/program/plan_list.h"

#include <nlohmann/json.hpp>

#include "core/error.h"
#include "core/file.h"
#include "core/json_reader.h"

namespace orrery::program {
namespace {

using Json = nlohmann::ordered_json;

constexpr const char* kListSchema = "orrery.plan_list/1";

bool is_list(const std::string& text, const std::string& path) {
    const JsonReader reader = JsonReader::parse(text, path, JsonPolicy::lenient);
    return reader.has("schema") && reader.kind("schema") == JsonKind::string && reader.string("schema") == kListSchema;
}

}  // namespace

std::vector<Plan> read_plans(const std::string& path) {
    const std::string text = read_text_file(path);
    if (!is_list(text, path)) return {plan_from_json_text(text, path)};
    const JsonReader reader = JsonReader::parse(text, path);
    reader.expect_schema(kListSchema);
    const JsonReader base = reader.object("base");
    const JsonReader own = reader.object("plans");
    reader.finish();
    if (base.has("name")) base.fail("name", "no name: a plan's is its key under /plans");
    if (own.keys().empty()) reader.fail("plans", "at least one plan");
    const Json document = Json::parse(text);
    std::vector<Plan> plans;
    for (const std::string& name : own.keys()) {
        (void)own.object(name);  // throws unless it is an object
        Json plan = document["base"];
        plan.merge_patch(document["plans"][name]);
        plan["schema"] = "orrery.plan/1";
        plan["name"] = name;
        plans.push_back(plan_from_json_text(plan.dump(), path + ": /plans/" + name));
    }
    return plans;
}

}  // namespace orrery::program
