// The GEMMs of linear layers on an NVIDIA GPU, by cuBLAS, in fp32 without TF32.
#pragma once

#include <memory>

#include "kernels/cuda/kernels.h"

namespace orrery::kernels::cuda {

/// One object per device serves all streams. The functions compute the same as those of the same names in
/// kernels/kernels.h, and throw JobError naming the call if cuBLAS fails.
class Products {
  public:
    /// Uses the current device. Throws JobError if cuBLAS cannot be opened or started.
    Products();
    ~Products();
    Products(const Products&) = delete;
    Products& operator=(const Products&) = delete;

    void linear_forward(StreamHandle stream, const LinearShape& shape, const float* x, const float* weight,
                        const float* bias, float* y);
    void linear_backward_input(StreamHandle stream, const LinearShape& shape, const float* dy, const float* weight,
                               float* dx);
    void linear_backward_weight(StreamHandle stream, const LinearShape& shape, const float* dy, const float* x,
                                float* dweight, float* dbias);

  private:
    struct Impl;
    std::unique_ptr<Impl> impl_;
};

}  // namespace orrery::kernels::cuda
