// Whole gradient tensors, assembled from the shards of all ranks, to compare plans with each other.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "exec/interpreter.h"
#include "exec/transport/transport.h"

namespace orrery::exec {

struct GlobalTensor {
    std::int64_t rows = 0;
    std::int64_t cols = 0;
    std::vector<float> values;
};
using GlobalTensors = std::map<std::string, GlobalTensor>;  // by global name, "layers.0.attention.q.weight"

/// Collective; the result is complete on rank 0 and empty elsewhere. Call it when the gradients of a step are complete.
[[nodiscard]] GlobalTensors gather_gradients(const Interpreter& interpreter, Transport& transport);

/// Writes one line of JSON (`orrery.gradients/1`: name, rows and cols of each tensor in order), followed by the values
/// as little-endian fp32, row-major.
void write_tensors(const std::string& path, const GlobalTensors& tensors);
/// Reads such a file. Throws InputError naming it if it has another format or is truncated.
[[nodiscard]] GlobalTensors read_tensors(const std::string& path);

}  // namespace orrery::exec
