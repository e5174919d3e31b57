// Mixture of experts on an NVIDIA GPU, as in kernels/experts.h. Numbers of rows are in device memory, and the host does
// not know them: grids cover the most rows that there may be.
#pragma once

#include <cstdint>

#include "kernels/cuda/floats.h"
#include "kernels/cuda/stream.h"
#include "kernels/experts.h"

namespace orrery::kernels::cuda {

// ---- router ---------------------------------------------------------------------------------------------------------

/// The largest top_k, and the largest number of groups of experts.
inline constexpr std::int64_t kMostChoices = 32;
inline constexpr std::int64_t kMostExpertGroups = 64;

void router_forward(StreamHandle stream, const RouterShape& shape, ConstFloats logits, const float* correction,
                    Floats probabilities, std::int32_t* experts);
void router_backward(StreamHandle stream, const RouterShape& shape, ConstFloats dprobabilities,
                     ConstFloats probabilities, const std::int32_t* experts, ConstFloats logits, Floats dlogits);

// ---- rows by expert -------------------------------------------------------------------------------------------------

/// count_experts() and expert_rows() in one.
void sort_by_expert(StreamHandle stream, std::int64_t choices, std::int64_t experts, const std::int32_t* chosen,
                    std::int64_t* counts, std::int32_t* rows);
void permute_forward(StreamHandle stream, const PermuteShape& shape, ConstFloats x, const std::int32_t* rows, Floats y);
void permute_backward(StreamHandle stream, const PermuteShape& shape, ConstFloats dy, const std::int32_t* rows,
                      Floats dx);
void combine_forward(StreamHandle stream, const PermuteShape& shape, ConstFloats y, ConstFloats probabilities,
                     const std::int32_t* rows, Floats out);
void combine_backward(StreamHandle stream, const PermuteShape& shape, ConstFloats dout, ConstFloats y,
                      ConstFloats probabilities, const std::int32_t* rows, Floats dy, Floats dprobabilities);

/// `most_rows`: that x and y have memory for. The counts are in device memory.
void group_by_expert(StreamHandle stream, const ReceivedRows& shape, std::int64_t most_rows, ConstFloats x, Floats y);
void group_by_source(StreamHandle stream, const ReceivedRows& shape, std::int64_t most_rows, ConstFloats x, Floats y);

// ---- GEMMs per expert -----------------------------------------------------------------------------------------------

/// The counts are not yet summed over the sources, and in device memory.
struct ReceivedLinearShape {
    std::int64_t sources = 0;
    std::int64_t groups = 0;  // G
    std::int64_t n = 0;       // output width
    std::int64_t k = 0;       // input width
    std::int64_t most_rows = 0;
    const std::int64_t* counts = nullptr;
};
void expert_linear_forward(StreamHandle stream, const ReceivedLinearShape& shape, ConstFloats x, ConstFloats weight,
                           Floats y);
void expert_linear_backward_input(StreamHandle stream, const ReceivedLinearShape& shape, ConstFloats dy,
                                  ConstFloats weight, Floats dx);
void expert_linear_backward_weight(StreamHandle stream, const ReceivedLinearShape& shape, ConstFloats dy, ConstFloats x,
                                   Floats dweight);

}  // namespace orrery::kernels::cuda
