#include "sim/program/capacity_answer.h"

#include "core/enum_names.h"
#include "sim/program/capacity_fields.h"
#include "sim/program/result_readers.h"

namespace orrery::program {
namespace {

constexpr const char* kCapacitySchema = "orrery.capacity/1";
constexpr auto kCapacityLimitNames =
    name_table<CapacityLimit::none>({"deadline", "memory", "usd", "megawatts", "devices", "scaling", "none"});

}  // namespace

std::string_view name_of(CapacityLimit limit) {
    return kCapacityLimitNames[limit];
}

std::string to_json_text(const Capacity& capacity) {
    JsonValue json = JsonValue::object();
    json.set("schema", JsonValue(kCapacitySchema));
    write_fields(json, capacity);
    return json.text(2) + "\n";
}

Capacity capacity_from_json_text(const std::string& text, const std::string& file) {
    const JsonReader reader = JsonReader::parse(text, file);
    reader.expect_schema(kCapacitySchema);
    Capacity capacity;
    read_fields(reader, capacity);
    reader.finish();
    return capacity;
}

}  // namespace orrery::program
