// Other values for inputs of a plan: `orrery whatif --set PATH=a,b,c`.
#pragma once

#include <string>
#include <vector>

#include "sim/program/plan.h"

namespace orrery::cli {

/// --set, parsed.
struct InputValues {
    std::string path;                 // keys of the plan file joined by dots; numbers are places in lists
    std::vector<std::string> values;  // "50", "0.75x" (a factor), "zero1", "true", or JSON in brackets
};
/// Values are separated by commas outside brackets. Throws InputError.
[[nodiscard]] InputValues input_values(const std::string& text);

/// A plan with all values written out, whose inputs can be replaced.
class EditablePlan {
  public:
    explicit EditablePlan(const program::Plan& plan);
    /// The value at the path as text; of a figure its number. "absent" if the last key is absent and all of `values`
    /// may be added: they are "absent" or JSON in brackets. Otherwise throws InputError, listing the keys at the place
    /// where the path ends.
    [[nodiscard]] std::string value(const std::string& path, const std::vector<std::string>& values) const;
    /// The same for any path, as it stands in the file; "absent" if its last key is absent.
    [[nodiscard]] std::string value_in_file(const std::string& path) const;
    /// The paths of all positive numbers below `path` that need not be integers. Throws InputError if there is no such
    /// path.
    [[nodiscard]] std::vector<std::string> numbers_below(const std::string& path) const;
    /// The values that these become in the file, as text: of 0.5x the number. Throws InputError if a value is of the
    /// wrong kind, or if a plan cannot have a key that is added.
    [[nodiscard]] std::vector<std::string> values_in_file(const std::vector<std::string>& paths,
                                                          const std::vector<std::string>& values) const;
    /// The plan with these values, one for each path. Throws InputError as values_in_file and plan_from_json_text do.
    [[nodiscard]] program::Plan with(const std::vector<std::string>& paths,
                                     const std::vector<std::string>& values) const;

    /// `orrery.plan/1`.
    [[nodiscard]] const std::string& text() const { return text_; }

  private:
    struct Edited {
        std::string text, name;
        std::vector<std::string> values;  // in the text
        bool adds_keys = false;
    };
    [[nodiscard]] Edited edited(const std::vector<std::string>& paths, const std::vector<std::string>& values) const;

    std::string text_;
};

}  // namespace orrery::cli
