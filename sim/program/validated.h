// The accuracy of the predictions for published runs, by implementation.
#pragma once

#include <cstdint>
#include <map>
#include <string>

namespace orrery::program {

/// An entry of `orrery.validated/1`. The error of a run is predicted / measured - 1 of its step time, predicted with
/// rates that were fitted without this run. `median` and `mean` are of the absolute errors, `bias` is the mean of the
/// signed errors.
struct ValidatedStack {
    std::int64_t runs = 0;
    double median = 0, mean = 0, bias = 0;
    bool operator==(const ValidatedStack&) const = default;
};
using ValidatedStacks = std::map<std::string, ValidatedStack>;  // by Implementation::name

/// The result of cross-validating the built-in rates; implementations without a published run have no entry.
[[nodiscard]] const ValidatedStacks& validated_stacks();
[[nodiscard]] ValidatedStacks validated_from_json_text(const std::string& text, const std::string& file);
[[nodiscard]] std::string to_json_text(const ValidatedStacks& stacks);

}  // namespace orrery::program
