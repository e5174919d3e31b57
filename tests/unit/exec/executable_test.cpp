// Plans that the executor cannot run are refused, with the plan's key.
#include "exec/executable.h"

#include <gtest/gtest.h>

#include <functional>

#include "core/error.h"
#include "models/model_spec.h"

namespace orrery::exec {
namespace {

using program::Plan;

Plan small_plan() {
    Plan plan;
    plan.name = "small";
    plan.model = models::load_model("tiny-llama");
    plan.implementation = models::load_implementation("orrery");
    plan.parallelism.stage_layers = {plan.model.layers};
    plan.training.sequence_length = 32;
    return plan;
}

struct Refused {
    std::string name;
    std::function<void(Plan&)> change;
    std::string message;  // after "p.json: "
    friend std::ostream& operator<<(std::ostream& out, const Refused& one) { return out << one.name; }
};

const std::string kDecoders =
    ", because the executor runs decoders like gpt2, opt, bloom, falcon, gpt-neox, llama, mistral, mixtral, qwen2, "
    "qwen3 and deepseek-v3";

const std::string kPrecisions =
    "; allowed: \"fp32\", \"bf16\", because the executor runs fp32, and bf16 with fp32 master weights";

const std::vector<Refused>& refused() {
    static const std::vector<Refused> cases{
        {"vocabulary_every_micro_batch",
         [](Plan& p) {
             p.parallelism.vocabulary_parallel = program::VocabularyParallel::one_barrier;
             p.parallelism.reduces_every_micro_batch = true;
         },
         "/parallelism/reduces_every_micro_batch: got true; allowed: false where the vocabulary is cut over the "
         "stages, because the executor runs such vocabularies only with one gradient reduction, after the last "
         "micro-batch"},
        {"room_for_experts", [](Plan& p) { p.parallelism.ep = 2; },
         "/training/expert_load/largest: got 0; allowed: more than 1 if ep > 1; the number of ranks in ep always "
         "suffices, because the executor runs real routers, which load the ranks unevenly"},
        {"capacity", [](Plan& p) { p.training.expert_load.capacity_factor = 1.25; },
         "/training/expert_load/capacity_factor: got 1.25; allowed: 0, because the executor runs experts that take "
         "every token"},
        {"odd_chunks",
         [](Plan& p) {
             p.parallelism.cp = 2;
             p.parallelism.context_parallel = models::ContextParallel::ulysses;
             p.training.sequence_length = 34;
         },
         "/training/sequence_length: got 34; allowed: a multiple of 2 * cp, because the executor runs every kind of "
         "context parallelism with two chunks of the sequence on each rank"},
        {"fp16", [](Plan& p) { p.training.precision = program::precision_named("fp16"); },
         "/training/precision: got fp16" + kPrecisions},
        {"tf32", [](Plan& p) { p.training.precision = program::precision_named("tf32"); },
         "/training/precision: got tf32" + kPrecisions},
        {"fp8", [](Plan& p) { p.training.precision = program::precision_named("fp8"); },
         "/training/precision: got fp8" + kPrecisions},
        {"bf16_without_masters",
         [](Plan& p) {
             p.training.precision = program::precision_named("bf16");
             p.training.precision.master_weights = false;
         },
         "/training/precision: got bf16 parameters, bf16 activations, fp32 gradients" + kPrecisions},
        {"scattered_in_another_type",
         [](Plan& p) {
             p.parallelism.data_parallel = program::DataParallel::zero1;
             p.training.precision = program::precision_named("bf16");
             p.training.precision.reduction = DType::bf16;
         },
         "/training/precision/reduction: got \"bf16\"; allowed: the gradients' type where gradients are scattered, "
         "because the executor runs reduce-scatters in the type of the gradients"},
        {"fp32_shards",
         [](Plan& p) {
             p.parallelism.data_parallel = program::DataParallel::zero3;
             p.training.precision = program::precision_named("bf16");
             p.training.precision.gradient = p.training.precision.reduction = DType::bf16;
             p.implementation.stores_fp32_shards = true;
         },
         "/implementation/stores_fp32_shards: got true; allowed: false in 16 bits with gradients in 16 bits or "
         "parameters on the host, because the executor runs updates of fp32 shards with fp32 gradients, on the device"},
        {"bidirectional", [](Plan& p) { p.model.causal = false; },
         "/model/causal: got false; allowed: true" + kDecoders},
        {"post_norm", [](Plan& p) { p.model.post_norm = true; },
         "/model/post_norm: got true; allowed: false" + kDecoders},
        {"no_final_norm", [](Plan& p) { p.model.final_norm = false; },
         "/model/final_norm: got false; allowed: true" + kDecoders},
        {"token_types", [](Plan& p) { p.model.token_types = 2; }, "/model/token_types: got 2; allowed: 0" + kDecoders},
        {"head_transform", [](Plan& p) { p.model.head_transform = true; },
         "/model/head_transform: got true; allowed: false" + kDecoders},
        {"head_bias", [](Plan& p) { p.model.head_bias = true; },
         "/model/head_bias: got true; allowed: false" + kDecoders},
        {"pooler", [](Plan& p) { p.model.pooler = true; }, "/model/pooler: got true; allowed: false" + kDecoders},
        {"pipelined_gather", [](Plan& p) { p.implementation.tensor_parallel.pipelined_gather = true; },
         "/implementation/tensor_parallel/pipelined_gather: got true; allowed: false, because the executor runs whole "
         "gathers"},
        {"scatters_transfers", [](Plan& p) { p.implementation.pipeline.scatters_transfers = true; },
         "/implementation/pipeline/scatters_transfers: got true; allowed: false, because the executor runs whole "
         "transfers"},
        {"sends_tokens_once", [](Plan& p) { p.implementation.experts.sends_tokens_once = true; },
         "/implementation/experts/sends_tokens_once: got true; allowed: false, because the executor runs an all-to-all "
         "with a copy of each token for each of its experts"},
        {"fusion_buffer", [](Plan& p) { p.implementation.data_parallel.fusion_buffer = true; },
         "/implementation/data_parallel/fusion_buffer: got true; allowed: false, because the executor runs reductions "
         "in place, without a fusion buffer"},
        {"post_validation", [](Plan& p) { p.training.optimizer.post_validation = true; },
         "/training/optimizer/post_validation: got true; allowed: false, because the executor runs updates "
         "that are never rolled back"},
    };
    return cases;
}

void expect_refused(const Plan& plan, const std::string& message) {
    try {
        check_executable(plan, "p.json");
        ADD_FAILURE() << "no error; expected: " << message;
    } catch (const InputError& error) {
        EXPECT_EQ(error.what(), "p.json: " + message);
    }
}

class SimulatedOnly : public testing::TestWithParam<Refused> {};

TEST_P(SimulatedOnly, IsRefusedByItsKey) {
    Plan plan = small_plan();
    ASSERT_NO_THROW(check_executable(plan, "p.json"));
    GetParam().change(plan);
    expect_refused(plan, GetParam().message);
}
INSTANTIATE_TEST_SUITE_P(Plans, SimulatedOnly, testing::ValuesIn(refused()),
                         [](const auto& one) { return one.param.name; });

TEST(Executable, OnlyOwnImplementation) {
    for (const std::string& name : models::implementation_names()) {
        Plan plan = small_plan();
        plan.implementation = models::load_implementation(name);
        if (name == "orrery") {
            EXPECT_NO_THROW(check_executable(plan, "p.json"));
        } else {
            expect_refused(
                plan, "/implementation: got " + name + "; allowed: an implementation that the executor runs: orrery");
        }
    }
}

/// Applies even if an implementation claims to be executable.
TEST(Executable, OnlyFusedKernels) {
    using models::KernelChoices;
    const std::vector<std::pair<std::string, bool KernelChoices::*>> choices{
        {"fused_attention", &KernelChoices::fused_attention},
        {"causal_skip", &KernelChoices::causal_skip},
        {"fused_norm", &KernelChoices::fused_norm},
        {"repeats_kv_heads", &KernelChoices::repeats_kv_heads},
        {"fused_rope", &KernelChoices::fused_rope},
        {"fused_activation", &KernelChoices::fused_activation},
        {"fused_residual", &KernelChoices::fused_residual},
        {"masks_without_dropout", &KernelChoices::masks_without_dropout},
        {"fused_cross_entropy", &KernelChoices::fused_cross_entropy},
        {"fused_weight_gradient", &KernelChoices::fused_weight_gradient},
        {"merged_projections", &KernelChoices::merged_projections},
        {"merged_gate", &KernelChoices::merged_gate},
        {"splits_projections", &KernelChoices::splits_projections},
        {"copies_qkv", &KernelChoices::copies_qkv},
        {"joins_kv", &KernelChoices::joins_kv},
        {"fused_optimizer", &KernelChoices::fused_optimizer}};
    for (const auto& [name, choice] : choices) {
        Plan plan = small_plan();
        bool& value = plan.implementation.kernels.*choice;
        value = !value;
        expect_refused(plan, "/implementation/kernels/" + name +
                                 (value ? ": got true; allowed: false" : ": got false; allowed: true") +
                                 ", because the executor runs fused kernels");
    }
}

TEST(Executable, AttentionSeesTheWholeSequence) {
    Plan plan = small_plan();
    plan.implementation.kernels.document_tokens = 100;
    expect_refused(plan,
                   "/implementation/kernels/document_tokens: got 100; allowed: 0, because the executor runs attention "
                   "over whole sequences");
}

TEST(Executable, SettingsThatOnlyChangeTheOrderAreAllowed) {
    Plan plan = small_plan();
    plan.parallelism.order = program::mesh_order_named("pp,dp,tp,cp,ep");
    plan.training.memory.recompute = program::Recompute::full;
    plan.implementation.data_parallel.overlaps_backward = false;
    plan.implementation.pipeline.posts_receives_ahead = false;
    for (int i = 0; i < program::kScheduleCount; ++i) {
        plan.parallelism.schedule = static_cast<program::Schedule>(i);
        EXPECT_NO_THROW(check_executable(plan, "p.json")) << name_of(plan.parallelism.schedule);
    }
}

}  // namespace
}  // namespace orrery::exec
