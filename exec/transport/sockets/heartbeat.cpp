// The Heartbeat of builds without MPI: there is none. A rank that hangs is found by whoever started the ranks, or by
// the time-out of the collective that waits for it.
#include "exec/transport/heartbeat.h"

namespace orrery::exec {

struct Heartbeat::Ring {};

Heartbeat::Heartbeat(const program::Program& /*program*/, Transport& /*transport*/, double /*timeout_s*/)
    : timeout_s_(0) {}
Heartbeat::~Heartbeat() = default;

}  // namespace orrery::exec
