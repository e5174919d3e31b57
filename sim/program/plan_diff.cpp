#include "sim/program/plan_diff.h"

#include "sim/program/diff_fields.h"

namespace orrery::program {
namespace {

constexpr const char* kDiffSchema = "orrery.diff/1";

}  // namespace

std::string to_json_text(const PlanDiff& diff) {
    return document_text(kDiffSchema, diff);
}

PlanDiff diff_from_json_text(const std::string& text, const std::string& file) {
    return object_of_document<PlanDiff>(kDiffSchema, text, file);
}

}  // namespace orrery::program
