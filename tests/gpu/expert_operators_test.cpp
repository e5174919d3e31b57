// The router, the permutations of rows by expert, and every operator of models with experts.
#include <set>
#include <vector>

#include "tests/gpu/bare_operator.h"
#include "tests/gpu/operators_fixture.h"

namespace orrery::exec {
namespace {

using models::MixtureOfExperts;
using models::OpKind;
using enum DType;

class ExpertOperatorsOnGpu : public OperatorsOnGpu {
  protected:
    void SetUp() override {
        OperatorsOnGpu::SetUp();
        if (!IsSkipped() && !HasFatalFailure()) device_ = make_cuda_device(0, world_of_one());
    }
    void compare(const MixtureOfExperts& moe, const BareOperator& one) {
        model_.moe = moe;
        const OperatorContext context{.model = &model_};
        OperatorsOnGpu::compare(one.body, one.op, context, *device_);
    }
    models::ModelSpec model_;
    std::unique_ptr<Device> device_;
};

std::vector<MixtureOfExperts> routers() {
    std::vector<MixtureOfExperts> all{
        {.expert_count = 8, .top_k = 2},
        {.expert_count = 5, .top_k = 5, .normalize_top_k = false},
        {.expert_count = 70, .top_k = 6, .normalize_top_k = false, .routed_scale = 16.0},
        {.expert_count = 33, .top_k = 1, .sigmoid_scores = true},
        {.expert_count = 64, .top_k = 4, .sigmoid_scores = true, .normalize_top_k = false, .routed_scale = 2.5}};
    for (const bool correction : {false, true}) {
        for (const bool sigmoid : {false, true}) {
            all.push_back({.expert_count = 160,
                           .top_k = 7,
                           .score_correction_bias = correction,
                           .expert_groups = 40,
                           .top_k_groups = 3,
                           .sigmoid_scores = sigmoid,
                           .routed_scale = 2.5});
        }
    }
    return all;
}

TEST_F(ExpertOperatorsOnGpu, RoutersOfEveryRule) {
    constexpr std::int64_t kTokens = 37;
    for (const MixtureOfExperts& moe : routers()) {
        // Numbers in bf16 are often equal.
        for (const DType type : {fp32, bf16}) {
            const std::vector<std::int64_t> logits{kTokens, moe.expert_count}, choices{kTokens, moe.top_k};
            models::Operator op{.kind = OpKind::router_forward, .rows = kTokens, .n = moe.expert_count};
            compare(moe, BareOperator(op).in(type, logits).out(fp32, choices).out(int32, choices));
            op.kind = OpKind::router_backward;
            const bool keeps = moe.router_keeps_logits();
            compare(moe, BareOperator(op)
                             .in(fp32, choices)
                             .in(fp32, choices)
                             .in(int32, choices)
                             .in(type, keeps ? logits : std::vector<std::int64_t>{})
                             .out(type, logits));
            if (HasFatalFailure()) return;
        }
    }
}

TEST_F(ExpertOperatorsOnGpu, RowsGoToTheirExpertsAndBack) {
    constexpr std::int64_t kTokens = 90, kExperts = 5;
    for (const std::int64_t top_k : {1, 3}) {
        const MixtureOfExperts moe{.expert_count = kExperts, .top_k = top_k};
        const std::vector<std::int64_t> choices{kTokens, top_k};
        for (const DType type : {fp32, bf16}) {
            for (const std::int64_t width : {37, 44}) {
                models::Operator op{.rows = kTokens * top_k, .n = kExperts, .k = width};
                const std::vector<std::int64_t> tokens{kTokens, width}, rows{kTokens * top_k, width};
                op.kind = OpKind::permute_forward;
                compare(moe, BareOperator(op)
                                 .in(type, tokens)
                                 .in(int32, choices)
                                 .out(type, rows)
                                 .out(int32, choices)
                                 .out(int64, {kExperts}));
                op.kind = OpKind::permute_backward;
                compare(moe, BareOperator(op).in(type, rows).in(int32, choices).out(type, tokens));
                op.kind = OpKind::combine_forward;
                compare(moe, BareOperator(op).in(type, rows).in(fp32, choices).in(int32, choices).out(type, tokens));
                op.kind = OpKind::combine_backward;
                const auto backward =
                    BareOperator(op).in(type, tokens).in(type, rows).in(fp32, choices).in(int32, choices);
                compare(moe, BareOperator(backward).out(type, rows).out(fp32, choices));
                compare(moe, BareOperator(backward).in_place(1).out(fp32, choices));
                if (HasFatalFailure()) return;
            }
        }
    }
}

TEST_F(ExpertOperatorsOnGpu, ReceivedRowsAreGrouped) {
    for (const DType type : {fp32, bf16}) {
        for (const std::int64_t width : {37, 64}) {
            for (const OpKind kind : {OpKind::group_by_expert, OpKind::group_by_source}) {
                const models::Operator op{.kind = kind, .rows = 90, .k = width, .groups = 4, .sources = 3};
                compare({}, BareOperator(op).in(type, {90, width}).in(int64, {3, 4}).out(type, {90, width}));
            }
        }
    }
}

void take_after_mixtral(models::ModelSpec& model) {
    model.layers = 2;
    model.hidden = 40;
    model.head_dim = 10;
    model.vocab = 46;
    model.moe = {.expert_count = 6, .top_k = 2, .expert_ffn_hidden = 20};
}
void take_after_qwen2(models::ModelSpec& model) {
    take_after_mixtral(model);
    model.moe.shared_ffn_hidden = 24;
    model.moe.shared_expert_gate = true;
    model.moe.normalize_top_k = false;
}
void take_after_deepseek(models::ModelSpec& model) {
    take_after_mixtral(model);
    model.moe = {.expert_count = 8,
                 .top_k = 3,
                 .expert_ffn_hidden = 20,
                 .shared_ffn_hidden = 24,
                 .score_correction_bias = true,
                 .expert_groups = 4,
                 .top_k_groups = 2,
                 .sigmoid_scores = true,
                 .routed_scale = 2.5};
}

const std::set<OpKind> kKindsOfExperts{OpKind::router_forward,        OpKind::router_backward,
                                       OpKind::permute_forward,       OpKind::permute_backward,
                                       OpKind::combine_forward,       OpKind::combine_backward,
                                       OpKind::group_by_expert,       OpKind::group_by_source,
                                       OpKind::expert_linear_forward, OpKind::expert_linear_backward_input,
                                       OpKind::gate_rows_forward,     OpKind::expert_linear_backward_weight,
                                       OpKind::gate_rows_backward,    OpKind::gelu_forward,
                                       OpKind::gelu_backward,         OpKind::swiglu_forward,
                                       OpKind::swiglu_backward};

/// Whose types follow from the precision.
const std::set<OpKind> kKindsOfDenseModels{OpKind::linear_forward,
                                           OpKind::linear_backward_input,
                                           OpKind::linear_backward_weight,
                                           OpKind::accumulate,
                                           OpKind::cast,
                                           OpKind::gelu_forward,
                                           OpKind::gelu_backward,
                                           OpKind::swiglu_forward,
                                           OpKind::swiglu_backward,
                                           OpKind::bias_backward,
                                           OpKind::cross_entropy_max,
                                           OpKind::cross_entropy_sum,
                                           OpKind::cross_entropy_loss,
                                           OpKind::cross_entropy_backward,
                                           OpKind::cross_entropy_correct,
                                           OpKind::adamw,
                                           OpKind::gradient_norm,
                                           OpKind::gradient_scale,
                                           OpKind::clear};

TEST_F(ExpertOperatorsOnGpu, PlansWithExperts) {
    for (const bool bf16_too : {false, true}) {
        compare_all({.model = "tiny-llama",
                     .dp = 2,
                     .bf16 = bf16_too,
                     .ep = 2,
                     .sequence_length = 6,
                     .adjust = take_after_mixtral},
                    kKindsOfExperts);
        compare_all({.model = "tiny-llama", .bf16 = bf16_too, .sequence_length = 6, .adjust = take_after_qwen2},
                    kKindsOfExperts);
        compare_all({.model = "tiny-gpt",
                     .dp = 2,
                     .tp = 2,
                     .sequence_parallel = true,
                     .bf16 = bf16_too,
                     .ep = 2,
                     .etp = 2,
                     .sequence_length = 6,
                     .adjust = take_after_deepseek},
                    kKindsOfExperts);
    }
    for (const char* kind : {"router_backward", "permute_backward", "combine_backward", "group_by_expert",
                             "group_by_source", "expert_linear_backward_weight", "gate_rows_backward"}) {
        EXPECT_TRUE(seen_.contains(kind)) << kind;
    }
}

TEST_F(ExpertOperatorsOnGpu, DensePlansInBf16) {
    compare_all({.model = "tiny-gpt", .tied = true, .bf16 = true}, kKindsOfDenseModels);
    compare_all({.model = "tiny-llama", .tp = 2, .bf16 = true}, kKindsOfDenseModels);
}

}  // namespace
}  // namespace orrery::exec
