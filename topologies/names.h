// Hints for errors about unknown names.
#pragma once

#include <string>
#include <vector>

#include "core/file.h"

namespace orrery::topologies {

[[nodiscard]] inline std::string join_names(const std::vector<std::string>& names) {
    std::string text;
    for (const std::string& name : names) text += (text.empty() ? "" : ", ") + name;
    return text;
}

/// "; did you mean 'X'?; allowed: A, B, X"
[[nodiscard]] inline std::string hint_and_names(const std::string& name, const std::vector<std::string>& names) {
    const std::string near = nearest_name(name, names);
    return (near.empty() ? "" : "; did you mean '" + near + "'?") + "; allowed: " + join_names(names);
}

}  // namespace orrery::topologies
