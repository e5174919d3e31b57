#include "kernels/cuda/lt_products.h"

#include <cublasLt.h>

#include <algorithm>
#include <array>
#include <map>
#include <string>

#include "core/error.h"
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
    std::array<std::int64_t, 6> sizes;        // rows, columns, inner, and the widths of the rows of a, b and c
    std::array<DType, 4> types;               // of a, b, c and the bias
    std::array<bool, 4> forms;                // whether a and b are transposed, and whether there are a bias and a GELU
    std::array<std::uint32_t, 5> alignments;  // of a, b, c, the bias and the GELU
    auto operator<=>(const Kind&) const = default;

    explicit Kind(const MatrixProduct& p)
        : sizes{p.rows, p.columns, p.inner, p.a.rows.width, p.b.rows.width, p.c.width},
          types{p.a.type(), p.b.type(), p.c.data.type, p.bias.type},
          forms{p.a.transposed, p.b.transposed, p.bias.present(), p.gelu.present()},
          alignments{alignment_of(p.a.rows.data), alignment_of(p.b.rows.data), alignment_of(p.c.data),
                     alignment_of(p.bias), alignment_of(p.gelu)} {}
};

}  // namespace

struct LtProducts::Impl {
    /// cuBLASLt's matrices are column-major, so it computes the transposed product: c^T = b^T a^T + bias.
    struct Plan {
        cublasLtMatmulDesc_t product = nullptr;
        cublasLtMatrixLayout_t a = nullptr, b = nullptr, c = nullptr;
        cublasLtMatrixLayout_t result = nullptr;  // of the GELU, or c
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
            for (const cublasLtMatrixLayout_t layout : {plan.a, plan.b, plan.c}) destroy_layout(layout);
            if (plan.result != plan.c) destroy_layout(plan.result);
        }
        destroy(handle);
    }
    Impl(const Impl&) = delete;
    Impl& operator=(const Impl&) = delete;

    template <typename T>
    void set(const Plan& plan, cublasLtMatmulDescAttributes_t attribute, const T& value) const {
        check_cublas(set_of_product(plan.product, attribute, &value, sizeof value), "cublasLtMatmulDescSetAttribute");
    }
    void set_addresses(const Plan& plan, const MatrixProduct& p) const {
        if (p.bias.present()) set(plan, CUBLASLT_MATMUL_DESC_BIAS_POINTER, p.bias.data);
        if (p.gelu.present()) set(plan, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, p.c.data.data);
    }
    [[nodiscard]] cublasLtMatrixLayout_t layout(DType type, std::int64_t rows, std::int64_t columns,
                                                std::int64_t width) const {
        cublasLtMatrixLayout_t one = nullptr;
        check_cublas(create_layout(&one, cublas_type_of(type), static_cast<std::uint64_t>(rows),
                                   static_cast<std::uint64_t>(columns), width),
                     "cublasLtMatrixLayoutCreate");
        return one;
    }

    [[nodiscard]] cublasLtMatrixLayout_t layout(const Factor& factor, std::int64_t rows, std::int64_t columns) const {
        return factor.transposed ? layout(factor.type(), rows, columns, factor.rows.width)
                                 : layout(factor.type(), columns, rows, factor.rows.width);
    }

    [[nodiscard]] Plan make(const MatrixProduct& p, std::size_t workspace_bytes) const {
        const auto turned = [](const Factor& factor) {
            return static_cast<std::int32_t>(factor.transposed ? CUBLAS_OP_T : CUBLAS_OP_N);
        };
        Plan plan;
        check_cublas(create_product(&plan.product, CUBLAS_COMPUTE_32F, CUDA_R_32F), "cublasLtMatmulDescCreate");
        set(plan, CUBLASLT_MATMUL_DESC_TRANSA, turned(p.b));
        set(plan, CUBLASLT_MATMUL_DESC_TRANSB, turned(p.a));
        const auto epilogue = [&] {
            if (p.gelu.present()) {
                return p.bias.present() ? CUBLASLT_EPILOGUE_GELU_AUX_BIAS : CUBLASLT_EPILOGUE_GELU_AUX;
            }
            return p.bias.present() ? CUBLASLT_EPILOGUE_BIAS : CUBLASLT_EPILOGUE_DEFAULT;
        }();
        set(plan, CUBLASLT_MATMUL_DESC_EPILOGUE, static_cast<std::uint32_t>(epilogue));
        if (p.bias.present()) {
            set(plan, CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, static_cast<std::int32_t>(cublas_type_of(p.bias.type)));
        }
        if (p.gelu.present()) set(plan, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, p.c.width);
        set_addresses(plan, p);
        plan.a = layout(p.a, p.rows, p.inner);
        plan.b = layout(p.b, p.inner, p.columns);
        plan.c = plan.result = layout(p.c.data.type, p.columns, p.rows, p.c.width);
        if (p.gelu.present()) plan.result = layout(p.gelu.type, p.columns, p.rows, p.columns);
        ask_for_algorithm(Kind(p), workspace_bytes, plan);
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
        const std::uint32_t of_result = plan.result != plan.c ? kind.alignments[4] : kind.alignments[2];
        prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, of_result);
        prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, of_result);
        cublasLtMatmulHeuristicResult_t found{};
        int count = 0;
        const cublasStatus_t status =
            choose(handle, plan.product, plan.b, plan.a, plan.result, plan.result, preference, 1, &found, &count);
        check_cublas(destroy_preference(preference), "cublasLtMatmulPreferenceDestroy");
        plan.exists = status == CUBLAS_STATUS_SUCCESS && count > 0 && found.state == CUBLAS_STATUS_SUCCESS;
        plan.algorithm = found.algo;
    }
};

LtProducts::LtProducts() : impl_(std::make_unique<Impl>()) {}
LtProducts::~LtProducts() = default;

bool LtProducts::multiply(StreamHandle stream, const Workspace& workspace, const MatrixProduct& p) {
    if (std::min({p.rows, p.columns, p.inner}) == 0) return false;
    ORRERY_CHECK(!p.gelu.present() || p.keep == 0, "a GELU of a sum with earlier results");
    const Kind kind(p);
    auto found = impl_->plans.find(kind);
    if (found == impl_->plans.end()) found = impl_->plans.emplace(kind, impl_->make(p, workspace.bytes)).first;
    const Impl::Plan& plan = found->second;
    if (!plan.exists) return false;
    impl_->set_addresses(plan, p);
    const Floats result = p.gelu.present() ? p.gelu : p.c.data;
    const float one = 1.0F;
    check_cublas(impl_->run(impl_->handle, plan.product, &one, p.b.rows.data.data, plan.b, p.a.rows.data.data, plan.a,
                            &p.keep, result.data, plan.result, result.data, plan.result, &plan.algorithm,
                            workspace.memory, workspace.bytes, static_cast<cudaStream_t>(stream.stream)),
                 "cublasLtMatmul");
    return true;
}

}  // namespace orrery::kernels::cuda
