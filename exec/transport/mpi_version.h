// The MPI library in use.
#pragma once

#include <string>

namespace orrery::exec {

/// Its name and version, "Open MPI v4.1.4"; "" in a build without MPI.
[[nodiscard]] std::string mpi_version();

}  // namespace orrery::exec
