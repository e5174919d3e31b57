// Plans that concern what attention is made of: heads that ranks hold copies of.
#include "tests/parity/plans.h"

namespace orrery::parity {
namespace {

using program::ContextParallel;
using program::DataParallel;
using program::Schedule;

/// More ranks than key/value heads, of which these models have two: tensor-parallel neighbours hold the same one, and
/// Ulysses sends copies.
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

}  // namespace

std::vector<Case> attention_cases() {
    return copied_heads();
}

}  // namespace orrery::parity
