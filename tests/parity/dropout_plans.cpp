// Plans with dropout. Masks do not depend on the plan, so each plan trains like one rank.
#include "tests/parity/plans.h"

namespace orrery::parity {
namespace {

using program::ContextParallel;
using program::DataParallel;
using program::Recompute;
using program::Schedule;
using program::VocabularyParallel;

void pad_vocabulary_little(models::Implementation& implementation) {
    implementation.vocab_multiple = 1;
}

/// Each shape distributes tokens, positions, heads and keys differently, or recomputes masks.
std::vector<Shape> shapes() {
    return {
        {.name = "one_rank_micro_batch_8", .micro_batch_size = 8},
        {.name = "dp2", .dp = 2},
        {.name = "dp4_one_micro_batch", .dp = 4, .micro_batch_size = 2},
        {.name = "dp2_master_micro_batch_2", .dp = 2, .micro_batch_size = 2, .data_parallel = DataParallel::dp},
        {.name = "dp2_zero3", .dp = 2, .data_parallel = DataParallel::zero3},
        {.name = "tp2", .tp = 2},
        {.name = "tp4", .tp = 4},
        {.name = "tp2_sp_micro_batch_2", .tp = 2, .sequence_parallel = true, .micro_batch_size = 2},
        {.name = "pp2_interleaved", .pp = 2, .schedule = Schedule::interleaved, .chunks = 2},
        {.name = "pp2_dualpipe", .pp = 2, .schedule = Schedule::dualpipe, .chunks = 2},
        {.name = "dp2_tp2_pp2_sp_zb_h1",
         .dp = 2,
         .tp = 2,
         .pp = 2,
         .sequence_parallel = true,
         .schedule = Schedule::zb_h1},
        {.name = "pp2_zb_h1_recompute_full",
         .pp = 2,
         .schedule = Schedule::zb_h1,
         .memory = {.recompute = Recompute::full}},
        {.name = "pp2_vocab_1",
         .pp = 2,
         .adjust = pad_vocabulary_little,
         .vocabulary_parallel = VocabularyParallel::two_barriers},
        {.name = "dp2_pp2_interlaced",
         .dp = 2,
         .pp = 2,
         .adjust = pad_vocabulary_little,
         .vocabulary_parallel = VocabularyParallel::interlaced},
        {.name = "cp2_ring", .cp = 2},
        {.name = "cp4_ring_micro_batch_2", .micro_batch_size = 2, .cp = 4},
        {.name = "cp2_all_gather", .cp = 2, .context_parallel = ContextParallel::all_gather},
        {.name = "cp4_ulysses", .cp = 4, .context_parallel = ContextParallel::ulysses},
        {.name = "tp2_sp_cp2_ring", .tp = 2, .sequence_parallel = true, .cp = 2},
        {.name = "tp2_sp_cp2_ulysses",
         .tp = 2,
         .sequence_parallel = true,
         .cp = 2,
         .context_parallel = ContextParallel::ulysses},
        {.name = "cp2_ring_recompute_full", .memory = {.recompute = Recompute::full}, .cp = 2},
        {.name = "recompute_full", .memory = {.recompute = Recompute::full}},
        {.name = "recompute_attention_core", .memory = {.recompute = Recompute::selective}},
        {.name = "tp2_sp_recompute_parts",
         .tp = 2,
         .sequence_parallel = true,
         .memory = {.recompute = Recompute::selective, .recompute_parts = {"norm", "attention_core", "mlp_out"}}},
        {.name = "offload_two_layers", .memory = {.offload_layers = 2}},
        {.name = "bf16_dp2", .dp = 2, .precision = "bf16"},
        {.name = "bf16_tp2_sp", .tp = 2, .sequence_parallel = true, .precision = "bf16"},
        {.name = "bf16_cp2_ring", .cp = 2, .precision = "bf16"},
    };
}

/// Models with dropout in other places: on both branches at once, on a normalised embedding, on the sum over experts.
std::vector<Case> other_models() {
    const Shape all{.name = "dp2_tp2_pp2", .dp = 2, .tp = 2, .pp = 2};
    const Shape tp2_sp_pp2{.name = "tp2_sp_pp2", .tp = 2, .pp = 2, .sequence_parallel = true};
    const Shape spread{.name = "dp2_tp2_sp_ep4", .dp = 2, .tp = 2, .sequence_parallel = true, .ep = 4};
    return {
        {"tiny-gpt-neox-dropout", all},
        {"tiny-gpt-neox-dropout", tp2_sp_pp2},
        {"tiny-gpt-bloom-dropout", tp2_sp_pp2},
        {"tiny-gpt-bloom-dropout", {.name = "cp2_ulysses", .cp = 2, .context_parallel = ContextParallel::ulysses}},
        {"tiny-latent-dropout", {.name = "tp2_sp_cp2_ring", .tp = 2, .sequence_parallel = true, .cp = 2}},
        {"tiny-mixtral-dropout", spread},
        {"tiny-mixtral-dropout", {.name = "cp2_ep2", .cp = 2, .ep = 2}},
        {"tiny-mixtral-dropout",
         {.name = "dp2_pp2_ep2_recompute_full", .dp = 2, .pp = 2, .memory = {.recompute = Recompute::full}, .ep = 2}},
    };
}

}  // namespace

std::vector<const char*> dropout_models() {
    return {"tiny-gpt-dropout",       "tiny-llama-dropout",  "tiny-gpt-neox-dropout",
            "tiny-gpt-bloom-dropout", "tiny-latent-dropout", "tiny-mixtral-dropout"};
}

std::vector<Case> dropout_cases() {
    std::vector<Case> cases;
    for (const char* model : {"tiny-gpt-dropout", "tiny-llama-dropout"}) {
        for (const Shape& shape : shapes()) cases.push_back({model, shape});
    }
    for (const Case& one : other_models()) cases.push_back(one);
    return cases;
}

}  // namespace orrery::parity
