// Whole gradient tensors, put together from the shards of all ranks: how plans are compared with each other.
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

/// Collective. Complete on rank 0, empty elsewhere. To be called where the gradients of a step are complete.
[[nodiscard]] GlobalTensors gather_gradients(const Interpreter& interpreter, Transport& transport);

/// File: one line of JSON, `orrery.gradients/1` with name, rows and cols of each tensor in order, then the values as
/// little-endian fp32, row-major.
void write_tensors(const std::string& path, const GlobalTensors& tensors);
/// Throws InputError naming the file when it is not such a file or is truncated.
[[nodiscard]] GlobalTensors read_tensors(const std::string& path);

}  // namespace orrery::exec
