// Cross entropy over a sharded vocabulary on an NVIDIA GPU, as in kernels/kernels.h.
#pragma once

#include <cstdint>

#include "kernels/cuda/floats.h"
#include "kernels/cuda/stream.h"
#include "kernels/kernels.h"

namespace orrery::kernels::cuda {

void cross_entropy_max(StreamHandle stream, const VocabShard& shape, ConstFloats logits, float* row_max);
void cross_entropy_sum(StreamHandle stream, const VocabShard& shape, ConstFloats logits, const float* row_max,
                       const std::int32_t* targets, float* sums, Floats exponentials);
/// cross_entropy_max() and cross_entropy_sum() in one pass over the logits, without exponentials.
void cross_entropy_online(StreamHandle stream, const VocabShard& shape, ConstFloats logits, const std::int32_t* targets,
                          float* row_max, float* sums);
void cross_entropy_loss(StreamHandle stream, std::int64_t rows, const float* row_max, const float* sums, float* lse,
                        double* loss);
void cross_entropy_loss_of_parts(StreamHandle stream, std::int64_t rows, std::int64_t parts, std::int64_t n,
                                 const float* row_max, const float* sums, const std::int32_t* targets, float* lse,
                                 double* loss);
void cross_entropy_backward(StreamHandle stream, const VocabShard& shape, float scale, const float* lse,
                            const std::int32_t* targets, Floats logits);
void cross_entropy_backward_of_exponentials(StreamHandle stream, const VocabShard& shape, float scale,
                                            const float* row_max, const float* lse, const std::int32_t* targets,
                                            Floats exponentials);
void cross_entropy_correct(StreamHandle stream, const VocabShard& shape, std::int64_t width, float scale,
                           const float* row_max, const float* lse, const std::int32_t* targets, ConstFloats weight,
                           Floats dx);

}  // namespace orrery::kernels::cuda
