// Transport functions built from gather() and broadcast(), common to all implementations.
#include "exec/transport/transport.h"

namespace orrery::exec {

std::string Transport::first_of(const std::string& mine) {
    std::string first;
    for (const std::string& one : gather(mine)) first = first.empty() ? one : first;
    return broadcast(first);
}

}  // namespace orrery::exec
