// How well predictions of each implementation hold on published runs.
#pragma once

#include <cstdint>
#include <map>
#include <string>

namespace orrery::program {

/// `orrery.validated/1`: of step times, predicted / measured - 1, each run by rates that were fitted without it. Median
/// and mean of the absolute errors, mean of the signed ones.
struct ValidatedStack {
    std::int64_t runs = 0;
    double median = 0, mean = 0, bias = 0;
    bool operator==(const ValidatedStack&) const = default;
};
using ValidatedStacks = std::map<std::string, ValidatedStack>;  // by Implementation::name

/// By the built-in rates' cross-validation; implementations without a published run are not there.
[[nodiscard]] const ValidatedStacks& validated_stacks();
[[nodiscard]] ValidatedStacks validated_from_json_text(const std::string& text, const std::string& file);
[[nodiscard]] std::string to_json_text(const ValidatedStacks& stacks);

}  // namespace orrery::program
