// The GEMMs of linear layers on an NVIDIA GPU, by cuBLAS: sums in fp32, without TF32.
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
    /// Elements of an fp32 factor that are cut into bf16 at a time: few enough for the memory, enough to fill a GEMM.
    static constexpr std::int64_t kMostCut = std::int64_t{1} << 24;

    /// Uses the current device. `allocate` returns device memory that outlives this object, or null. Throws JobError if
    /// cuBLAS cannot be opened.
    explicit Products(std::function<std::byte*(std::int64_t bytes)> allocate, std::int64_t most_cut = kMostCut);
    ~Products();
    Products(const Products&) = delete;
    Products& operator=(const Products&) = delete;

    void linear_forward(StreamHandle stream, const LinearShape& shape, ConstFloatRows x, ConstFloats weight,
                        ConstFloats bias, FloatRows y);
    void linear_backward_input(StreamHandle stream, const LinearShape& shape, ConstFloatRows dy, ConstFloats weight,
                               FloatRows dx);
    void linear_backward_weight(StreamHandle stream, const LinearShape& shape, ConstFloatRows dy, ConstFloatRows x,
                                Floats dweight, Floats dbias);

  private:
    struct Impl;
    std::unique_ptr<Impl> impl_;
};

}  // namespace orrery::kernels::cuda
