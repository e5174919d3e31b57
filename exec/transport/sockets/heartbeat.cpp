// Builds without MPI have no heartbeat. A hanging rank is detected by the ranks' launcher, or by the timeout of a
// collective that waits for it.
#include "exec/transport/heartbeat.h"

namespace orrery::exec {

struct Heartbeat::Ring {};

Heartbeat::Heartbeat(const program::Program& /*program*/, Transport& /*transport*/, double /*timeout_s*/)
    : timeout_s_(0) {}
Heartbeat::~Heartbeat() = default;

}  // namespace orrery::exec
