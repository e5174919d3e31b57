#include "tests/parity/plans.h"

#include <stdexcept>

#include "tests/cli/command.h"
#include "tests/unit/models/short_yarn.h"
#include "tests/unit/topologies/made_up_cluster.h"

namespace orrery::parity {
namespace {

using program::Schedule;

/// Data, tensor, sequence and pipeline parallelism on up to eight ranks. A global batch has eight sequences.
const std::vector<Shape>& full_matrix() {
    static const std::vector<Shape> shapes{
        {.name = "one_rank_micro_batch_8", .micro_batch_size = 8},
        {.name = "dp2", .dp = 2},
        {.name = "dp4_one_micro_batch", .dp = 4, .micro_batch_size = 2},
        {.name = "dp4_accumulating", .dp = 4},
        {.name = "tp2", .tp = 2},
        {.name = "tp2_sp", .tp = 2, .sequence_parallel = true},
        {.name = "pp2_gpipe", .pp = 2, .schedule = Schedule::gpipe},
        {.name = "pp2_1f1b", .pp = 2},
        {.name = "pp2_uneven_3_1", .pp = 2, .stage_layers = {3, 1}},
        {.name = "pp3_eight_micro_batches", .pp = 3, .stage_layers = {1, 2, 1}},  // 8 is not a multiple of 3
        {.name = "pp4_1f1b", .pp = 4},
        {.name = "pp4_two_micro_batches", .pp = 4, .micro_batch_size = 4},
        {.name = "dp2_tp2", .dp = 2, .tp = 2},
        {.name = "dp2_tp2_sp", .dp = 2, .tp = 2, .sequence_parallel = true},
        {.name = "dp2_pp2", .dp = 2, .pp = 2},
        {.name = "tp2_pp2", .tp = 2, .pp = 2},
        {.name = "tp2_sp_pp2", .tp = 2, .pp = 2, .sequence_parallel = true},
        {.name = "dp2_tp2_pp2", .dp = 2, .tp = 2, .pp = 2},
        {.name = "dp2_tp2_pp2_sp", .dp = 2, .tp = 2, .pp = 2, .sequence_parallel = true},
        {.name = "dp2_tp2_pp2_gpipe", .dp = 2, .tp = 2, .pp = 2, .schedule = Schedule::gpipe},
        {.name = "pp2_naive", .pp = 2, .schedule = Schedule::naive},
        {.name = "dp2_tp2_pp2_sp_dp_first",
         .dp = 2,
         .tp = 2,
         .pp = 2,
         .sequence_parallel = true,
         .order = "dp,tp,cp,ep,pp"},
        {.name = "dp2_tp2_pp2_pp_first", .dp = 2, .tp = 2, .pp = 2, .order = "pp,dp,tp,cp,ep"},
    };
    return shapes;
}

/// Pipelines with several chunks per rank or with split backward passes.
const std::vector<Shape>& wide_pipelines() {
    static const std::vector<Shape> shapes{
        {.name = "pp2_interleaved", .pp = 2, .schedule = Schedule::interleaved, .chunks = 2},
        {.name = "dp2_tp2_pp2_interleaved", .dp = 2, .tp = 2, .pp = 2, .schedule = Schedule::interleaved, .chunks = 2},
        {.name = "pp2_zb_h1", .pp = 2, .schedule = Schedule::zb_h1},
        {.name = "dp2_tp2_pp2_sp_zb_h1",
         .dp = 2,
         .tp = 2,
         .pp = 2,
         .sequence_parallel = true,
         .schedule = Schedule::zb_h1},
        {.name = "pp4_zb_h2", .pp = 4, .schedule = Schedule::zb_h2},
        {.name = "pp2_zb_1p", .pp = 2, .schedule = Schedule::zb_1p},
        {.name = "pp4_zb_2p", .pp = 4, .schedule = Schedule::zb_2p},
        {.name = "pp2_zb_v", .pp = 2, .schedule = Schedule::zb_v, .chunks = 2},
        {.name = "dp2_tp2_pp2_zb_v", .dp = 2, .tp = 2, .pp = 2, .schedule = Schedule::zb_v, .chunks = 2},
        {.name = "pp2_dualpipe", .pp = 2, .schedule = Schedule::dualpipe, .chunks = 2},
        {.name = "tp2_pp2_pp_first_dualpipe",
         .tp = 2,
         .pp = 2,
         .schedule = Schedule::dualpipe,
         .order = "pp,dp,tp,cp,ep",
         .chunks = 2},
        {.name = "dp2_pp2_pp_first_dualpipe",
         .dp = 2,
         .pp = 2,
         .schedule = Schedule::dualpipe,
         .order = "pp,dp,tp,cp,ep",
         .chunks = 2},
        {.name = "pp4_dualpipe", .pp = 4, .schedule = Schedule::dualpipe, .chunks = 2},
        {.name = "pp2_dualpipe_v", .pp = 2, .schedule = Schedule::dualpipe_v, .chunks = 2},
        {.name = "dp2_pp2_dualpipe_v", .dp = 2, .pp = 2, .schedule = Schedule::dualpipe_v, .chunks = 2},
    };
    return shapes;
}

/// Recomputation of blocks, or of parts of them, and offloading.
const std::vector<Shape>& saving_memory() {
    using program::Recompute;
    static const std::vector<Shape> shapes{
        {.name = "recompute_full", .memory = {.recompute = Recompute::full}},
        {.name = "recompute_attention_core", .memory = {.recompute = Recompute::selective}},
        {.name = "recompute_parts",
         .memory = {.recompute = Recompute::selective, .recompute_parts = {"norm", "activation", "mlp_in"}}},
        {.name = "recompute_attention",
         .memory = {.recompute = Recompute::selective,
                    .recompute_parts = {"attention_projection", "attention_core", "attention_output"}}},
        {.name = "dp2_tp2_pp2_sp_recompute_full",
         .dp = 2,
         .tp = 2,
         .pp = 2,
         .sequence_parallel = true,
         .memory = {.recompute = Recompute::full, .recompute_layers = 1}},
        {.name = "tp2_pp2_recompute_full", .tp = 2, .pp = 2, .memory = {.recompute = Recompute::full}},
        {.name = "tp2_sp_recompute_attention_core",
         .tp = 2,
         .sequence_parallel = true,
         .memory = {.recompute = Recompute::selective}},
        {.name = "offload_two_layers", .memory = {.offload_layers = 2}},
        {.name = "dp2_tp2_pp2_sp_offload",
         .dp = 2,
         .tp = 2,
         .pp = 2,
         .sequence_parallel = true,
         .memory = {.offload_layers = 1}},
        {.name = "pp2_interleaved_offload",
         .pp = 2,
         .schedule = Schedule::interleaved,
         .chunks = 2,
         .memory = {.offload_layers = 1}},
        {.name = "pp2_zb_h1_recompute_full",
         .pp = 2,
         .schedule = Schedule::zb_h1,
         .memory = {.recompute = Recompute::full}},
        {.name = "tp2_pp2_interleaved_recompute",
         .tp = 2,
         .pp = 2,
         .schedule = Schedule::interleaved,
         .chunks = 2,
         .memory = {.recompute = Recompute::selective}},
    };
    return shapes;
}

/// Unfavourable sizes: shards are padded, a layer needs several buckets or units, or a bucket covers several layers.
void pad_a_lot(models::Implementation& implementation) {
    implementation.data_parallel.shard_alignment_elements = 48;
    implementation.data_parallel.bucket_bytes = 40'000;
}

/// ZeRO: states, gradients and parameters sharded over data-parallel ranks.
const std::vector<Shape>& sharded() {
    using program::DataParallel;
    static const std::vector<Shape> shapes{
        {.name = "dp2_zero1", .dp = 2, .data_parallel = DataParallel::zero1},
        {.name = "dp2_zero2", .dp = 2, .data_parallel = DataParallel::zero2},
        {.name = "dp2_zero3", .dp = 2, .data_parallel = DataParallel::zero3},
        {.name = "dp4_zero1_padded", .dp = 4, .data_parallel = DataParallel::zero1, .adjust = pad_a_lot},
        {.name = "dp4_zero2_padded", .dp = 4, .data_parallel = DataParallel::zero2, .adjust = pad_a_lot},
        {.name = "dp4_zero3_padded", .dp = 4, .data_parallel = DataParallel::zero3, .adjust = pad_a_lot},
        {.name = "dp2_zero2_accumulating", .dp = 2, .data_parallel = DataParallel::zero2, .accumulates = true},
        {.name = "dp2_zero3_accumulating", .dp = 2, .data_parallel = DataParallel::zero3, .accumulates = true},
        {.name = "dp2_zero3_stays_gathered",
         .dp = 2,
         .data_parallel = DataParallel::zero3,
         .reshard_after_forward = false},
        {.name = "dp4_zero1_in_sets", .dp = 4, .data_parallel = DataParallel::zero1, .dp_shard = 2},
        {.name = "dp4_zero2_in_sets", .dp = 4, .data_parallel = DataParallel::zero2, .dp_shard = 2},
        {.name = "dp4_zero3_in_sets", .dp = 4, .data_parallel = DataParallel::zero3, .dp_shard = 2},
        {.name = "dp2_tp2_sp_zero1", .dp = 2, .tp = 2, .sequence_parallel = true, .data_parallel = DataParallel::zero1},
        {.name = "dp2_tp2_sp_zero2", .dp = 2, .tp = 2, .sequence_parallel = true, .data_parallel = DataParallel::zero2},
        {.name = "dp2_tp2_sp_zero3", .dp = 2, .tp = 2, .sequence_parallel = true, .data_parallel = DataParallel::zero3},
        {.name = "dp2_zero3_recompute_full",
         .dp = 2,
         .memory = {.recompute = program::Recompute::full},
         .data_parallel = DataParallel::zero3},
        {.name = "dp2_zero1_whole_reductions",
         .dp = 2,
         .data_parallel = DataParallel::zero1,
         .adjust =
             [](models::Implementation& implementation) { implementation.data_parallel.reduces_to_owner = false; }},
        {.name = "dp2_zero1_gathers_at_once",
         .dp = 2,
         .data_parallel = DataParallel::zero1,
         .adjust =
             [](models::Implementation& implementation) {
                 implementation.data_parallel.gathers_parameters_ahead = false;
                 implementation.data_parallel.overlaps_backward = false;
             }},
        {.name = "dp2_zero3_by_layer",
         .dp = 2,
         .data_parallel = DataParallel::zero3,
         .adjust =
             [](models::Implementation& implementation) {
                 implementation.data_parallel.buckets_by_layer = true;
                 implementation.data_parallel.keeps_root_gathered = true;
             }},
        {.name = "dp2_pp2_zero1", .dp = 2, .pp = 2, .data_parallel = DataParallel::zero1},
        {.name = "dp2_pp2_zb_h1_zero1",
         .dp = 2,
         .pp = 2,
         .schedule = Schedule::zb_h1,
         .data_parallel = DataParallel::zero1},
        {.name = "dp2_tp2_pp2_interleaved_zero1",
         .dp = 2,
         .tp = 2,
         .pp = 2,
         .schedule = Schedule::interleaved,
         .chunks = 2,
         .data_parallel = DataParallel::zero1},
        {.name = "dp2_pp2_pp_first_dualpipe_zero1",
         .dp = 2,
         .pp = 2,
         .schedule = Schedule::dualpipe,
         .order = "pp,dp,tp,cp,ep",
         .chunks = 2,
         .data_parallel = DataParallel::zero1},
    };
    return shapes;
}

/// Context parallelism.
const std::vector<Shape>& long_sequences() {
    using program::ContextParallel;
    static const std::vector<Shape> shapes{
        {.name = "cp2_ring", .cp = 2},
        {.name = "cp4_ring", .cp = 4},
        {.name = "cp2_all_gather", .cp = 2, .context_parallel = ContextParallel::all_gather},
        {.name = "cp4_all_gather_micro_batch_2",
         .micro_batch_size = 2,
         .cp = 4,
         .context_parallel = ContextParallel::all_gather},
        {.name = "cp2_ulysses", .cp = 2, .context_parallel = ContextParallel::ulysses},
        {.name = "cp2_ulysses_micro_batch_2",
         .micro_batch_size = 2,
         .cp = 2,
         .context_parallel = ContextParallel::ulysses},
        {.name = "tp2_sp_cp2_ring", .tp = 2, .sequence_parallel = true, .cp = 2},
        {.name = "dp2_cp2_ring_zero2", .dp = 2, .data_parallel = program::DataParallel::zero2, .cp = 2},
        {.name = "dp2_pp2_cp2_all_gather", .dp = 2, .pp = 2, .cp = 2, .context_parallel = ContextParallel::all_gather},
        {.name = "pp2_cp2_ring_zb_h1", .pp = 2, .schedule = Schedule::zb_h1, .cp = 2},
        {.name = "cp2_ring_recompute_full", .memory = {.recompute = program::Recompute::full}, .cp = 2},
    };
    return shapes;
}

/// Expert parallelism and expert-tensor parallelism.
const std::vector<Shape>& experts() {
    using program::DataParallel;
    static const std::vector<Shape> shapes{
        {.name = "one_rank_micro_batch_8", .micro_batch_size = 8},
        {.name = "dp2", .dp = 2},
        {.name = "dp2_ep2", .dp = 2, .ep = 2},
        {.name = "dp4_ep4", .dp = 4, .ep = 4},
        {.name = "dp4_ep2", .dp = 4, .ep = 2},
        {.name = "tp2_sp_ep2", .tp = 2, .sequence_parallel = true, .ep = 2},
        {.name = "tp2_sp_etp2", .tp = 2, .sequence_parallel = true, .etp = 2},
        {.name = "dp2_tp2_sp_ep4", .dp = 2, .tp = 2, .sequence_parallel = true, .ep = 4},
        {.name = "dp2_tp2_sp_ep2", .dp = 2, .tp = 2, .sequence_parallel = true, .ep = 2},
        {.name = "cp2_ep2", .cp = 2, .ep = 2},
        {.name = "dp2_pp2_ep2", .dp = 2, .pp = 2, .ep = 2},
        {.name = "dp2_pp2_zb_h1_ep2", .dp = 2, .pp = 2, .schedule = Schedule::zb_h1, .ep = 2},
        {.name = "dp2_pp2_dualpipe_v_ep2", .dp = 2, .pp = 2, .schedule = Schedule::dualpipe_v, .chunks = 2, .ep = 2},
        {.name = "dp2_ep2_recompute_full", .dp = 2, .memory = {.recompute = program::Recompute::full}, .ep = 2},
        {.name = "dp2_ep2_recompute_experts",
         .dp = 2,
         .memory = {.recompute = program::Recompute::selective, .recompute_parts = {"experts", "shared_expert"}},
         .ep = 2},
        {.name = "dp2_ep2_zero1", .dp = 2, .data_parallel = DataParallel::zero1, .ep = 2},
        {.name = "dp4_ep2_zero2", .dp = 4, .data_parallel = DataParallel::zero2, .ep = 2},
        {.name = "dp4_ep2_zero3", .dp = 4, .data_parallel = DataParallel::zero3, .ep = 2},
        {.name = "dp2_tp2_pp2_sp_ep2_zero1",
         .dp = 2,
         .tp = 2,
         .pp = 2,
         .sequence_parallel = true,
         .data_parallel = DataParallel::zero1,
         .ep = 2},
    };
    return shapes;
}

void keep_everything_in_16_bits(models::Implementation& implementation) {
    implementation.gradients_in_fp32 = implementation.reduces_in_fp32 = false;
}
void reduce_in_16_bits(models::Implementation& implementation) {
    implementation.reduces_in_fp32 = false;
}

/// bf16 with fp32 master weights.
const std::vector<Shape>& in_bf16() {
    using program::DataParallel;
    static const std::vector<Shape> shapes = [] {
        std::vector<Shape> list{
            {.name = "bf16_one_rank", .micro_batch_size = 2},
            {.name = "bf16_dp2", .dp = 2},
            {.name = "bf16_dp2_reduced_in_bf16", .dp = 2, .adjust = reduce_in_16_bits},
            {.name = "bf16_dp2_gradients", .dp = 2, .adjust = keep_everything_in_16_bits},
            {.name = "bf16_dp2_zero1", .dp = 2, .data_parallel = DataParallel::zero1},
            {.name = "bf16_dp2_zero2", .dp = 2, .data_parallel = DataParallel::zero2},
            {.name = "bf16_dp2_zero3", .dp = 2, .data_parallel = DataParallel::zero3},
            {.name = "bf16_dp2_zero3_gradients",
             .dp = 2,
             .data_parallel = DataParallel::zero3,
             .adjust = keep_everything_in_16_bits},
            {.name = "bf16_dp2_tp2_pp2_sp", .dp = 2, .tp = 2, .pp = 2, .sequence_parallel = true},
            {.name = "bf16_tp2_zb_h1", .tp = 2, .pp = 2, .schedule = Schedule::zb_h1},
            {.name = "bf16_cp2_ring", .cp = 2},
            {.name = "bf16_cp2_ulysses", .cp = 2, .context_parallel = program::ContextParallel::ulysses},
            {.name = "bf16_recompute_full", .memory = {.recompute = program::Recompute::full}},
        };
        for (Shape& shape : list) shape.precision = "bf16";
        return list;
    }();
    return shapes;
}

const Shape& shape_named(const std::vector<Shape>& shapes, const std::string& name) {
    for (const Shape& shape : shapes) {
        if (shape.name == name) return shape;
    }
    throw std::invalid_argument("no shape is called " + name);
}

/// Gradients are reduced after the last backward, receives are posted when they are needed, weight gradients come after
/// the reduction of input gradients, and the host waits for transfers and after each micro-batch.
void overlap_nothing(models::Implementation& implementation) {
    implementation.data_parallel.overlaps_backward = false;
    implementation.pipeline.posts_receives_ahead = false;
    implementation.tensor_parallel.overlaps_input_gradient = false;
    implementation.host.waits_after_micro_batch = true;
    implementation.host.waits_for_transfers = true;
}

/// Shapes that only some models allow, and variants of models that need special cases.
std::vector<Case> further_cases() {
    const Shape tp2{.name = "tp2", .tp = 2};
    const Shape tp2_sp{.name = "tp2_sp", .tp = 2, .sequence_parallel = true};
    const Shape tp4{.name = "tp4", .tp = 4};
    const Shape tp4_sp{.name = "tp4_sp", .tp = 4, .sequence_parallel = true};
    const Shape pp2{.name = "pp2_1f1b", .pp = 2};
    const Shape tp2_sp_pp2{.name = "tp2_sp_pp2", .tp = 2, .pp = 2, .sequence_parallel = true};
    const Shape all{.name = "dp2_tp2_pp2", .dp = 2, .tp = 2, .pp = 2};
    return {
        {"tiny-gpt", tp4},
        {"tiny-gpt", tp4_sp},
        {"tiny-gpt", {.name = "dp8", .dp = 8}},
        {"tiny-gpt", {.name = "dp2_tp2_pp2_overlapping_nothing", .dp = 2, .tp = 2, .pp = 2, .adjust = overlap_nothing}},
        {"tiny-llama",
         {.name = "dp2_tp2_pp2_sp_by_layer",
          .dp = 2,
          .tp = 2,
          .pp = 2,
          .sequence_parallel = true,
          .adjust =
              [](models::Implementation& implementation) { implementation.data_parallel.buckets_by_layer = true; }}},
        {"tiny-gpt", {.name = "pp2_1f1b_micro_batch_2", .pp = 2, .micro_batch_size = 2}},
        {"tiny-gpt", {.name = "pp4_one_micro_batch", .pp = 4, .micro_batch_size = 8}},
        {"tiny-llama", {.name = "dp2_micro_batch_2", .dp = 2, .micro_batch_size = 2}},
        {"tiny-llama", {.name = "tp2_sp_micro_batch_2", .tp = 2, .sequence_parallel = true, .micro_batch_size = 2}},
        {"tiny-llama", {.name = "pp2_uneven_1_3_gpipe", .pp = 2, .schedule = Schedule::gpipe, .stage_layers = {1, 3}}},
        {"tiny-gpt-odd-vocab", tp2},  // 127 tokens: one row of padding
        {"tiny-gpt-odd-vocab", tp4},
        {"tiny-gpt-odd-vocab", tp2_sp_pp2},
        {"tiny-llama-odd-vocab", all},
        {"tiny-gpt-untied", pp2},
        {"tiny-gpt-untied", all},
        {"tiny-llama-tied", pp2},
        {"tiny-llama-tied", all},
        {"tiny-llama", {.name = "dp2_pp2_zero2", .dp = 2, .pp = 2, .data_parallel = program::DataParallel::zero2}},
        {"tiny-llama", {.name = "dp2_pp2_zero3", .dp = 2, .pp = 2, .data_parallel = program::DataParallel::zero3}},
        {"tiny-llama",
         {.name = "dp2_tp2_pp2_zb_v_zero3",
          .dp = 2,
          .tp = 2,
          .pp = 2,
          .schedule = Schedule::zb_v,
          .chunks = 2,
          .data_parallel = program::DataParallel::zero3,
          .accumulates = true}},
        {"tiny-gpt", {.name = "offload_optimizer", .memory = {.offload_optimizer = true}}},
        {"tiny-gpt", {.name = "dp2_offload_optimizer", .dp = 2, .memory = {.offload_optimizer = true}}},
        {"tiny-gpt-clipped",
         {.name = "dp2_zero1_offload_optimizer",
          .dp = 2,
          .memory = {.offload_optimizer = true},
          .data_parallel = program::DataParallel::zero1}},
        {"tiny-gpt-sgd",
         {.name = "dp2_zero2_offload_optimizer",
          .dp = 2,
          .memory = {.offload_optimizer = true},
          .data_parallel = program::DataParallel::zero2}},
        {"tiny-llama",
         {.name = "dp2_zero3_offload_optimizer",
          .dp = 2,
          .memory = {.offload_optimizer = true},
          .data_parallel = program::DataParallel::zero3}},
        {"tiny-llama",
         {.name = "bf16_dp2_zero2_offload_optimizer",
          .dp = 2,
          .memory = {.offload_optimizer = true},
          .data_parallel = program::DataParallel::zero2,
          .precision = "bf16"}},
        {"tiny-gpt",
         {.name = "dp2_tp2_pp2_offload_optimizer", .dp = 2, .tp = 2, .pp = 2, .memory = {.offload_optimizer = true}}},
        {"tiny-gpt", {.name = "dp2_master", .dp = 2, .data_parallel = program::DataParallel::dp}},
        {"tiny-gpt",
         {.name = "dp4_master_micro_batch_2",
          .dp = 4,
          .micro_batch_size = 2,
          .data_parallel = program::DataParallel::dp}},
        {"tiny-llama", {.name = "dp1_master_alone", .micro_batch_size = 2, .data_parallel = program::DataParallel::dp}},
        {"tiny-llama",
         {.name = "dp2_master_micro_batch_2",
          .dp = 2,
          .micro_batch_size = 2,
          .data_parallel = program::DataParallel::dp}},
        {"tiny-gpt-clipped", {.name = "dp2_master", .dp = 2, .data_parallel = program::DataParallel::dp}},
        {"tiny-gpt-clipped", {.name = "dp2", .dp = 2}},
        {"tiny-gpt-clipped", {.name = "dp2_zero2", .dp = 2, .data_parallel = program::DataParallel::zero2}},
        {"tiny-gpt-clipped",
         {.name = "dp4_zero3_in_sets", .dp = 4, .data_parallel = program::DataParallel::zero3, .dp_shard = 2}},
        {"tiny-gpt-clipped", tp2_sp},
        {"tiny-gpt-clipped", all},
        {"tiny-gpt-clipped",
         {.name = "dp2_tp2_pp2_sp_zero1",
          .dp = 2,
          .tp = 2,
          .pp = 2,
          .sequence_parallel = true,
          .data_parallel = program::DataParallel::zero1}},
        {"tiny-gpt-clipped", {.name = "pp2_dualpipe", .pp = 2, .schedule = Schedule::dualpipe, .chunks = 2}},
        {"tiny-gpt-adam", {.name = "dp2_zero3", .dp = 2, .data_parallel = program::DataParallel::zero3}},
        {"tiny-gpt-adam", {.name = "dp2_pp2_zero1", .dp = 2, .pp = 2, .data_parallel = program::DataParallel::zero1}},
        {"tiny-gpt-sgd", {.name = "dp2_tp2", .dp = 2, .tp = 2}},
        {"tiny-gpt-sgd", {.name = "dp2_zero2", .dp = 2, .data_parallel = program::DataParallel::zero2}},
        {"tiny-gpt-bloom", all},
        {"tiny-gpt-bloom", tp2_sp_pp2},
        {"tiny-gpt-bloom", {.name = "tp2_sp_cp2_ring", .tp = 2, .sequence_parallel = true, .cp = 2}},
        {"tiny-gpt-bloom",
         {.name = "tp2_cp2_ulysses", .tp = 2, .cp = 2, .context_parallel = program::ContextParallel::ulysses}},
        {"tiny-gpt-falcon", tp2_sp_pp2},
        {"tiny-gpt-falcon", {.name = "dp2_zero2", .dp = 2, .data_parallel = program::DataParallel::zero2}},
        {"tiny-gpt-neox", all},
        {"tiny-gpt-neox", tp2_sp_pp2},
        {"tiny-gpt-neox", {.name = "pp2_zb_h1", .pp = 2, .schedule = Schedule::zb_h1}},
        {"tiny-gpt-neox",
         {.name = "cp2_all_gather", .cp = 2, .context_parallel = program::ContextParallel::all_gather}},
        {"tiny-gpt-opt", all},
        {"tiny-gpt-opt", tp2_sp},
        {"tiny-llama-yarn", tp2_sp},
        {"tiny-qwen3", tp2},
        {"tiny-qwen3", tp2_sp},
        {"tiny-qwen3", tp2_sp_pp2},
        {"tiny-qwen3", all}};
}

}  // namespace

const std::vector<const char*>& model_names() {
    static const std::vector<const char*> names = [] {
        std::vector<const char*> list{"tiny-gpt",          "tiny-llama",           "tiny-gpt-odd-vocab",
                                      "tiny-gpt-untied",   "tiny-llama-tied",      "tiny-llama-odd-vocab",
                                      "tiny-qwen3",        "tiny-gpt-clipped",     "tiny-gpt-adam",
                                      "tiny-gpt-sgd",      "tiny-mixtral",         "tiny-qwen2-moe",
                                      "tiny-deepseek",     "tiny-mixtral-clipped", "tiny-gpt-bloom",
                                      "tiny-gpt-falcon",   "tiny-gpt-neox",        "tiny-gpt-opt",
                                      "tiny-llama-yarn",   "tiny-gpt-clipped-sgd", "tiny-mixtral-clipped-sgd",
                                      "tiny-mixtral-idle", "tiny-gpt-moments"};
        for (const char* name : attention_models()) list.push_back(name);
        for (const char* name : dropout_models()) list.push_back(name);
        return list;
    }();
    return names;
}

namespace {

models::MixtureOfExperts experts_of(const std::string& name) {
    models::MixtureOfExperts moe{.expert_count = 4, .top_k = 2, .expert_ffn_hidden = 48};
    if (name == "tiny-qwen2-moe") {
        moe.shared_ffn_hidden = 64;
        moe.shared_expert_gate = true;
        moe.normalize_top_k = false;
    } else if (name == "tiny-deepseek") {
        moe.expert_count = 8;
        moe.top_k = 3;
        moe.shared_ffn_hidden = 32;
        moe.first_dense_layers = 1;
        moe.score_correction_bias = true;
        moe.expert_groups = 4;
        moe.top_k_groups = 2;
        moe.sigmoid_scores = true;
        moe.routed_scale = 2.5;
    } else if (name == "tiny-mixtral-idle") {
        // More experts than tokens in a step, so some experts get no gradient in a step.
        moe.expert_count = 384;
        moe.top_k = 1;
        moe.expert_ffn_hidden = 4;
    }
    return moe;
}

/// Applies the features of families other than GPT and Llama. Returns false if `name` is none of them.
bool take_after(const std::string& name, models::ModelSpec& model) {
    if (name == "tiny-gpt-bloom") {
        model.family = "bloom";
        model.position = models::PositionKind::alibi;
        model.embedding_norm = true;
    } else if (name == "tiny-gpt-falcon") {
        model.family = "falcon";
        model.position = models::PositionKind::rotary;
        model.kv_heads = 2;
        model.qkv_bias = model.attention_output_bias = model.mlp_bias = false;
        model.parallel_residual = model.shared_input_norm = true;
    } else if (name == "tiny-gpt-neox") {
        model.family = "gpt_neox";
        model.position = models::PositionKind::rotary;
        model.parallel_residual = true;
        model.rotary_fraction = 0.25;
        model.tied_embeddings = false;
    } else if (name == "tiny-gpt-opt") {
        model.family = "opt";
        model.mlp = models::MlpKind::relu;
        model.position_offset = 2;
    } else if (name == "tiny-llama-yarn") {
        model.rope_scaling = test::short_yarn();
    } else {
        return false;
    }
    return true;
}

}  // namespace

models::ModelSpec model_named(const std::string& name) {
    if (trains_with_dropout(name)) {
        models::ModelSpec model = model_named(name.substr(0, name.rfind('-')));
        model.name = name;
        return model;
    }
    const bool gpt = name.starts_with("tiny-gpt");
    models::ModelSpec model = models::load_model(gpt ? "tiny-gpt" : "tiny-llama");
    if (name == model.name) return model;
    model.name = name;
    if (take_after(name, model) || take_attention_of(name, model)) {
        // done
    } else if (name.ends_with("-odd-vocab")) {
        model.vocab = 127;
    } else if (name.ends_with("-untied")) {
        model.tied_embeddings = false;
    } else if (name.ends_with("-tied")) {
        model.tied_embeddings = true;
    } else if (name.starts_with("tiny-mixtral") || name == "tiny-qwen2-moe" || name == "tiny-deepseek") {
        model.moe = experts_of(name);
    } else if (name.ends_with("-clipped") || name.ends_with("-adam") || name.ends_with("-sgd") ||
               name.ends_with("-moments")) {
        // only the training differs, see make_plan
    } else if (name == "tiny-qwen3") {
        model.family = "qwen3";
        model.qk_norm = true;
    } else {
        throw std::invalid_argument("no model is called " + name);
    }
    return model;
}

program::Plan make_plan(const Case& one) {
    program::Plan plan;
    plan.name = one.model + " " + one.shape.name;
    plan.model = model_named(one.model);
    plan.cluster = test::made_up_local_cluster();
    plan.implementation = models::load_implementation("orrery");
    // Little padding, so that each of several tensor-parallel ranks has a part of a tiny vocabulary.
    plan.implementation.vocab_multiple = 8;
    // Small enough that a tiny model has several buckets, which span layer boundaries.
    plan.implementation.data_parallel.bucket_bytes = 100'000;
    plan.implementation.data_parallel.first_bucket_bytes = 10'000;
    const Shape& shape = one.shape;
    if (shape.adjust != nullptr) shape.adjust(plan.implementation);
    plan.parallelism = {.dp = shape.dp,
                        .tp = shape.tp,
                        .pp = shape.pp,
                        .sequence_parallel = shape.sequence_parallel,
                        .schedule = shape.schedule,
                        .chunks = shape.chunks,
                        .stage_layers = shape.stage_layers,
                        .data_parallel = shape.data_parallel,
                        .dp_shard = shape.dp_shard,
                        .reshard_after_forward = shape.reshard_after_forward};
    plan.parallelism.cp = shape.cp;
    plan.parallelism.ep = shape.ep;
    plan.parallelism.etp = shape.etp;
    plan.parallelism.overlaps_experts = shape.overlaps_experts;
    // Room for all tokens on one rank, since the real router is uneven.
    plan.training.expert_load.largest = static_cast<double>(shape.ep);
    plan.parallelism.context_parallel = shape.context_parallel;
    plan.parallelism.vocabulary_parallel = shape.vocabulary_parallel;
    plan.parallelism.reduces_every_micro_batch =
        shape.reduces_always || (plan.parallelism.shards_gradients() && !shape.accumulates);
    if (shape.stage_layers.empty()) {
        plan.parallelism.stage_layers = program::even_stages(plan.model.layers, plan.parallelism.virtual_stages());
    }
    if (!shape.order.empty()) plan.parallelism.order = program::mesh_order_named(shape.order);
    plan.training.sequence_length = 32;
    plan.training.micro_batch_size = shape.micro_batch_size;
    plan.training.global_batch_size = 8;
    plan.training.memory = shape.memory;
    plan.training.seed = 1234;
    plan.training.optimizer = {
        .learning_rate = 3e-4, .beta1 = 0.9, .beta2 = 0.95, .epsilon = 1e-8, .weight_decay = 0.1};
    plan.training.precision = program::precision_named(shape.precision, plan.implementation);
    if (trains_with_dropout(one.model)) plan.training.dropout = 0.2;
    // Below the initial gradient norms of these models, so that clipping takes effect.
    if (one.model.find("-clipped") != std::string::npos) plan.training.optimizer.clip_norm = 0.5;
    if (one.model.ends_with("-adam")) plan.training.optimizer.kind = program::OptimizerKind::adam;
    if (one.model.ends_with("-moments")) plan.training.precision.moments = DType::bf16;
    if (one.model.ends_with("-sgd")) {
        plan.training.optimizer.kind = program::OptimizerKind::sgd_momentum;
        plan.training.optimizer.learning_rate = 0.05;
    }
    program::check_plan(plan, plan.name);
    return plan;
}

program::Plan reference_plan(const std::string& model) {
    return make_plan({model, {.name = "one_rank"}});
}

const std::vector<Case>& all_cases() {
    static const std::vector<Case> cases = [] {
        std::vector<Case> list;
        for (const char* model : {"tiny-gpt", "tiny-llama"}) {
            for (const Shape& shape : full_matrix()) list.push_back({model, shape});
            for (const auto* shapes : {&wide_pipelines(), &saving_memory(), &sharded(), &long_sequences()}) {
                for (const Shape& shape : *shapes) {
                    // Pipeline parallelism alone does not depend on the model, so one model suffices.
                    if (model == std::string("tiny-gpt") || shape.dp * shape.tp * shape.cp > 1)
                        list.push_back({model, shape});
                }
            }
        }
        for (const Shape& shape : experts()) list.push_back({"tiny-mixtral", shape});
        for (const char* model : {"tiny-qwen2-moe", "tiny-deepseek"}) {
            for (const char* name : {"one_rank_micro_batch_8", "dp2_ep2", "dp2_tp2_sp_ep4", "dp2_ep2_recompute_experts",
                                     "dp2_pp2_zb_h1_ep2", "dp4_ep2_zero2"}) {
                list.push_back({model, shape_named(experts(), name)});
            }
        }
        for (const Shape& shape : in_bf16()) {
            for (const char* model : {"tiny-gpt", "tiny-llama"}) list.push_back({model, shape});
        }
        Shape spread = shape_named(experts(), "dp2_ep2");
        spread.name = "bf16_" + spread.name;
        spread.precision = "bf16";
        list.push_back({"tiny-mixtral", spread});
        list.push_back({"tiny-gpt-clipped", shape_named(in_bf16(), "bf16_dp2_zero2")});
        list.push_back({"tiny-gpt-adam", shape_named(in_bf16(), "bf16_dp2_gradients")});
        list.push_back({"tiny-gpt-sgd", shape_named(in_bf16(), "bf16_dp2_zero1")});
        list.push_back({"tiny-mixtral-clipped", shape_named(experts(), "dp4_ep2")});
        list.push_back({"tiny-mixtral-clipped", shape_named(experts(), "dp4_ep2_zero2")});
        for (const char* name : {"dp4_ep2_zero3", "dp2", "dp4_ep2", "tp2_sp_ep2", "dp2_ep2_zero1"}) {
            list.push_back({"tiny-mixtral-idle", shape_named(experts(), name)});
        }
        for (const Case& one : further_cases()) list.push_back(one);
        for (const Case& one : attention_cases()) list.push_back(one);
        for (const Case& one : data_parallel_cases()) list.push_back(one);
        for (const Case& one : vocabulary_cases()) list.push_back(one);
        for (const Case& one : expert_mesh_cases()) list.push_back(one);
        for (const Case& one : dropout_cases()) list.push_back(one);
        return list;
    }();
    return cases;
}

const std::vector<Case>& repeated_cases() {
    static const std::vector<Case> cases{
        {"tiny-gpt", {.name = "one_rank"}},
        {"tiny-gpt", {.name = "dp4", .dp = 4}},
        {"tiny-gpt", {.name = "dp2_tp2_pp2_sp", .dp = 2, .tp = 2, .pp = 2, .sequence_parallel = true}},
        {"tiny-llama", {.name = "dp2", .dp = 2}},
        {"tiny-llama", {.name = "tp2_sp", .tp = 2, .sequence_parallel = true}},
        {"tiny-llama", {.name = "pp4", .pp = 4}},
        {"tiny-llama", {.name = "dp2_tp2_pp2", .dp = 2, .tp = 2, .pp = 2}}};
    return cases;
}

}  // namespace orrery::parity
