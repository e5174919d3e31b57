#include "kernels/cuda/products.h"

#include <algorithm>
#include <bit>
#include <map>
#include <string>

#include "kernels/cuda/activations.h"
#include "kernels/cuda/cublas.h"
#include "kernels/cuda/flat.h"
#include "kernels/cuda/library.h"
#include "kernels/cuda/lt_products.h"

namespace orrery::kernels::cuda {
struct Products::Impl {
    /// A handle serves one stream, because cuBLAS promises bitwise equal results only then.
    struct OfStream {
        cublasHandle_t handle = nullptr;
        LtProducts::Workspace workspace;
        void* cut = nullptr;  // two bf16 numbers for each of `elements`
        std::int64_t elements = 0;
        bool is_prepared = false;
    };

    Library library{"libcublas.so." + std::to_string(CUBLAS_VER_MAJOR)};
    decltype(cublasCreate_v2)* create = library.function<decltype(cublasCreate_v2)>("cublasCreate_v2");
    decltype(cublasDestroy_v2)* destroy = library.function<decltype(cublasDestroy_v2)>("cublasDestroy_v2");
    decltype(cublasSetStream_v2)* set_stream = library.function<decltype(cublasSetStream_v2)>("cublasSetStream_v2");
    decltype(cublasSetWorkspace_v2)* set_workspace =
        library.function<decltype(cublasSetWorkspace_v2)>("cublasSetWorkspace_v2");
    decltype(cublasSetMathMode)* set_math = library.function<decltype(cublasSetMathMode)>("cublasSetMathMode");
    decltype(cublasGemmEx_64)* gemm = library.function<decltype(cublasGemmEx_64)>("cublasGemmEx_64");
    LtProducts lt;
    Options options;
    std::map<void*, OfStream> streams;

    explicit Impl(Options chosen) : options(std::move(chosen)) {}

    void* allocate(std::int64_t bytes, const char* what) {
        void* const memory = options.allocate(bytes);
        if (memory == nullptr) {
            throw JobError("cudaMalloc: no device memory for " + std::string(what) + ", " + std::to_string(bytes) +
                           " bytes");
        }
        return memory;
    }

    OfStream& of(StreamHandle stream) {
        OfStream& own = streams[stream.stream];
        if (own.handle != nullptr) return own;
        check_cublas(create(&own.handle), "cublasCreate");
        check_cublas(set_stream(own.handle, static_cast<cudaStream_t>(stream.stream)), "cublasSetStream");
        if (options.workspace_bytes > 0) {  // after the stream, which sets cuBLAS's own again
            own.workspace = {allocate(options.workspace_bytes, "cuBLAS's workspace"),
                             static_cast<std::size_t>(options.workspace_bytes)};
            check_cublas(set_workspace(own.handle, own.workspace.memory, own.workspace.bytes), "cublasSetWorkspace");
        }
        // Without TF32, and rounding to bf16 only once.
        check_cublas(set_math(own.handle, CUBLAS_MATH_DISALLOW_REDUCED_PRECISION_REDUCTION), "cublasSetMathMode");
        return own;
    }

    /// c[rows, columns] = a b + keep * c, all row-major. What cuBLASLt has no algorithm for is left to cuBLAS, which is
    /// column-major, too, and so computes the transposed product.
    void multiply(StreamHandle stream, std::int64_t rows, std::int64_t columns, std::int64_t inner, const Factor& a,
                  const Factor& b, float keep, FloatRows c) {
        if (a.type() != b.type()) return multiply_cut(stream, rows, columns, inner, a, b, keep, c);
        const OfStream& own = of(stream);
        if (lt.multiply(stream, own.workspace, {rows, columns, inner, a, b, keep, c})) return;
        const float one = 1.0F;
        check_cublas(
            gemm(own.handle, b.transposed ? CUBLAS_OP_T : CUBLAS_OP_N, a.transposed ? CUBLAS_OP_T : CUBLAS_OP_N,
                 columns, rows, inner, &one, b.rows.data.data, cublas_type_of(b.type()), b.rows.width, a.rows.data.data,
                 cublas_type_of(a.type()), a.rows.width, &keep, c.data.data, cublas_type_of(c.data.type), c.width,
                 CUBLAS_COMPUTE_32F, CUBLAS_GEMM_DEFAULT),
            "cublasGemmEx");
    }

    /// The same with one factor in fp32 and one in bf16, which cuBLAS does not multiply: the fp32 factor is cut into
    /// the sum of two bf16 numbers, some rows or columns of the result at a time.
    void multiply_cut(StreamHandle stream, std::int64_t rows, std::int64_t columns, std::int64_t inner, const Factor& a,
                      const Factor& b, float keep, FloatRows c) {
        const bool cuts_a = a.type() == DType::fp32;
        const Factor& wide = cuts_a ? a : b;
        const std::int64_t outer = cuts_a ? rows : columns;
        // a has its outer extent along rows unless it is transposed, b the other way round.
        const bool outer_is_row = cuts_a != wide.transposed;
        const bool needs_low = c.data.type == DType::fp32;
        const OfStream& memory = with_cut_memory(stream, outer, inner);
        const std::int64_t at_once = std::min(memory.elements / std::max<std::int64_t>(inner, 1), outer);
        const Floats high{memory.cut, DType::bf16}, low = high.from(memory.elements);
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

    /// With memory to cut at least one row of `inner` elements at a time.
    const OfStream& with_cut_memory(StreamHandle stream, std::int64_t outer, std::int64_t inner) {
        OfStream& own = of(stream);
        const std::int64_t wanted = std::max(std::min(outer * inner, options.most_cut), inner);
        if (own.elements < (own.is_prepared ? inner : wanted)) {
            ORRERY_CHECK(!own.is_prepared, "a product cuts more elements than the memory was prepared for");
            take_cut_memory(own, static_cast<std::int64_t>(std::bit_ceil(static_cast<std::uint64_t>(wanted))));
        }
        return own;
    }

    void take_cut_memory(OfStream& own, std::int64_t elements) {
        own.cut = allocate(2 * elements * size_of(DType::bf16), "products of fp32 and bf16");
        own.elements = elements;
    }
};

Products::Products(Options options) : impl_(std::make_unique<Impl>(std::move(options))) {}

Products::~Products() {
    for (const auto& [stream, own] : impl_->streams) {
        if (own.handle != nullptr) impl_->destroy(own.handle);
    }
}

void Products::prepare(StreamHandle stream, std::int64_t cut_elements) {
    Impl::OfStream& own = impl_->of(stream);
    if (cut_elements > 0) impl_->take_cut_memory(own, cut_elements);
    own.is_prepared = true;
}

void Products::linear_forward(StreamHandle stream, const LinearShape& shape, ConstFloatRows x, ConstFloats weight,
                              ConstFloats bias, FloatRows y, Floats gelu) {
    const MatrixProduct whole{.rows = shape.rows,
                              .columns = shape.n,
                              .inner = shape.k,
                              .a = {x},
                              .b = {{weight, shape.k}, true},
                              .c = y,
                              .bias = bias,
                              .gelu = gelu};
    const bool is_cut = whole.a.type() != whole.b.type(), has_epilogue = bias.present() || gelu.present();
    if (has_epilogue && !is_cut && impl_->lt.multiply(stream, impl_->of(stream).workspace, whole)) return;
    if (bias.present()) set_bias(stream, shape.rows, shape.n, bias, y);
    impl_->multiply(stream, shape.rows, shape.n, shape.k, whole.a, whole.b, bias.present() ? 1.0F : 0.0F, y);
    if (gelu.present()) gelu_forward(stream, {.most = shape.rows}, shape.n, y.data, gelu);
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
