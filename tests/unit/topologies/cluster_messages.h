// The message with which a file of a cluster is refused.
#pragma once

#include <string>

#include "core/error.h"
#include "topologies/cluster.h"

namespace orrery::topologies {

/// Empty if the file is accepted.
inline std::string refusal_of(const std::string& text) {
    try {
        (void)cluster_from_json_text(text, "test.json");
    } catch (const InputError& error) {
        return error.what();
    }
    return "";
}

}  // namespace orrery::topologies
