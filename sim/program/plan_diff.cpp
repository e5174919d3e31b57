#include "sim/program/plan_diff.h"

#include "sim/program/diff_fields.h"

namespace orrery::program {
namespace {

constexpr const char* kDiffSchema = "orrery.diff/1";

}  // namespace

std::string to_json_text(const PlanDiff& diff) {
    JsonValue json = JsonValue::object();
    json.set("schema", JsonValue(kDiffSchema));
    write_fields(json, diff);
    return json.text(2) + "\n";
}

}  // namespace orrery::program
