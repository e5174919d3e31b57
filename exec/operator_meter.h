// Times operators as training runs them: in whole steps of small models on one rank, so that each finds in the caches
// what the operators before it have left there.
#pragma once

#include "exec/operator_samples.h"
#include "exec/transport/transport.h"

namespace orrery::exec {

/// Every rank trains by itself, all at the same time, the same models one after the other. What needs more memory than
/// is this rank's share of the free is left out; throws JobError when that is all.
void measure_operators(Transport& transport, OperatorSamples& samples);

}  // namespace orrery::exec
