// The machine and software that a run was measured on, for the environment of a RunRecord. Never compared.
#pragma once

#include <map>
#include <string>

#include "exec/transport/transport.h"

namespace orrery::exec {

/// Host, date, processor, cores, ranks on the host, kernel, BLAS, MPI, compiler and Orrery version of this rank.
/// Entries that the system does not report are left out.
[[nodiscard]] std::map<std::string, std::string> describe_environment(const Transport& transport);

}  // namespace orrery::exec
