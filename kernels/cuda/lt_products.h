// Matrix products on an NVIDIA GPU by cuBLASLt, which is asked once for the algorithm of each kind of product, and can
// add a bias and compute the GELU before the sums are rounded and stored. That saves writing and reading the result.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "kernels/cuda/floats.h"
#include "kernels/cuda/stream.h"

namespace orrery::kernels::cuda {

/// A row-major factor of a product, and whether it is transposed.
struct Factor {
    ConstFloatRows rows;
    bool transposed = false;
    [[nodiscard]] DType type() const { return rows.data.type; }
};

/// c[rows, columns] = a[rows, inner] b[inner, columns] + bias[columns] + keep c, all row-major. With a GELU,
/// gelu[rows, columns] = GELU(c), in the tanh form and from sums that are not rounded.
struct MatrixProduct {
    std::int64_t rows = 0, columns = 0, inner = 0;
    Factor a, b;
    float keep = 0;
    FloatRows c;
    ConstFloats bias{};
    Floats gelu{};
};

class LtProducts {
  public:
    /// Uses the current device. Throws JobError if cuBLASLt cannot be opened.
    LtProducts();
    ~LtProducts();
    LtProducts(const LtProducts&) = delete;
    LtProducts& operator=(const LtProducts&) = delete;

    /// Memory for the results of parts of a product, of one stream.
    struct Workspace {
        void* memory = nullptr;
        std::size_t bytes = 0;
    };
    /// Returns false, and queues nothing, if cuBLASLt has no algorithm for these types, sizes and addresses. Throws
    /// JobError naming the call if it fails.
    [[nodiscard]] bool multiply(StreamHandle stream, const Workspace& workspace, const MatrixProduct& product);

  private:
    struct Impl;
    std::unique_ptr<Impl> impl_;
};

}  // namespace orrery::kernels::cuda
