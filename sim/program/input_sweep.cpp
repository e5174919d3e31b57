#include "sim/program/input_sweep.h"

#include "core/error.h"
#include "sim/program/sweep_fields.h"

namespace orrery::program {
namespace {

constexpr const char* kWhatIfSchema = "orrery.whatif/1";

}  // namespace

std::string to_json_text(const SweepPoint& point) {
    return object_text(point);
}

SweepPoint sweep_point_from_json_text(const std::string& text, const std::string& file) {
    return object_of_text<SweepPoint>(text, file);
}

std::string to_json_text(const InputSweep& sweep) {
    return document_text(kWhatIfSchema, sweep);
}

InputSweep sweep_from_json_text(const std::string& text, const std::string& file) {
    InputSweep sweep = object_of_document<InputSweep>(kWhatIfSchema, text, file);
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
