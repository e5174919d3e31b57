#include "sim/program/crossover.h"

#include "sim/program/crossover_fields.h"

namespace orrery::program {
namespace {

constexpr const char* kCrossoverSchema = "orrery.crossover/1";

}  // namespace

std::string to_json_text(const Crossover& crossover) {
    return document_text(kCrossoverSchema, crossover);
}

Crossover crossover_from_json_text(const std::string& text, const std::string& file) {
    return object_of_document<Crossover>(kCrossoverSchema, text, file);
}

}  // namespace orrery::program
