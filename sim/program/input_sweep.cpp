#include "sim/program/input_sweep.h"

#include "sim/program/result_readers.h"
#include "sim/program/sweep_fields.h"

namespace orrery::program {
namespace {

constexpr const char* kWhatIfSchema = "orrery.whatif/1";

}  // namespace

std::string to_json_text(const InputSweep& sweep) {
    JsonValue json = JsonValue::object();
    json.set("schema", JsonValue(kWhatIfSchema));
    write_fields(json, sweep);
    return json.text(2) + "\n";
}

InputSweep sweep_from_json_text(const std::string& text, const std::string& file) {
    const JsonReader reader = JsonReader::parse(text, file);
    reader.expect_schema(kWhatIfSchema);
    InputSweep sweep;
    read_fields(reader, sweep);
    reader.finish();
    return sweep;
}

}  // namespace orrery::program
