#include "exec/transport/mpi_version.h"

namespace orrery::exec {

std::string mpi_version() {
    return {};
}

}  // namespace orrery::exec
