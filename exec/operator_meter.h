// Times operators in whole training steps of small models on one rank, so that each operator finds the caches as the
// operators before it leave them.
#pragma once

#include "exec/operator_samples.h"
#include "exec/transport/transport.h"

namespace orrery::exec {

/// All ranks train the same models one after the other, at the same time and independently of each other. A model that
/// needs more than this rank's share of the free memory is skipped; throws JobError if all models are skipped.
void measure_operators(Transport& transport, OperatorSamples& samples);

}  // namespace orrery::exec
