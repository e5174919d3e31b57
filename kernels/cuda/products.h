// The GEMMs of linear layers on an NVIDIA GPU, by cuBLASLt and cuBLAS: sums in fp32, without TF32.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>

#include "kernels/cuda/floats.h"
#include "kernels/cuda/stream.h"
#include "kernels/kernels.h"

namespace orrery::kernels::cuda {

/// One object per device serves all streams. The functions compute the same as those of the same names in
/// kernels/kernels.h, and throw JobError naming the call if cuBLAS fails. Factors of a product are both in fp32, with
/// an fp32 result, or one or both are in bf16. With an fp32 and a bf16 factor, the former is rounded to 16 significant
/// bits if the result is in fp32, and to bf16 if the result is.
class Products {
  public:
    struct Options {
        /// Returns device memory that outlives this object, or null.
        std::function<std::byte*(std::int64_t bytes)> allocate;
        std::int64_t workspace_bytes = 0;  // of cuBLAS, for each stream; 0: cuBLAS takes its own
        std::int64_t most_cut = 0;  // elements of an fp32 factor that are cut into bf16 at a time: few enough for the
                                    // memory, enough to fill a GEMM; a row at least
    };
    /// Uses the current device. Throws JobError if cuBLAS cannot be opened.
    explicit Products(Options options);
    ~Products();
    Products(const Products&) = delete;
    Products& operator=(const Products&) = delete;

    /// Takes the memory for products on this stream, of which those with an fp32 and a bf16 factor cut this many
    /// elements at a time. A stream without this call takes memory as its products come.
    void prepare(StreamHandle stream, std::int64_t cut_elements);

    /// Also gelu[rows,n] = GELU(y), if it is present; then rows of y are n wide.
    void linear_forward(StreamHandle stream, const LinearShape& shape, ConstFloatRows x, ConstFloats weight,
                        ConstFloats bias, FloatRows y, Floats gelu = {});
    void linear_backward_input(StreamHandle stream, const LinearShape& shape, ConstFloatRows dy, ConstFloats weight,
                               FloatRows dx);
    void linear_backward_weight(StreamHandle stream, const LinearShape& shape, ConstFloatRows dy, ConstFloatRows x,
                                Floats dweight, Floats dbias);

  private:
    struct Impl;
    std::unique_ptr<Impl> impl_;
};

}  // namespace orrery::kernels::cuda
