// On what a run was measured: volatile facts for the environment of a RunRecord, never compared.
#pragma once

#include <map>
#include <string>

#include "exec/transport/transport.h"

namespace orrery::exec {

/// Of this rank's machine and process: host, date, processor, cores, kernel, the libraries that compute and carry, the
/// compiler and version of orrery. What the system does not tell is left out.
[[nodiscard]] std::map<std::string, std::string> describe_environment(const Transport& transport);

}  // namespace orrery::exec
