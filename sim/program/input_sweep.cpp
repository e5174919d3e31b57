#include "sim/program/input_sweep.h"

#include "core/error.h"
#include "sim/program/result_readers.h"
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

InputSweep sweep_from_json_text(const std::string& text, const std::string& file) {
    const JsonReader reader = JsonReader::parse(text, file);
    reader.expect_schema(kWhatIfSchema);
    InputSweep sweep;
    read_fields(reader, sweep);
    reader.finish();
    const auto check = [&](const std::string& key, const std::vector<std::string>& values) {
        if (values.size() == sweep.paths.size()) return;
        throw InputError(file, key, std::to_string(values.size()) + " values", "one for each of /paths");
    };
    check("/base_values", sweep.base_values);
    for (std::size_t i = 0; i < sweep.points.size(); ++i) {
        check("/points/" + std::to_string(i) + "/values", sweep.points[i].values);
    }
    return sweep;
}

}  // namespace orrery::program
