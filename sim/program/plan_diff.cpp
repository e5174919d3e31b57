#include "sim/program/plan_diff.h"

#include "sim/program/diff_fields.h"
#include "sim/program/result_readers.h"

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

PlanDiff diff_from_json_text(const std::string& text, const std::string& file) {
    const JsonReader reader = JsonReader::parse(text, file);
    reader.expect_schema(kDiffSchema);
    PlanDiff diff;
    read_fields(reader, diff);
    reader.finish();
    return diff;
}

}  // namespace orrery::program
