// The GPU kernels of rotary position embedding; see kernels/rotary.h. The tables of a Rotation are in device memory.
#pragma once

#include "kernels/cuda/floats.h"
#include "kernels/cuda/stream.h"
#include "kernels/rotary.h"

namespace orrery::kernels::cuda {

void rotate(StreamHandle stream, const HeadShape& shape, const Rotation& rotation, bool inverse, Floats qkv);
void latent_rotate_forward(StreamHandle stream, const LatentHeads& shape, const Rotation& rotation, ConstFloats q,
                           ConstFloats kv, ConstFloatRows k_rope, Floats qkv);
void latent_rotate_backward(StreamHandle stream, const LatentHeads& shape, const Rotation& rotation, ConstFloats dqkv,
                            Floats dq, Floats dkv, FloatRows dk_rope);

}  // namespace orrery::kernels::cuda
