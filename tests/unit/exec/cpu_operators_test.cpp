// The CPU backend compared with PyTorch: one rank runs the layers' operators one after the other, without a Program,
// and must reproduce the losses and gradients of tests/golden.
#include "exec/cpu/cpu_operators.h"

#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <vector>

#include "core/error.h"
#include "core/file.h"
#include "models/operator_table.h"
#include "tests/unit/exec/plain_trainer.h"
#include "tests/unit/models/short_yarn.h"

namespace orrery::exec {
namespace {

using models::OpKind;

class AgainstPyTorch : public ::testing::TestWithParam<std::pair<const char*, const char*>> {};

/// The built-in model, with latent attention as in the golden file.
models::ModelSpec golden_model(const char* name, const nlohmann::json& golden) {
    models::ModelSpec model = models::load_model(name);
    if (!golden.contains("latent")) return model;
    const nlohmann::json& latent = golden.at("latent");
    const auto value = [&](const char* key) { return latent.at(key).get<std::int64_t>(); };
    model.latent = {.q_lora_rank = value("q_lora_rank"),
                    .kv_lora_rank = value("kv_lora_rank"),
                    .nope_head_dim = value("nope_head_dim"),
                    .rope_head_dim = value("rope_head_dim"),
                    .v_head_dim = value("v_head_dim")};
    model.kv_heads = model.heads;
    model.head_dim = model.latent.nope_head_dim + model.latent.rope_head_dim;
    return model;
}

TEST_P(AgainstPyTorch, LossesAndFirstGradients) {
    const auto [name, file] = GetParam();
    const auto golden = nlohmann::json::parse(read_text_file(std::string(ORRERY_SOURCE_DIR) + "/tests/golden/" + file));
    PlainTrainer trainer(golden_model(name, golden), 32, 4, 8, 1234);
    for (std::size_t step = 0; step < golden["losses"].size(); ++step) {
        const double loss = trainer.pass(static_cast<std::int64_t>(step), true);
        const double expected = golden["losses"][step].get<double>();
        EXPECT_NEAR(loss, expected, 1e-7 * expected) << "step " << step;
        if (step == 0) {
            const auto squares = trainer.gradient_squares();
            EXPECT_EQ(squares.size(), golden["gradient_norms"].size());
            for (const auto& [tensor, norm] : golden["gradient_norms"].items()) {
                // The exact gradient of key biases is zero, because softmax is invariant under a shift. Both sides are
                // rounding errors there.
                EXPECT_NEAR(std::sqrt(squares.at(tensor)), norm.get<double>(), 2e-6 * norm.get<double>() + 1e-9)
                    << tensor;
            }
        }
        trainer.update(static_cast<std::int64_t>(step));
    }
}

INSTANTIATE_TEST_SUITE_P(Models, AgainstPyTorch,
                         ::testing::Values(std::pair{"tiny-gpt", "torch_tiny_gpt.json"},
                                           std::pair{"tiny-llama", "torch_tiny_llama.json"},
                                           std::pair{"tiny-llama", "torch_tiny_latent.json"}));

void expect_gradient_is_the_slope_of_the_loss(const models::ModelSpec& model, double tolerance = 5e-4,
                                              double dropout = 0) {
    PlainTrainer trainer(model, 24, 2, 4, 7, dropout);
    trainer.pass(0, true);
    double square = 0.0;
    for (const auto& [name, value] : trainer.gradient_squares()) square += value;
    const double distance = 0.001 / std::sqrt(square);
    trainer.move_along_gradient(distance);
    const double above = trainer.pass(0, false);
    trainer.move_along_gradient(-2 * distance);
    const double below = trainer.pass(0, false);
    EXPECT_NEAR((above - below) / (2 * distance), square, tolerance * square) << model.name;
}

TEST(CpuOperators, GradientIsTheSlopeOfTheLoss) {
    // Features that the golden models lack: head norms, a sliding window, scaled rotary frequencies, biases on q, k, v
    // only.
    models::ModelSpec model = models::load_model("tiny-llama");
    model.layers = 2;
    model.qk_norm = true;
    model.qkv_bias = true;
    model.sliding_window = 5;
    model.rope_scaling = {"llama3", 4.0, 1.0, 4.0, 16};
    expect_gradient_is_the_slope_of_the_loss(model);
}

// Families with other positions, norms, activations and residuals.
TEST(CpuOperators, GradientOfOtherFamiliesIsTheSlopeOfTheLoss) {
    models::ModelSpec gpt = models::load_model("tiny-gpt");
    gpt.layers = 2;
    models::ModelSpec bloom = gpt, falcon = gpt, neox = gpt, opt = gpt, yarn = models::load_model("tiny-llama");
    bloom.name = "bloom";
    bloom.position = models::PositionKind::alibi;
    bloom.embedding_norm = true;
    falcon.name = "falcon";
    falcon.position = neox.position = models::PositionKind::rotary;
    falcon.kv_heads = 1;
    falcon.qkv_bias = falcon.attention_output_bias = falcon.mlp_bias = false;
    falcon.parallel_residual = falcon.shared_input_norm = true;
    neox.name = "neox";
    neox.parallel_residual = true;
    neox.rotary_fraction = 0.25;
    neox.tied_embeddings = false;
    opt.name = "opt";
    opt.mlp = models::MlpKind::relu;
    opt.position_offset = 2;
    yarn.name = "yarn";
    yarn.layers = 2;
    yarn.rope_scaling = test::short_yarn();
    for (const models::ModelSpec& model : {bloom, falcon, neox, yarn}) expect_gradient_is_the_slope_of_the_loss(model);
    expect_gradient_is_the_slope_of_the_loss(opt, 2e-3);  // ReLU has kinks
}

// Dropout on the embedding, on both branches (sequential or parallel), and on attention probabilities.
TEST(CpuOperators, GradientThroughDropoutIsTheSlopeOfTheLoss) {
    models::ModelSpec gpt = models::load_model("tiny-gpt"), llama = models::load_model("tiny-llama");
    gpt.layers = llama.layers = 2;
    models::ModelSpec neox = gpt;
    neox.name = "neox";
    neox.parallel_residual = true;
    for (const models::ModelSpec& model : {gpt, llama, neox}) {
        expect_gradient_is_the_slope_of_the_loss(model, 5e-4, 0.2);
        PlainTrainer trainer(model, 24, 2, 4, 7, 0.2), other_seed(model, 24, 2, 4, 8, 0.2), whole(model, 24, 2, 4, 7);
        const double loss = trainer.pass(0, false);
        EXPECT_EQ(trainer.pass(0, false), loss);  // the same step has the same masks
        EXPECT_NE(whole.pass(0, false), loss);
        EXPECT_NE(other_seed.pass(0, false), loss);
        trainer.pass(0, true);
        EXPECT_TRUE(trainer.kinds_run.contains(OpKind::residual_add_backward));
    }
}

// Latent attention with latents of queries, keys and values, or of keys and values only. Norms apply to a part of a
// row.
TEST(CpuOperators, GradientThroughLatentsIsTheSlopeOfTheLoss) {
    models::ModelSpec model = models::load_model("tiny-llama");
    model.layers = 2;
    model.kv_heads = model.heads;
    model.latent = {.q_lora_rank = 24, .kv_lora_rank = 16, .nope_head_dim = 8, .rope_head_dim = 4, .v_head_dim = 6};
    model.head_dim = 12;
    expect_gradient_is_the_slope_of_the_loss(model);
    model.latent.q_lora_rank = 0;
    model.norm = models::NormKind::layer_norm;
    model.sliding_window = 5;
    expect_gradient_is_the_slope_of_the_loss(model);
}

/// Four experts as in Mixtral; with gated shared experts and scores that are not normalised, as in Qwen2; with groups,
/// sigmoid scores and a dense first layer, as in DeepSeek-V3; and with ReLU.
std::vector<models::ModelSpec> models_with_experts() {
    models::ModelSpec mixtral = models::load_model("tiny-llama");
    mixtral.layers = 2;
    mixtral.moe = {.expert_count = 4, .top_k = 2, .expert_ffn_hidden = 24};
    models::ModelSpec qwen2 = mixtral;
    qwen2.moe.shared_ffn_hidden = 40;
    qwen2.moe.shared_expert_gate = true;
    qwen2.moe.normalize_top_k = false;
    models::ModelSpec deepseek = mixtral;
    deepseek.moe.shared_ffn_hidden = 24;
    deepseek.moe.first_dense_layers = 1;
    deepseek.moe.sigmoid_scores = true;
    deepseek.moe.score_correction_bias = true;
    deepseek.moe.expert_groups = 2;
    deepseek.moe.top_k_groups = 1;
    deepseek.moe.routed_scale = 2.5;
    models::ModelSpec plain = mixtral;
    plain.mlp = models::MlpKind::relu;
    mixtral.name = "mixtral";
    qwen2.name = "qwen2_moe";
    deepseek.name = "deepseek_v3";
    plain.name = "experts of relu";
    return {mixtral, qwen2, deepseek, plain};
}

TEST(CpuOperators, GradientThroughExpertsIsTheSlopeOfTheLoss) {
    for (models::ModelSpec model : models_with_experts()) {
        // All experts are chosen, because a changing choice would make the loss discontinuous.
        model.moe.top_k = model.moe.expert_count;
        model.moe.top_k_groups = model.moe.expert_groups;
        // ReLU has kinks.
        expect_gradient_is_the_slope_of_the_loss(model, model.mlp == models::MlpKind::relu ? 2e-3 : 5e-4);
    }
}

/// Operators that lowerings add around layers, or between ranks.
const std::set<OpKind> kAround{OpKind::attention_merge,
                               OpKind::add_columns,
                               OpKind::repeat_heads,
                               OpKind::sum_repeated_heads,
                               OpKind::cut_heads,
                               OpKind::join_heads,
                               OpKind::join_sequence,
                               OpKind::cut_sequence,
                               OpKind::sgd_momentum,
                               OpKind::gradient_norm,
                               OpKind::gradient_scale,
                               OpKind::clear,
                               OpKind::group_by_expert,
                               OpKind::group_by_source,
                               OpKind::copy_to_host,
                               OpKind::copy_from_host,
                               OpKind::cross_entropy_correct};

/// The operator kinds in a training step of one rank.
std::set<OpKind> kinds_of_one_rank() {
    std::set<OpKind> result;
    for (int i = 0; i < models::kOpKindCount; ++i) {
        const auto kind = static_cast<OpKind>(i);
        if (models::has_kernels(kind) && !kAround.contains(kind) && kind != OpKind::host_wait) result.insert(kind);
    }
    return result;
}

/// A rank that updates elements 1, 2 and 4 of a buffer of five, and counts the first two of them in norms.
struct FlatOperators : testing::Test {
    FlatOperators() {
        context.model = &model;
        context.updates = ranges;
        context.sgd = {.learning_rate = 0.5, .momentum = 0.9, .weight_decay = 0.1};
        context.clip_norm = 2.5;
    }
    void run(OpKind kind, std::vector<void*> in, std::vector<void*> out) {
        models::Operator op{.kind = kind, .elements = 5};
        op.bytes_read = 5 * sizeof(float);
        OperatorPointers at;
        std::copy(in.begin(), in.end(), at.in.begin());
        std::copy(out.begin(), out.end(), at.out.begin());
        backend.run(op, at, context);
    }
    models::ModelSpec model;
    std::vector<UpdateRange> ranges{
        {.parameter = 1, .gradient = 1, .state = 0, .elements = 2, .decays = true, .counted = true},
        {.parameter = 4, .gradient = 4, .state = 2, .elements = 1}};
    OperatorContext context;
    CpuOperators backend;
    std::vector<float> values{9, 3, 4, 9, 5}, parameters{1, 1, 1, 1, 1}, momentum{0, 0, 0};
    std::array<double, 2> norm{};
};

TEST_F(FlatOperators, NormCountsEachElementOnce) {
    run(OpKind::gradient_norm, {values.data()}, {norm.data()});
    EXPECT_EQ(norm[0], 25.0);
    EXPECT_EQ(norm[1], 0.0);
    values[2] = std::numeric_limits<float>::infinity();
    run(OpKind::gradient_norm, {values.data()}, {norm.data()});
    EXPECT_EQ(norm[1], 1.0);
}

TEST_F(FlatOperators, OnlyUpdatedElementsAreScaledToTheClipNorm) {
    norm = {25.0, 0.0};
    run(OpKind::gradient_scale, {norm.data(), values.data()}, {values.data()});
    EXPECT_FLOAT_EQ(values[1], 1.5F);
    EXPECT_FLOAT_EQ(values[4], 2.5F);
    EXPECT_EQ(values[0], 9.0F);
    norm = {4.0, 0.0};  // below the clip norm
    run(OpKind::gradient_scale, {norm.data(), values.data()}, {values.data()});
    EXPECT_FLOAT_EQ(values[1], 1.5F);
}

TEST_F(FlatOperators, MomentumUsesClippedGradientsAndDecaysMarkedRanges) {
    norm = {25.0, 0.0};
    run(OpKind::sgd_momentum, {values.data(), norm.data()},
        {parameters.data(), momentum.data(), nullptr, values.data()});
    EXPECT_NEAR(momentum[0], 1.5 + 0.1, 1e-6);
    EXPECT_NEAR(parameters[1], 1 - 0.5 * 1.6, 1e-6);
    EXPECT_NEAR(momentum[2], 2.5, 1e-6);
    EXPECT_EQ(parameters[3], 1.0F);
    EXPECT_EQ(values[1], 0.0F);
    EXPECT_EQ(values[3], 9.0F);
}

TEST_F(FlatOperators, CastAddCopyAndClearWholeBuffers) {
    std::vector<float> other(5, 1.0F);
    run(OpKind::accumulate, {values.data()}, {other.data()});
    EXPECT_EQ(other, (std::vector<float>{10, 4, 5, 10, 6}));
    run(OpKind::cast, {values.data()}, {other.data()});
    EXPECT_EQ(other, values);
    run(OpKind::clear, {}, {other.data()});
    EXPECT_EQ(other, std::vector<float>(5, 0.0F));
    run(OpKind::copy_to_host, {values.data()}, {other.data()});
    EXPECT_EQ(other, values);
}

TEST_F(FlatOperators, ColumnsAreCopiedBetweenRowsOfDifferentWidths) {
    std::vector<float> narrow{1, 2, 3, 4}, wide(6, 0.5F);
    models::Operator op{.kind = OpKind::copy_columns, .rows = 2, .n = 1, .from_column = 1, .to_column = 2};
    OperatorPointers at;
    at.in[0] = narrow.data();
    at.in_width[0] = 2;
    at.out[0] = wide.data();
    at.out_width[0] = 3;
    backend.run(op, at, context);
    EXPECT_EQ(wide, (std::vector<float>{0.5F, 0.5F, 2, 0.5F, 0.5F, 4}));
    op.kind = OpKind::add_columns;
    backend.run(op, at, context);
    EXPECT_EQ(wide, (std::vector<float>{0.5F, 0.5F, 4, 0.5F, 0.5F, 8}));
}

TEST_F(FlatOperators, KeyValueHeadsAreRepeatedAndTheirCopiesSummed) {
    // One row: a query head of width 2, and two key/value heads with keys of width 2 and values of width 1.
    std::vector<float> qkv{1, 2, 3, 4, 5, 6, 7, 8}, repeated(14);
    models::Operator op{
        .kind = OpKind::repeat_heads, .rows = 1, .heads = 1, .kv_heads = 2, .head_dim = 2, .value_dim = 1, .copies = 2};
    OperatorPointers at;
    at.in[0] = qkv.data();
    at.in_width[0] = 8;
    at.out[0] = repeated.data();
    at.out_width[0] = 14;
    backend.run(op, at, context);
    EXPECT_EQ(repeated, (std::vector<float>{1, 2, 3, 4, 3, 4, 5, 6, 5, 6, 7, 7, 8, 8}));
    op.kind = OpKind::sum_repeated_heads;
    std::swap(at.in, at.out);
    std::swap(at.in_width, at.out_width);
    backend.run(op, at, context);
    EXPECT_EQ(qkv, (std::vector<float>{1, 2, 6, 8, 10, 12, 14, 16}));
}

// Rank 1 of two holds the chunks 1 and 2 of four, and so loads the tokens of these positions.
TEST_F(FlatOperators, TokensAreThoseOfTheRanksPositions) {
    const models::ModelSpec llama = models::load_model("tiny-llama");
    const TokenSource data("synthetic", 1, llama.vocab, 8);
    const std::vector<std::int64_t> samples{3};
    context.model = &llama;
    context.data = &data;
    context.samples = samples;
    std::vector<std::int32_t> whole(8), part(4);
    models::Operator op{.kind = OpKind::load_targets, .rows = 8, .sequence = 8, .micro_batch = 1};
    OperatorPointers at;
    at.out[0] = whole.data();
    backend.run(op, at, context);
    context.cp = 2;
    context.cp_index = 1;
    op.rows = 4;
    at.out[0] = part.data();
    backend.run(op, at, context);
    EXPECT_EQ(part, (std::vector<std::int32_t>(whole.begin() + 2, whole.begin() + 6)));
}

TEST(CpuOperators, OverwritesOrAccumulatesGradients) {
    models::ModelSpec model;
    CpuOperators backend;
    OperatorContext context;
    context.model = &model;
    std::vector<float> dy{1, 2, 3, 4}, x{1, 1, 2, 2}, gradient{7, 7, 7, 7}, bias{7, 7};
    models::Operator op{.kind = OpKind::linear_backward_weight, .rows = 2, .n = 2, .k = 2};
    OperatorPointers at;
    at.in = {dy.data(), x.data()};
    at.in_width = {2, 2};
    at.out = {gradient.data(), bias.data()};
    for (int times = 0; times < 2; ++times) {
        op.overwrites_gradients = true;
        backend.run(op, at, context);
        EXPECT_EQ(gradient, (std::vector<float>{7, 7, 10, 10}));
        EXPECT_EQ(bias, (std::vector<float>{4, 6}));
    }
    op.overwrites_gradients = false;
    backend.run(op, at, context);
    EXPECT_EQ(gradient, (std::vector<float>{14, 14, 20, 20}));
}

/// A GEMM with bf16 operands is exact except for one rounding of the output, which includes the old value.
TEST(CpuOperators, Bf16OutputsAreRoundedOnce) {
    models::ModelSpec model;
    OperatorContext context;
    context.model = &model;
    CpuOperators backend;
    const std::vector<float> x{1.0F, 2.0F, 0.5F, -3.0F}, dy{1.0F, 3.0F, 257.0F, 1.0F};
    std::vector<std::uint16_t> x16(4), dy16(4), gradient16(4);
    kernels::cast_to_bf16(4, x.data(), x16.data());
    kernels::cast_to_bf16(4, dy.data(), dy16.data());  // 257 becomes 256 here
    std::vector<float> gradient{1000.0F, 0.0F, 0.25F, -1.0F};
    kernels::cast_to_bf16(4, gradient.data(), gradient16.data());
    models::Operator op{.kind = OpKind::linear_backward_weight, .rows = 2, .n = 2, .k = 2};
    OperatorPointers at;
    at.in = {dy16.data(), x16.data()};
    at.in_width = {2, 2};
    at.in_dtype = {DType::bf16, DType::bf16};
    at.out = {gradient16.data()};
    at.out_dtype = {DType::bf16};
    at.in_elements = {4, 4};
    at.out_elements = {4};
    backend.run(op, at, context);
    kernels::cast_from_bf16(4, gradient16.data(), gradient.data());
    // bf16 values around 1129 are 1128 and 1136, around -766 they are -768 and -764.
    EXPECT_EQ(gradient, (std::vector<float>{1128.0F, -768.0F, 3.75F, 2.0F}));
}

TEST(CpuOperators, RunsEveryKindOfADecoder) {
    std::set<OpKind> kinds;
    models::ModelSpec qwen = models::load_model("tiny-llama");
    qwen.layers = 1;
    qwen.qk_norm = true;
    models::ModelSpec gpt = models::load_model("tiny-gpt");
    gpt.layers = 1;
    models::ModelSpec latent = models::load_model("tiny-llama");
    latent.layers = 1;
    latent.kv_heads = latent.heads;
    latent.latent = {.q_lora_rank = 24, .kv_lora_rank = 16, .nope_head_dim = 8, .rope_head_dim = 4, .v_head_dim = 6};
    latent.head_dim = 12;
    std::vector<models::ModelSpec> all = models_with_experts();
    all.insert(all.end(), {qwen, gpt, latent});
    for (const models::ModelSpec& model : all) {
        PlainTrainer trainer(model, 8, 1, 1, 1, 0.1);
        trainer.pass(0, true);
        trainer.update(0);
        kinds.merge(trainer.kinds_run);
    }
    const auto names = [](const std::set<OpKind>& set) {
        std::set<std::string> result;
        for (const OpKind kind : set) result.emplace(name_of(kind));
        return result;
    };
    EXPECT_EQ(names(kinds), names(kinds_of_one_rank()));
}

TEST(CpuOperators, NamesTheKindThatIsSimulatedOnly) {
    const models::ModelSpec model = models::load_model("tiny-gpt");
    CpuOperators backend;
    OperatorContext context;
    context.model = &model;
    float value = 0.0F;
    OperatorPointers at;
    at.in.fill(&value);
    at.out.fill(&value);
    for (int i = 0; i < models::kOpKindCount; ++i) {
        models::Operator op;
        op.kind = static_cast<OpKind>(i);
        if (models::has_kernels(op.kind)) continue;
        try {
            backend.run(op, at, context);
            ADD_FAILURE() << name_of(op.kind) << " ran";
        } catch (const BugError& error) {
            EXPECT_NE(std::string(error.what()).find(name_of(op.kind)), std::string::npos) << error.what();
        }
    }
}

// Attention that stores its probabilities is only simulated; masks need dropout.
TEST(CpuOperators, UnexpectedOperandsAreABug) {
    const models::ModelSpec model = models::load_model("tiny-gpt");
    CpuOperators backend;
    OperatorContext context;
    context.model = &model;
    float value = 0.0F;
    OperatorPointers at;
    at.in.fill(&value);
    at.out.fill(&value);
    for (const OpKind kind :
         {OpKind::residual_add, OpKind::residual_add_backward, OpKind::attention_forward, OpKind::attention_backward}) {
        models::Operator op;
        op.kind = kind;
        op.rows = op.k = op.sequence = op.queries = op.micro_batch = op.heads = op.kv_heads = op.head_dim = 1;
        EXPECT_THROW(backend.run(op, at, context), BugError) << name_of(kind);
    }
}

TEST(CpuOperators, MissingOperandsAreABug) {
    const models::ModelSpec model = models::load_model("tiny-gpt");
    CpuOperators backend;
    OperatorContext context;
    context.model = &model;
    models::Operator op;
    op.kind = OpKind::gelu_forward;
    op.rows = op.n = 1;
    EXPECT_THROW(backend.run(op, {}, context), BugError);
}

}  // namespace
}  // namespace orrery::exec
