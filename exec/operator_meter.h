// Times operators in whole training steps of small models on one rank, so that each operator finds the caches as the
// operators before it leave them.
#pragma once

#include <cstdint>

#include "exec/operator_samples.h"
#include "exec/transport/transport.h"

namespace orrery::exec {

/// Of which models operators are timed: of none, of the smallest, which take a second, or of all.
enum class TimedOperators : std::uint8_t { none, of_smallest, of_all };

/// All ranks train the same models one after the other, at the same time and independently of each other. A model that
/// needs more than this rank's share of the free memory is skipped; throws JobError if all models are skipped.
void measure_operators(Transport& transport, TimedOperators which, OperatorSamples& samples);

}  // namespace orrery::exec
