// The reductions of the emulated NCCL.
#pragma once

#include <nccl.h>

#include <cstddef>
#include <vector>

namespace emulated {

/// Bytes of an element.
[[nodiscard]] std::size_t size_of(ncclDataType_t type);

/// out[i] = the reduction of parts[0][i], parts[1][i], … in this order. Sums of bf16 are rounded after each addition.
void combine(const std::vector<const std::byte*>& parts, std::byte* out, std::size_t elements, ncclDataType_t type,
             ncclRedOp_t reduce);

}  // namespace emulated
