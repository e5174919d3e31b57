// Products of linear layers and of experts, activations and flat vectors, with all combinations of types.
#include <vector>

#include "tests/gpu/bare_operator.h"
#include "tests/gpu/operators_fixture.h"

namespace orrery::exec {
namespace {

using models::OpKind;
using enum DType;

class ProductOperatorsOnGpu : public OperatorsOnGpu {
  protected:
    void SetUp() override {
        OperatorsOnGpu::SetUp();
        if (!IsSkipped() && !HasFatalFailure()) device_ = make_cuda_device(0, world_of_one());
    }
    void compare(const BareOperator& one) {
        const OperatorContext context{.model = &model_, .loss_scale = 1e-3};
        OperatorsOnGpu::compare(one.body, one.op, context, *device_);
    }
    models::ModelSpec model_;
    std::unique_ptr<Device> device_;
};

/// Types of x or dy, of the weight or x, and of the result.
struct Types {
    DType a, b, c;
};
const std::vector<Types> kProducts{{fp32, fp32, fp32}, {bf16, bf16, bf16}, {bf16, bf16, fp32},
                                   {fp32, bf16, bf16}, {fp32, bf16, fp32}, {bf16, fp32, fp32}};

TEST_F(ProductOperatorsOnGpu, LinearLayersInWiderRows) {
    for (const Types& types : kProducts) {
        const models::Operator shape{.rows = 37, .n = 45, .k = 29, .from_column = 6, .to_column = 7};
        models::Operator op = shape;
        op.kind = OpKind::linear_forward;
        for (const bool bias : {false, true}) {
            const std::vector<std::int64_t> of_bias =
                bias ? std::vector<std::int64_t>{45} : std::vector<std::int64_t>{};
            compare(BareOperator(op)
                        .in(types.a, {37, 33})
                        .in(types.b, {45, 29})
                        .in(types.b, of_bias)
                        .out(types.c, {37, 60}));
            op.kind = OpKind::linear_backward_weight;
            compare(BareOperator(op)
                        .in(types.a, {37, 60})
                        .in(types.b, {37, 33})
                        .out(types.c, {45, 29})
                        .out(types.c, of_bias));
            op.kind = OpKind::linear_forward;
        }
        op.kind = OpKind::linear_backward_input;
        compare(BareOperator(op).in(types.a, {37, 60}).in(types.b, {45, 29}).out(types.c, {37, 33}));
    }
}

/// With and without a bias, of sizes for which cuBLASLt has an algorithm, and of others.
TEST_F(ProductOperatorsOnGpu, LinearLayersWithGelu) {
    for (const Types& types : kProducts) {
        for (const std::int64_t n : {45, 48}) {
            for (const bool bias : {false, true}) {
                compare(BareOperator({.kind = OpKind::linear_forward, .rows = 37, .n = n, .k = 32})
                            .in(types.a, {37, 32})
                            .in(types.b, {n, 32})
                            .in(types.c, bias ? std::vector<std::int64_t>{n} : std::vector<std::int64_t>{})
                            .out(types.c, {37, n})
                            .out(types.c, {37, n}));
            }
        }
    }
}

TEST_F(ProductOperatorsOnGpu, NormsOfSums) {
    for (const Types& types : kProducts) {
        for (const bool bias : {false, true}) {
            for (const OpKind kind : {OpKind::layer_norm_forward, OpKind::rms_norm_forward}) {
                const bool layer_norm = kind == OpKind::layer_norm_forward;
                const std::vector<std::int64_t> row{72}, rows{37, 72}, none;
                compare(BareOperator({.kind = kind, .rows = 37, .k = 72})
                            .in(types.a, rows)
                            .in(types.b, row)
                            .in(types.b, layer_norm ? row : none)
                            .in(types.b, rows)
                            .in(types.b, bias ? row : none)
                            .out(types.c, rows)
                            .out(fp32, layer_norm ? std::vector<std::int64_t>{37, 2} : std::vector<std::int64_t>{37})
                            .out(types.a, rows));
            }
        }
    }
}

TEST_F(ProductOperatorsOnGpu, GradientsAreOverwritten) {
    for (const DType type : {fp32, bf16}) {
        const models::Operator op{
            .kind = OpKind::linear_backward_weight, .overwrites_gradients = true, .rows = 37, .n = 45, .k = 29};
        compare(BareOperator(op).in(bf16, {37, 45}).in(bf16, {37, 29}).out(type, {45, 29}).out(type, {45}));
    }
}

TEST_F(ProductOperatorsOnGpu, BiasesAddUpTheirGradients) {
    for (const DType x : {fp32, bf16}) {
        for (const DType y : {fp32, bf16}) {
            const models::Operator op{.kind = OpKind::bias_backward, .rows = 70, .n = 37};
            compare(BareOperator(op).in(x, {70, 37}).out(y, {37}));
        }
    }
}

/// Tiles of 64 rows: fewer rows, more rows, and none; and more groups than a block has threads.
TEST_F(ProductOperatorsOnGpu, ExpertsMultiplyTheirOwnRows) {
    struct Shape {
        std::int64_t sources, groups, rows, n, k;
    };
    for (const Shape& s : std::vector<Shape>{{2, 3, 210, 70, 37}, {1, 1, 130, 64, 16}, {2, 260, 300, 5, 7}}) {
        for (const Types& types : kProducts) {
            if (s.groups > 3 && types.a != types.c) continue;
            models::Operator op{.kind = OpKind::expert_linear_forward,
                                .rows = s.rows,
                                .n = s.n,
                                .k = s.k,
                                .groups = s.groups,
                                .sources = s.sources};
            const std::vector<std::int64_t> narrow{s.rows, s.k}, wide{s.rows, s.n}, weight{s.groups, s.n, s.k},
                counts{s.sources, s.groups};
            compare(BareOperator(op).in(types.a, narrow).in(types.b, weight).in(int64, counts).out(types.c, wide));
            op.kind = OpKind::expert_linear_backward_input;
            compare(BareOperator(op).in(types.a, wide).in(types.b, weight).in(int64, counts).out(types.c, narrow));
            op.kind = OpKind::expert_linear_backward_weight;
            compare(BareOperator(op).in(types.a, wide).in(types.b, narrow).in(int64, counts).out(types.c, weight));
            if (HasFatalFailure()) return;
        }
    }
}

/// With counts only so many rows may change.
TEST_F(ProductOperatorsOnGpu, ActivationsOfRowsAndOfCountedRows) {
    for (const DType type : {fp32, bf16}) {
        for (const bool counted : {false, true}) {
            models::Operator op{.rows = 83, .n = 37};
            if (counted) op.groups = 3, op.sources = 2;
            const std::vector<std::int64_t> rows{83, 37}, gate_up{83, 74},
                counts = counted ? std::vector<std::int64_t>{2, 3} : std::vector<std::int64_t>{};
            for (const OpKind kind : {OpKind::gelu_forward, OpKind::relu_forward}) {
                op.kind = kind;
                compare(BareOperator(op).in(type, rows).in(int64, counts).out(type, rows));
            }
            for (const OpKind kind : {OpKind::gelu_backward, OpKind::relu_backward}) {
                op.kind = kind;
                compare(BareOperator(op).in(type, rows).in(type, rows).in(int64, counts).out(type, rows));
                compare(BareOperator(op).in(type, rows).in(type, rows).in(int64, counts).in_place(0));
            }
            op.kind = OpKind::swiglu_forward;
            compare(BareOperator(op).in(type, gate_up).in(int64, counts).out(type, rows));
            op.kind = OpKind::swiglu_backward;
            compare(BareOperator(op).in(type, rows).in(type, gate_up).in(int64, counts).out(type, gate_up));
        }
    }
}

TEST_F(ProductOperatorsOnGpu, GatesOfRows) {
    for (const DType type : {fp32, bf16}) {
        models::Operator op{.kind = OpKind::gate_rows_forward, .rows = 19, .k = 300};
        compare(BareOperator(op).in(type, {19, 300}).in(type, {19, 1}).out(type, {19, 300}));
        op.kind = OpKind::gate_rows_backward;
        compare(BareOperator(op)
                    .in(type, {19, 300})
                    .in(type, {19, 300})
                    .in(type, {19, 1})
                    .out(type, {19, 300})
                    .out(type, {19, 1}));
    }
}

/// By fours, and the last elements one by one.
TEST_F(ProductOperatorsOnGpu, FlatVectorsOfAnyTypeAndLength) {
    for (const DType x : {fp32, bf16}) {
        for (const DType y : {fp32, bf16}) {
            for (const std::int64_t elements : {1, 1024, 2051}) {
                models::Operator op{.kind = OpKind::cast, .elements = elements};
                compare(BareOperator(op).in(x, {elements}).out(y, {elements}));
                op.kind = OpKind::accumulate;
                compare(BareOperator(op).in(x, {elements}).out(y, {elements}));
            }
        }
    }
}

}  // namespace
}  // namespace orrery::exec
