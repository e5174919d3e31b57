#include "sim/program/crossover.h"

#include "sim/program/crossover_fields.h"

namespace orrery::program {
namespace {

constexpr const char* kCrossoverSchema = "orrery.crossover/1";

}  // namespace

std::string to_json_text(const Crossover& crossover) {
    JsonValue json = JsonValue::object();
    json.set("schema", JsonValue(kCrossoverSchema));
    write_fields(json, crossover);
    return json.text(2) + "\n";
}

}  // namespace orrery::program
