// Products of linear layers on an NVIDIA GPU, through cuBLAS: fp32 throughout, TF32 off.
#pragma once

#include <memory>

#include "kernels/cuda/kernels.h"

namespace orrery::kernels::cuda {

/// One for a device; streams take turns with it. The functions compute what those of the same names in
/// kernels/kernels.h do, and throw JobError naming the call when cuBLAS refuses it.
class Products {
  public:
    /// On the current device. Throws JobError when cuBLAS cannot be opened or started.
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
