#include "exec/transport/mpi_version.h"

#include "exec/transport/mpi_state.h"

namespace orrery::exec {

std::string mpi_version() {
    char text[MPI_MAX_LIBRARY_VERSION_STRING] = {};
    int length = 0;
    MPI_Get_library_version(text, &length);
    const std::string version(text, static_cast<std::size_t>(length));
    return version.substr(0, version.find_first_of(",\n"));
}

}  // namespace orrery::exec
