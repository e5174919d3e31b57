#include "kernels/cuda/products.h"

#include <cublas_v2.h>

#include <algorithm>
#include <bit>
#include <map>
#include <string>

#include "core/error.h"
#include "kernels/cuda/flat.h"
#include "kernels/cuda/library.h"

namespace orrery::kernels::cuda {
namespace {

void check(cublasStatus_t status, const char* call) {
    if (status != CUBLAS_STATUS_SUCCESS) {
        throw JobError(std::string(call) + ": cuBLAS status " + std::to_string(static_cast<int>(status)));
    }
}

cudaDataType type_of(ConstFloats x) {
    return x.type == DType::bf16 ? CUDA_R_16BF : CUDA_R_32F;
}

/// A row-major factor of a GEMM, and whether it is transposed.
struct Factor {
    ConstFloatRows rows;
    bool transposed = false;
    [[nodiscard]] DType type() const { return rows.data.type; }
};

}  // namespace

struct Products::Impl {
    /// A handle serves one stream, because cuBLAS promises bitwise equal results only then.
    struct OfStream {
        cublasHandle_t handle = nullptr;
        void* cut = nullptr;  // two bf16 numbers for each of `elements`
        std::int64_t elements = 0;
    };

    Library library{"libcublas.so." + std::to_string(CUBLAS_VER_MAJOR)};
    decltype(cublasCreate_v2)* create = library.function<decltype(cublasCreate_v2)>("cublasCreate_v2");
    decltype(cublasDestroy_v2)* destroy = library.function<decltype(cublasDestroy_v2)>("cublasDestroy_v2");
    decltype(cublasSetStream_v2)* set_stream = library.function<decltype(cublasSetStream_v2)>("cublasSetStream_v2");
    decltype(cublasSetMathMode)* set_math = library.function<decltype(cublasSetMathMode)>("cublasSetMathMode");
    decltype(cublasGemmEx_64)* gemm = library.function<decltype(cublasGemmEx_64)>("cublasGemmEx_64");
    std::function<std::byte*(std::int64_t)> allocate;
    std::int64_t most_cut = 0;
    std::map<void*, OfStream> streams;

    OfStream& of(StreamHandle stream) {
        OfStream& own = streams[stream.stream];
        if (own.handle != nullptr) return own;
        check(create(&own.handle), "cublasCreate");
        check(set_stream(own.handle, static_cast<cudaStream_t>(stream.stream)), "cublasSetStream");
        // Without TF32, and rounding to bf16 only once.
        check(set_math(own.handle, CUBLAS_MATH_DISALLOW_REDUCED_PRECISION_REDUCTION), "cublasSetMathMode");
        return own;
    }

    /// c[rows, columns] = a b + keep * c, all row-major. cuBLAS is column-major and so computes the transposed product.
    void multiply(StreamHandle stream, std::int64_t rows, std::int64_t columns, std::int64_t inner, const Factor& a,
                  const Factor& b, float keep, FloatRows c) {
        if (a.type() != b.type()) return multiply_cut(stream, rows, columns, inner, a, b, keep, c);
        const float one = 1.0F;
        check(gemm(of(stream).handle, b.transposed ? CUBLAS_OP_T : CUBLAS_OP_N,
                   a.transposed ? CUBLAS_OP_T : CUBLAS_OP_N, columns, rows, inner, &one, b.rows.data.data,
                   type_of(b.rows.data), b.rows.width, a.rows.data.data, type_of(a.rows.data), a.rows.width, &keep,
                   c.data.data, type_of(c.data), c.width, CUBLAS_COMPUTE_32F, CUBLAS_GEMM_DEFAULT),
              "cublasGemmEx");
    }

    /// The same with one factor in fp32 and one in bf16, which cuBLAS does not multiply: the fp32 factor is cut into
    /// the sum of two bf16 numbers, some rows or columns of the result at a time.
    void multiply_cut(StreamHandle stream, std::int64_t rows, std::int64_t columns, std::int64_t inner, const Factor& a,
                      const Factor& b, float keep, FloatRows c) {
        const bool cuts_a = a.type() == DType::fp32;
        const Factor& wide = cuts_a ? a : b;
        const std::int64_t outer = cuts_a ? rows : columns;
        const std::int64_t at_once =
            std::max<std::int64_t>(std::min(most_cut / std::max<std::int64_t>(inner, 1), outer), 1);
        // a has its outer extent along rows unless it is transposed, b the other way round.
        const bool outer_is_row = cuts_a != wide.transposed;
        const bool needs_low = c.data.type == DType::fp32;
        const auto [high, low] = cut_memory(stream, at_once * inner);
        for (std::int64_t first = 0; first < outer; first += at_once) {
            const std::int64_t count = std::min(at_once, outer - first);
            const std::int64_t height = outer_is_row ? count : inner, width = outer_is_row ? inner : count;
            const ConstFloatRows part{wide.rows.data.from(first * (outer_is_row ? wide.rows.width : 1)),
                                      wide.rows.width};
            cut(stream, height, width, part, high, needs_low ? low : Floats{});
            const auto add = [&](Floats half, float kept) {
                const Factor narrow{{half, width}, wide.transposed};
                if (cuts_a) {
                    multiply(stream, count, columns, inner, narrow, b, kept, {c.data.from(first * c.width), c.width});
                } else {
                    multiply(stream, rows, count, inner, a, narrow, kept, {c.data.from(first), c.width});
                }
            };
            add(high, keep);
            if (needs_low) add(low, 1.0F);
        }
    }

    std::pair<Floats, Floats> cut_memory(StreamHandle stream, std::int64_t elements) {
        OfStream& own = of(stream);
        if (own.elements < elements) {
            const auto wanted = static_cast<std::int64_t>(std::bit_ceil(static_cast<std::uint64_t>(elements)));
            own.cut = allocate(2 * wanted * size_of(DType::bf16));
            if (own.cut == nullptr) throw JobError("cudaMalloc: no device memory for products of fp32 and bf16");
            own.elements = wanted;
        }
        const Floats high{own.cut, DType::bf16};
        return {high, high.from(own.elements)};
    }
};

Products::Products(std::function<std::byte*(std::int64_t)> allocate, std::int64_t most_cut)
    : impl_(std::make_unique<Impl>()) {
    impl_->allocate = std::move(allocate);
    impl_->most_cut = most_cut;
}

Products::~Products() {
    for (const auto& [stream, own] : impl_->streams) {
        if (own.handle != nullptr) impl_->destroy(own.handle);
    }
}

void Products::linear_forward(StreamHandle stream, const LinearShape& shape, ConstFloatRows x, ConstFloats weight,
                              ConstFloats bias, FloatRows y) {
    if (bias.present()) set_bias(stream, shape.rows, shape.n, bias, y);
    impl_->multiply(stream, shape.rows, shape.n, shape.k, {x}, {{weight, shape.k}, true}, bias.present() ? 1.0F : 0.0F,
                    y);
}

void Products::linear_backward_input(StreamHandle stream, const LinearShape& shape, ConstFloatRows dy,
                                     ConstFloats weight, FloatRows dx) {
    impl_->multiply(stream, shape.rows, shape.k, shape.n, {dy}, {{weight, shape.k}}, 0.0F, dx);
}

void Products::linear_backward_weight(StreamHandle stream, const LinearShape& shape, ConstFloatRows dy,
                                      ConstFloatRows x, Floats dweight, Floats dbias) {
    impl_->multiply(stream, shape.n, shape.k, shape.rows, {dy, true}, {x}, 1.0F, {dweight, shape.k});
    if (dbias.present()) bias_backward(stream, shape.rows, shape.n, dy, dbias);
}

}  // namespace orrery::kernels::cuda
