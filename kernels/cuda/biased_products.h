// Linear layers with a bias on an NVIDIA GPU, by cuBLASLt: the bias is added to the sums before they are rounded and
// stored, which saves writing and reading the result once more.
#pragma once

#include <cstddef>
#include <memory>

#include "kernels/cuda/floats.h"
#include "kernels/cuda/stream.h"
#include "kernels/kernels.h"

namespace orrery::kernels::cuda {

class BiasedProducts {
  public:
    /// Uses the current device. Throws JobError if cuBLASLt cannot be opened.
    BiasedProducts();
    ~BiasedProducts();
    BiasedProducts(const BiasedProducts&) = delete;
    BiasedProducts& operator=(const BiasedProducts&) = delete;

    /// Memory for the results of parts of a product, of one stream.
    struct Workspace {
        void* memory = nullptr;
        std::size_t bytes = 0;
    };
    /// y[rows,n] = x[rows,k] weight[n,k]^T + bias[n]. Returns false, and queues nothing, if cuBLASLt has no algorithm
    /// for these types, sizes and addresses; it is asked once for each kind. Throws JobError naming the call if it
    /// fails.
    [[nodiscard]] bool multiply(StreamHandle stream, const Workspace& workspace, const LinearShape& shape,
                                ConstFloatRows x, ConstFloats weight, ConstFloats bias, FloatRows y);

  private:
    struct Impl;
    std::unique_ptr<Impl> impl_;
};

}  // namespace orrery::kernels::cuda
