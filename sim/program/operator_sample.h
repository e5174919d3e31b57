// Converts a timed operator into a sample of a device profile.
#pragma once

#include <vector>

#include "models/operator.h"
#include "topologies/profile.h"

namespace orrery::program {

/// Adds a GEMM to `matmuls`, any other operator to `operators`. `seconds` is the time of the whole operator, > 0.
void add_sample(const models::Operator& op, double seconds, std::vector<topologies::MatmulSample>& matmuls,
                std::vector<topologies::OperatorSample>& operators);

}  // namespace orrery::program
