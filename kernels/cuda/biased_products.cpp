#include "kernels/cuda/biased_products.h"

#include <cublasLt.h>

#include <algorithm>
#include <array>
#include <map>
#include <string>

#include "kernels/cuda/cublas.h"
#include "kernels/cuda/library.h"

namespace orrery::kernels::cuda {
namespace {

/// By how many bytes an address is aligned, as far as algorithms ask for it.
std::uint32_t alignment_of(ConstFloats x) {
    constexpr std::uintptr_t kMost = 256;
    const auto address = reinterpret_cast<std::uintptr_t>(x.data) | kMost;
    return static_cast<std::uint32_t>(address & (~address + 1));
}

/// What decides about the algorithm.
struct Kind {
    std::array<std::int64_t, 5> sizes;  // rows, n, k, and the widths of the rows of x and y
    std::array<DType, 4> types;         // of x, weight, bias and y
    std::array<std::uint32_t, 4> alignments;
    auto operator<=>(const Kind&) const = default;
};

}  // namespace

struct BiasedProducts::Impl {
    /// Of matrices that are column-major, so that the transposed product is computed: y^T = weight x^T + bias.
    struct Plan {
        cublasLtMatmulDesc_t product = nullptr;
        cublasLtMatrixLayout_t weight = nullptr, x = nullptr, y = nullptr;
        cublasLtMatmulAlgo_t algorithm{};
        bool exists = false;  // an algorithm
    };

    Library library{"libcublasLt.so." + std::to_string(CUBLAS_VER_MAJOR)};
    template <typename Function>
    [[nodiscard]] Function* function(const char* name) const {
        return library.function<Function>(name);
    }
    decltype(cublasLtCreate)* create = function<decltype(cublasLtCreate)>("cublasLtCreate");
    decltype(cublasLtDestroy)* destroy = function<decltype(cublasLtDestroy)>("cublasLtDestroy");
    decltype(cublasLtMatmulDescCreate)* create_product =
        function<decltype(cublasLtMatmulDescCreate)>("cublasLtMatmulDescCreate");
    decltype(cublasLtMatmulDescDestroy)* destroy_product =
        function<decltype(cublasLtMatmulDescDestroy)>("cublasLtMatmulDescDestroy");
    decltype(cublasLtMatmulDescSetAttribute)* set_of_product =
        function<decltype(cublasLtMatmulDescSetAttribute)>("cublasLtMatmulDescSetAttribute");
    decltype(cublasLtMatrixLayoutCreate)* create_layout =
        function<decltype(cublasLtMatrixLayoutCreate)>("cublasLtMatrixLayoutCreate");
    decltype(cublasLtMatrixLayoutDestroy)* destroy_layout =
        function<decltype(cublasLtMatrixLayoutDestroy)>("cublasLtMatrixLayoutDestroy");
    decltype(cublasLtMatmulPreferenceCreate)* create_preference =
        function<decltype(cublasLtMatmulPreferenceCreate)>("cublasLtMatmulPreferenceCreate");
    decltype(cublasLtMatmulPreferenceDestroy)* destroy_preference =
        function<decltype(cublasLtMatmulPreferenceDestroy)>("cublasLtMatmulPreferenceDestroy");
    decltype(cublasLtMatmulPreferenceSetAttribute)* set_of_preference =
        function<decltype(cublasLtMatmulPreferenceSetAttribute)>("cublasLtMatmulPreferenceSetAttribute");
    decltype(cublasLtMatmulAlgoGetHeuristic)* choose =
        function<decltype(cublasLtMatmulAlgoGetHeuristic)>("cublasLtMatmulAlgoGetHeuristic");
    decltype(cublasLtMatmul)* run = function<decltype(cublasLtMatmul)>("cublasLtMatmul");

    cublasLtHandle_t handle = nullptr;
    std::map<Kind, Plan> plans;

    Impl() { check_cublas(create(&handle), "cublasLtCreate"); }
    ~Impl() {
        for (const auto& [kind, plan] : plans) {
            destroy_product(plan.product);
            for (const cublasLtMatrixLayout_t layout : {plan.weight, plan.x, plan.y}) destroy_layout(layout);
        }
        destroy(handle);
    }
    Impl(const Impl&) = delete;
    Impl& operator=(const Impl&) = delete;

    template <typename T>
    void set(const Plan& plan, cublasLtMatmulDescAttributes_t attribute, const T& value) const {
        check_cublas(set_of_product(plan.product, attribute, &value, sizeof value), "cublasLtMatmulDescSetAttribute");
    }
    void set_bias(const Plan& plan, ConstFloats bias) const { set(plan, CUBLASLT_MATMUL_DESC_BIAS_POINTER, bias.data); }
    [[nodiscard]] cublasLtMatrixLayout_t layout(DType type, std::int64_t rows, std::int64_t columns,
                                                std::int64_t width) const {
        cublasLtMatrixLayout_t one = nullptr;
        check_cublas(create_layout(&one, cublas_type_of(type), static_cast<std::uint64_t>(rows),
                                   static_cast<std::uint64_t>(columns), width),
                     "cublasLtMatrixLayoutCreate");
        return one;
    }

    [[nodiscard]] Plan make(const Kind& kind, std::size_t workspace_bytes, ConstFloats bias) const {
        const auto& [rows, n, k, x_width, y_width] = kind.sizes;
        Plan plan;
        check_cublas(create_product(&plan.product, CUBLAS_COMPUTE_32F, CUDA_R_32F), "cublasLtMatmulDescCreate");
        set(plan, CUBLASLT_MATMUL_DESC_TRANSA, static_cast<std::int32_t>(CUBLAS_OP_T));
        set(plan, CUBLASLT_MATMUL_DESC_TRANSB, static_cast<std::int32_t>(CUBLAS_OP_N));
        set(plan, CUBLASLT_MATMUL_DESC_EPILOGUE, static_cast<std::uint32_t>(CUBLASLT_EPILOGUE_BIAS));
        set(plan, CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, static_cast<std::int32_t>(cublas_type_of(bias.type)));
        set_bias(plan, bias);
        plan.weight = layout(kind.types[1], k, n, k);
        plan.x = layout(kind.types[0], k, rows, x_width);
        plan.y = layout(kind.types[3], n, rows, y_width);
        ask_for_algorithm(kind, workspace_bytes, plan);
        return plan;
    }

    void ask_for_algorithm(const Kind& kind, std::size_t workspace_bytes, Plan& plan) const {
        cublasLtMatmulPreference_t preference = nullptr;
        check_cublas(create_preference(&preference), "cublasLtMatmulPreferenceCreate");
        const auto prefer = [&](cublasLtMatmulPreferenceAttributes_t attribute, const auto& value) {
            check_cublas(set_of_preference(preference, attribute, &value, sizeof value),
                         "cublasLtMatmulPreferenceSetAttribute");
        };
        prefer(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, std::uint64_t{workspace_bytes});
        // Sums of parts are not rounded before they are added.
        prefer(CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK,
               static_cast<std::uint32_t>(CUBLASLT_REDUCTION_SCHEME_NONE | CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE));
        prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, kind.alignments[1]);
        prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, kind.alignments[0]);
        prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, kind.alignments[3]);
        prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, kind.alignments[3]);
        cublasLtMatmulHeuristicResult_t found{};
        int count = 0;
        const cublasStatus_t status =
            choose(handle, plan.product, plan.weight, plan.x, plan.y, plan.y, preference, 1, &found, &count);
        check_cublas(destroy_preference(preference), "cublasLtMatmulPreferenceDestroy");
        plan.exists = status == CUBLAS_STATUS_SUCCESS && count > 0 && found.state == CUBLAS_STATUS_SUCCESS;
        plan.algorithm = found.algo;
    }
};

BiasedProducts::BiasedProducts() : impl_(std::make_unique<Impl>()) {}
BiasedProducts::~BiasedProducts() = default;

bool BiasedProducts::multiply(StreamHandle stream, const Workspace& workspace, const LinearShape& shape,
                              ConstFloatRows x, ConstFloats weight, ConstFloats bias, FloatRows y) {
    const Kind kind{
        {shape.rows, shape.n, shape.k, x.width, y.width},
        {x.data.type, weight.type, bias.type, y.data.type},
        {alignment_of(x.data), alignment_of(weight), alignment_of(bias), alignment_of(y.data)},
    };
    if (std::ranges::min(kind.sizes) == 0) return false;
    auto found = impl_->plans.find(kind);
    if (found == impl_->plans.end()) {
        found = impl_->plans.emplace(kind, impl_->make(kind, workspace.bytes, bias)).first;
    }
    const Impl::Plan& plan = found->second;
    if (!plan.exists) return false;
    impl_->set_bias(plan, bias);
    const float one = 1.0F, zero = 0.0F;
    check_cublas(impl_->run(impl_->handle, plan.product, &one, weight.data, plan.weight, x.data.data, plan.x, &zero,
                            y.data.data, plan.y, y.data.data, plan.y, &plan.algorithm, workspace.memory,
                            workspace.bytes, static_cast<cudaStream_t>(stream.stream)),
                 "cublasLtMatmul");
    return true;
}

}  // namespace orrery::kernels::cuda
