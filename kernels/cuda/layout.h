// The GPU kernels of layout changes around communication; see kernels/layout.h.
#pragma once

#include "kernels/cuda/floats.h"
#include "kernels/cuda/stream.h"
#include "kernels/layout.h"

namespace orrery::kernels::cuda {

void copy_columns(StreamHandle stream, std::int64_t rows, std::int64_t n, ConstFloatRows x, FloatRows y);
void add_columns(StreamHandle stream, std::int64_t rows, std::int64_t n, ConstFloatRows x, FloatRows y);
void repeat_heads(StreamHandle stream, std::int64_t rows, std::int64_t heads, std::int64_t head_dim,
                  std::int64_t copies, ConstFloatRows x, FloatRows y);
void sum_repeated_heads(StreamHandle stream, std::int64_t rows, std::int64_t heads, std::int64_t head_dim,
                        std::int64_t copies, ConstFloatRows dy, FloatRows dx);
/// At most three sections.
void heads_to_blocks(StreamHandle stream, const HeadBlocks& shape, ConstFloats x, Floats y);
void blocks_to_heads(StreamHandle stream, const HeadBlocks& shape, ConstFloats x, Floats y);
void blocks_to_sequence(StreamHandle stream, const SequenceBlocks& shape, ConstFloats x, Floats y);
void sequence_to_blocks(StreamHandle stream, const SequenceBlocks& shape, ConstFloats x, Floats y);

}  // namespace orrery::kernels::cuda
