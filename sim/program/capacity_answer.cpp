#include "sim/program/capacity_answer.h"

#include "core/enum_names.h"
#include "sim/program/capacity_fields.h"

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
    return document_text(kCapacitySchema, capacity);
}

Capacity capacity_from_json_text(const std::string& text, const std::string& file) {
    return object_of_document<Capacity>(kCapacitySchema, text, file);
}

}  // namespace orrery::program
