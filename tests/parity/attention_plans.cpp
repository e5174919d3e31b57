// Plans for kinds of attention: key/value heads with copies on several ranks, and latent attention.
#include "tests/parity/plans.h"
#include "tests/unit/models/short_yarn.h"

namespace orrery::parity {
namespace {

using program::ContextParallel;
using program::DataParallel;
using program::Schedule;

/// More ranks than the two key/value heads of these models: neighbouring tensor-parallel ranks hold the same head, and
/// Ulysses sends copies of heads.
std::vector<Case> copied_heads() {
    const Shape tp4{.name = "tp4", .tp = 4};
    const Shape tp4_sp{.name = "tp4_sp", .tp = 4, .sequence_parallel = true};
    const Shape dp2_tp4_sp_zero1{
        .name = "dp2_tp4_sp_zero1", .dp = 2, .tp = 4, .sequence_parallel = true, .data_parallel = DataParallel::zero1};
    const Shape dp2_tp4_zero3{.name = "dp2_tp4_zero3", .dp = 2, .tp = 4, .data_parallel = DataParallel::zero3};
    const Shape cp4_ulysses{.name = "cp4_ulysses", .cp = 4, .context_parallel = ContextParallel::ulysses};
    return {
        {"tiny-llama", tp4},
        {"tiny-llama", tp4_sp},
        {"tiny-llama", {.name = "dp2_tp4", .dp = 2, .tp = 4}},
        {"tiny-llama", dp2_tp4_sp_zero1},
        {"tiny-llama", {.name = "dp2_tp4_zero2", .dp = 2, .tp = 4, .data_parallel = DataParallel::zero2}},
        {"tiny-llama", dp2_tp4_zero3},
        {"tiny-llama", {.name = "tp4_pp2", .tp = 4, .pp = 2}},
        {"tiny-llama",
         {.name = "tp4_sp_pp2_zb_h1", .tp = 4, .pp = 2, .sequence_parallel = true, .schedule = Schedule::zb_h1}},
        {"tiny-llama", {.name = "dp2_tp4_dp_first", .dp = 2, .tp = 4, .order = "dp,tp,cp,ep,pp"}},
        {"tiny-llama",
         {.name = "tp4_sp_recompute_full",
          .tp = 4,
          .sequence_parallel = true,
          .memory = {.recompute = program::Recompute::full}}},
        {"tiny-llama", {.name = "tp4_cp2_ring", .tp = 4, .cp = 2}},
        {"tiny-llama", {.name = "bf16_tp4_sp", .tp = 4, .sequence_parallel = true, .precision = "bf16"}},
        {"tiny-llama-clipped", tp4},
        {"tiny-llama-clipped", tp4_sp},
        {"tiny-llama-clipped", dp2_tp4_sp_zero1},
        {"tiny-llama-clipped", dp2_tp4_zero3},
        {"tiny-qwen2", tp4},
        {"tiny-qwen2", tp4_sp},
        {"tiny-qwen3", tp4},
        {"tiny-qwen3", tp4_sp},
        {"tiny-llama", cp4_ulysses},
        {"tiny-llama",
         {.name = "tp2_sp_cp2_ulysses",
          .tp = 2,
          .sequence_parallel = true,
          .cp = 2,
          .context_parallel = ContextParallel::ulysses}},
        {"tiny-llama",
         {.name = "dp2_cp4_ulysses_zero2",
          .dp = 2,
          .data_parallel = DataParallel::zero2,
          .cp = 4,
          .context_parallel = ContextParallel::ulysses}},
        {"tiny-llama",
         {.name = "cp4_ulysses_recompute_attention",
          .memory = {.recompute = program::Recompute::selective,
                     .recompute_parts = {"attention_projection", "attention_core", "attention_output"}},
          .cp = 4,
          .context_parallel = ContextParallel::ulysses}},
        {"tiny-llama",
         {.name = "bf16_cp4_ulysses", .cp = 4, .context_parallel = ContextParallel::ulysses, .precision = "bf16"}},
        {"tiny-llama-clipped", cp4_ulysses},
    };
}

/// The features of DeepSeek-V3 besides latent attention: expert groups and YaRN.
void take_after_deepseek_v3(models::ModelSpec& model) {
    model.family = "deepseek_v3";
    model.rope_scaling = test::short_yarn();
    model.moe = {.expert_count = 8,
                 .top_k = 3,
                 .expert_ffn_hidden = 48,
                 .shared_ffn_hidden = 32,
                 .first_dense_layers = 1,
                 .score_correction_bias = true,
                 .expert_groups = 4,
                 .top_k_groups = 2,
                 .sigmoid_scores = true,
                 .routed_scale = 2.5};
}

const std::vector<Shape>& latents() {
    using program::Recompute;
    static const std::vector<Shape> shapes{
        {.name = "one_rank_micro_batch_8", .micro_batch_size = 8},
        {.name = "dp2", .dp = 2},
        {.name = "tp2", .tp = 2},
        {.name = "tp2_sp", .tp = 2, .sequence_parallel = true},
        {.name = "tp4_sp", .tp = 4, .sequence_parallel = true},
        {.name = "pp2_1f1b", .pp = 2},
        {.name = "dp2_tp2_pp2", .dp = 2, .tp = 2, .pp = 2},
        {.name = "tp2_sp_pp2_zb_h1", .tp = 2, .pp = 2, .sequence_parallel = true, .schedule = Schedule::zb_h1},
        {.name = "cp2_ring", .cp = 2},
        {.name = "cp2_all_gather", .cp = 2, .context_parallel = ContextParallel::all_gather},
        {.name = "cp2_ulysses", .cp = 2, .context_parallel = ContextParallel::ulysses},
        {.name = "tp2_sp_cp2_ring", .tp = 2, .sequence_parallel = true, .cp = 2},
        {.name = "dp2_zero3", .dp = 2, .data_parallel = DataParallel::zero3},
        {.name = "dp2_tp2_sp_zero1", .dp = 2, .tp = 2, .sequence_parallel = true, .data_parallel = DataParallel::zero1},
        {.name = "recompute_full", .memory = {.recompute = Recompute::full}},
        {.name = "tp2_sp_recompute_attention",
         .tp = 2,
         .sequence_parallel = true,
         .memory = {.recompute = Recompute::selective,
                    .recompute_parts = {"norm", "attention_projection", "attention_core", "attention_output"}}},
        {.name = "offload_two_layers", .memory = {.offload_layers = 2}},
        {.name = "bf16_dp2", .dp = 2, .precision = "bf16"},
        {.name = "bf16_tp2_sp", .tp = 2, .sequence_parallel = true, .precision = "bf16"},
    };
    return shapes;
}

/// Latent attention together with experts.
const std::vector<Shape>& latents_and_experts() {
    static const std::vector<Shape> shapes{
        {.name = "one_rank_micro_batch_8", .micro_batch_size = 8},
        {.name = "dp2_ep2", .dp = 2, .ep = 2},
        {.name = "tp2_sp_ep2", .tp = 2, .sequence_parallel = true, .ep = 2},
        {.name = "cp2_ep2", .cp = 2, .ep = 2},
        {.name = "dp2_pp2_ep2", .dp = 2, .pp = 2, .ep = 2},
        {.name = "dp4_ep2_zero2", .dp = 4, .data_parallel = DataParallel::zero2, .ep = 2},
        {.name = "dp2_ep2_recompute_full", .dp = 2, .memory = {.recompute = program::Recompute::full}, .ep = 2},
    };
    return shapes;
}

}  // namespace

std::vector<const char*> attention_models() {
    return {"tiny-qwen2",          "tiny-llama-clipped", "tiny-latent",     "tiny-latent-clipped",
            "tiny-latent-queries", "tiny-deepseek-v2",   "tiny-deepseek-v3"};
}

bool take_attention_of(const std::string& name, models::ModelSpec& model) {
    if (name == "tiny-qwen2") {
        model.family = "qwen2";
        model.qkv_bias = true;
        return true;
    }
    const bool deepseek = name == "tiny-deepseek-v2" || name == "tiny-deepseek-v3";
    if (!deepseek && !name.starts_with("tiny-latent")) return false;
    model.latent = {.q_lora_rank = 24, .kv_lora_rank = 16, .nope_head_dim = 8, .rope_head_dim = 4, .v_head_dim = 6};
    model.kv_heads = model.heads;
    model.head_dim = model.latent.nope_head_dim + model.latent.rope_head_dim;
    // Queries from a single GEMM, without a latent.
    if (name == "tiny-latent-queries" || name == "tiny-deepseek-v2") model.latent.q_lora_rank = 0;
    if (name == "tiny-deepseek-v2") {
        model.moe = {.expert_count = 4, .top_k = 2, .expert_ffn_hidden = 48, .shared_ffn_hidden = 64};
        model.moe.normalize_top_k = false;
    } else if (name == "tiny-deepseek-v3") {
        take_after_deepseek_v3(model);
    }
    return true;
}

std::vector<Case> attention_cases() {
    std::vector<Case> cases = copied_heads();
    for (const Shape& shape : latents()) cases.push_back({"tiny-latent", shape});
    for (const Shape& shape : latents()) {
        const std::string name = shape.name;
        if (name == "tp2" || name == "tp2_sp" || name == "tp2_sp_pp2_zb_h1") {
            cases.push_back({"tiny-latent-queries", shape});
        }
        if (name == "dp2_tp2_sp_zero1") cases.push_back({"tiny-latent-clipped", shape});
    }
    for (const Shape& shape : latents_and_experts()) {
        cases.push_back({"tiny-deepseek-v3", shape});
        if (shape.pp == 1 && shape.cp == 1) cases.push_back({"tiny-deepseek-v2", shape});
    }
    return cases;
}

}  // namespace orrery::parity
