#include "sim/program/input_sweep.h"

#include "sim/program/sweep_fields.h"

namespace orrery::program {
namespace {

constexpr const char* kWhatIfSchema = "orrery.whatif/1";

}  // namespace

std::string to_json_text(const SweepPoint& point) {
    JsonValue json = JsonValue::object();
    write_fields(json, point);
    return json.text();
}

SweepPoint sweep_point_from_json_text(const std::string& text, const std::string& file) {
    const JsonReader reader = JsonReader::parse(text, file);
    SweepPoint point;
    read_fields(reader, point);
    reader.finish();
    return point;
}

std::string to_json_text(const InputSweep& sweep) {
    JsonValue json = JsonValue::object();
    json.set("schema", JsonValue(kWhatIfSchema));
    write_fields(json, sweep);
    return json.text(2) + "\n";
}

}  // namespace orrery::program
