// A timed operator as the sample of a device profile that it makes.
#pragma once

#include <vector>

#include "models/operator.h"
#include "topologies/profile.h"

namespace orrery::program {

/// Adds to the one or the other, by kind. `seconds` > 0, of the whole operator.
void add_sample(const models::Operator& op, double seconds, std::vector<topologies::MatmulSample>& matmuls,
                std::vector<topologies::OperatorSample>& operators);

}  // namespace orrery::program
