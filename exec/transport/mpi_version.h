// Which MPI carries the messages.
#pragma once

#include <string>

namespace orrery::exec {

/// As it names itself: "Open MPI v4.1.4"; nothing in a build without MPI.
[[nodiscard]] std::string mpi_version();

}  // namespace orrery::exec
