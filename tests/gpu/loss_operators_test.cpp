// Operators on parts of a vocabulary with padding: cross entropy in all forms, and the gradient of embeddings.
#include "tests/gpu/bare_operator.h"
#include "tests/gpu/operators_fixture.h"

namespace orrery::exec {
namespace {

using models::OpKind;
using enum DType;

class LossOperatorsOnGpu : public OperatorsOnGpu {
  protected:
    static constexpr std::int64_t kRows = 37, kColumns = 300, kHidden = 70;
    void SetUp() override {
        OperatorsOnGpu::SetUp();
        if (!IsSkipped() && !HasFatalFailure()) device_ = make_cuda_device(0, world_of_one());
        model_.vocab = 2 * kColumns - 7;
    }
    void compare(const BareOperator& one) {
        for (const std::int64_t part : {0, 1}) {
            const OperatorContext context{.model = &model_, .vocabulary_index = part, .loss_scale = 1e-3};
            OperatorsOnGpu::compare(one.body, one.op, context, *device_);
        }
    }
    static models::Operator of(OpKind kind) { return {.kind = kind, .rows = kRows, .n = kColumns, .k = kHidden}; }
    models::ModelSpec model_;
    std::unique_ptr<Device> device_;
};

TEST_F(LossOperatorsOnGpu, ForwardPass) {
    for (const DType type : {fp32, bf16}) {
        compare(BareOperator(of(OpKind::cross_entropy_max)).in(type, {kRows, kColumns}).out(fp32, {kRows}));
        const auto sum = BareOperator(of(OpKind::cross_entropy_sum))
                             .in(type, {kRows, kColumns})
                             .in(fp32, {kRows})
                             .in(int32, {kRows})
                             .out(fp32, {2, kRows});
        compare(sum);
        compare(BareOperator(sum).out(type, {kRows, kColumns}));
        compare(BareOperator(sum).in_place(0));
        compare(BareOperator(of(OpKind::cross_entropy_sum))  // in one pass
                    .in(type, {kRows, kColumns})
                    .in(fp32, {})
                    .in(int32, {kRows})
                    .out(fp32, {2, kRows})
                    .out(type, {})
                    .out(fp32, {kRows}));
    }
}

TEST_F(LossOperatorsOnGpu, LossOfOnePartAndOfSeveral) {
    compare(BareOperator(of(OpKind::cross_entropy_loss))
                .in(fp32, {kRows})
                .in(fp32, {2, kRows})
                .out(fp32, {kRows})
                .out(fp64, {1}));
    models::Operator op = of(OpKind::cross_entropy_loss);
    op.sources = 2;
    compare(BareOperator(op)
                .in(fp32, {2, kRows})
                .in(fp32, {2, 2, kRows})
                .in(int32, {kRows})
                .out(fp32, {kRows})
                .out(fp64, {1}));
}

TEST_F(LossOperatorsOnGpu, BackwardPass) {
    for (const DType type : {fp32, bf16}) {
        const auto backward = BareOperator(of(OpKind::cross_entropy_backward))
                                  .in(type, {kRows, kColumns})
                                  .in(fp32, {kRows})
                                  .in(int32, {kRows});
        compare(BareOperator(backward).in_place(0));
        compare(BareOperator(backward).in(fp32, {kRows}).in_place(0));
        for (const DType weight : {fp32, bf16}) {
            compare(BareOperator(of(OpKind::cross_entropy_correct))
                        .in(type, {kRows, kHidden})
                        .in(fp32, {kRows})
                        .in(fp32, {kRows})
                        .in(int32, {kRows})
                        .in(weight, {kColumns, kHidden})
                        .in_place(0));
        }
    }
}

/// More rows than threads of a block, in which tokens come again and again. Widths that are and are not multiples of
/// four.
TEST_F(LossOperatorsOnGpu, EmbeddingGradientsOfManyRows) {
    constexpr std::int64_t kManyRows = 700;
    for (const std::int64_t columns : {std::int64_t{4}, kColumns}) {
        model_.vocab = 2 * columns - 1;
        for (const std::int64_t width : {70, 72}) {
            for (const DType type : {fp32, bf16}) {
                const models::Operator op{
                    .kind = OpKind::embedding_backward, .rows = kManyRows, .n = columns, .k = width};
                compare(
                    BareOperator(op).in(type, {kManyRows, width}).in(int32, {kManyRows}).out(fp32, {columns, width}));
            }
        }
    }
}

}  // namespace
}  // namespace orrery::exec
