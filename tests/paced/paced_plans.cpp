#include "tests/paced/paced_plans.h"

#include <algorithm>

#include "tests/parity/plans.h"
#include "topologies/cluster_spec.h"

namespace orrery::paced {
namespace {

using parity::Shape;
using program::DataParallel;
using program::Schedule;
using program::VocabularyParallel;

/// Shapes of up to sixteen ranks. Their model has a block per virtual stage, at least four, and eight heads.
std::vector<Shape> wide_shapes() {
    return {
        {.name = "pp8_1f1b", .pp = 8},
        {.name = "pp8_gpipe", .pp = 8, .schedule = Schedule::gpipe},
        {.name = "pp8_naive", .pp = 8, .schedule = Schedule::naive},
        {.name = "pp8_interleaved", .pp = 8, .schedule = Schedule::interleaved, .chunks = 2},
        {.name = "pp8_zb_h1", .pp = 8, .schedule = Schedule::zb_h1},
        {.name = "pp8_zb_h2", .pp = 8, .schedule = Schedule::zb_h2},
        {.name = "pp8_zb_1p", .pp = 8, .schedule = Schedule::zb_1p},
        {.name = "pp8_zb_2p", .pp = 8, .schedule = Schedule::zb_2p},
        {.name = "pp8_zb_v", .pp = 8, .schedule = Schedule::zb_v, .chunks = 2},
        {.name = "pp8_dualpipe", .pp = 8, .schedule = Schedule::dualpipe, .chunks = 2},
        {.name = "pp8_dualpipe_v", .pp = 8, .schedule = Schedule::dualpipe_v, .chunks = 2},
        {.name = "pp16_1f1b", .pp = 16},
        {.name = "dp2_pp8_zb_h2_zero1",
         .dp = 2,
         .pp = 8,
         .schedule = Schedule::zb_h2,
         .data_parallel = DataParallel::zero1},
        {.name = "dp16_ddp", .dp = 16},
        {.name = "dp16_zero1", .dp = 16, .data_parallel = DataParallel::zero1},
        {.name = "dp16_zero2", .dp = 16, .data_parallel = DataParallel::zero2},
        {.name = "dp16_zero3", .dp = 16, .data_parallel = DataParallel::zero3},
        {.name = "dp16_zero3_in_sets", .dp = 16, .data_parallel = DataParallel::zero3, .dp_shard = 4},
        {.name = "dp4_tp2_pp2_sp_zero1",
         .dp = 4,
         .tp = 2,
         .pp = 2,
         .sequence_parallel = true,
         .data_parallel = DataParallel::zero1},
        {.name = "dp2_tp2_pp4_sp_interleaved",
         .dp = 2,
         .tp = 2,
         .pp = 4,
         .sequence_parallel = true,
         .schedule = Schedule::interleaved,
         .chunks = 2},
        {.name = "dp2_tp2_pp4_dualpipe_v", .dp = 2, .tp = 2, .pp = 4, .schedule = Schedule::dualpipe_v, .chunks = 2},
        {.name = "dp2_tp2_pp4_zb_v_zero3",
         .dp = 2,
         .tp = 2,
         .pp = 4,
         .schedule = Schedule::zb_v,
         .chunks = 2,
         .data_parallel = DataParallel::zero3,
         .accumulates = true},
        {.name = "tp8_sp_dp2_zero2", .dp = 2, .tp = 8, .sequence_parallel = true, .data_parallel = DataParallel::zero2},
        {.name = "cp4_ring_dp2_tp2_zero3", .dp = 2, .tp = 2, .data_parallel = DataParallel::zero3, .cp = 4},
        {.name = "cp4_ulysses_pp4", .pp = 4, .cp = 4, .context_parallel = program::ContextParallel::ulysses},
        {.name = "pp8_vocab_1", .pp = 8, .vocabulary_parallel = VocabularyParallel::two_barriers},
        {.name = "pp8_vocab_2", .pp = 8, .vocabulary_parallel = VocabularyParallel::one_barrier},
        {.name = "pp8_interlaced", .pp = 8, .vocabulary_parallel = VocabularyParallel::interlaced},
    };
}

program::Plan widened(const Shape& shape) {
    // make_plan checks the plan with a model of four blocks and four heads, so the shape is set afterwards.
    Shape small = shape;
    small.dp = small.tp = small.pp = small.cp = small.chunks = 1;
    small.schedule = Schedule::one_f_one_b;
    small.dp_shard = 0;
    small.sequence_parallel = false;
    small.vocabulary_parallel = VocabularyParallel::none;
    program::Plan plan = parity::make_plan({"tiny-gpt", small});
    plan.name = "wide " + shape.name;
    plan.model.tied_embeddings = false;
    plan.model.hidden = 128;
    plan.model.heads = plan.model.kv_heads = 8;
    plan.model.head_dim = 16;
    plan.cluster.devices_per_node = 16;
    program::Parallelism& mesh = plan.parallelism;
    mesh.dp = shape.dp;
    mesh.tp = shape.tp;
    mesh.pp = shape.pp;
    mesh.cp = shape.cp;
    mesh.chunks = shape.chunks;
    mesh.schedule = shape.schedule;
    mesh.dp_shard = shape.dp_shard;
    mesh.sequence_parallel = shape.sequence_parallel;
    mesh.vocabulary_parallel = shape.vocabulary_parallel;
    plan.model.layers = std::max<std::int64_t>(4, mesh.virtual_stages());
    mesh.stage_layers = program::even_stages(plan.model.layers, mesh.virtual_stages());
    plan.training.global_batch_size = 2 * shape.pp * shape.dp;
    program::check_plan(plan, plan.name);
    return plan;
}

/// The plan on GPUs, where compute and copies run asynchronously to the host.
program::Plan on_gpus(program::Plan plan) {
    plan.name += " on GPUs";
    plan.cluster = topologies::load_cluster("dgx-h100", plan.parallelism.world_size());
    program::check_plan(plan, plan.name);
    return plan;
}

}  // namespace

std::vector<program::Plan> all_plans() {
    std::vector<program::Plan> plans;
    for (const parity::Case& one : parity::all_cases()) {
        const std::string name = one.model + " " + one.shape.name;
        const bool named = name == "tiny-llama dp2_tp4_sp_zero1" || name == "tiny-llama cp4_ulysses" ||
                           name == "tiny-latent tp2_sp_cp2_ring" || name == "tiny-gpt-dropout dp2_tp2_pp2_sp_zb_h1";
        if (named || one.model == "tiny-gpt" || one.model == "tiny-gpt-clipped")
            plans.push_back(parity::make_plan(one));
    }
    for (const Shape& shape : wide_shapes()) plans.push_back(widened(shape));
    const std::size_t here = plans.size();
    for (std::size_t i = 0; i < here; ++i) plans.push_back(on_gpus(plans[i]));
    // The profile of a CPU core has no figures for 16-bit GEMMs.
    std::erase_if(plans, [](const program::Plan& plan) {
        return plan.training.precision.compute != DType::fp32 && plan.cluster.ranks_may_share_devices();
    });
    return plans;
}

std::vector<program::Plan> few_plans() {
    const std::vector<std::string> wanted{"wide pp8_naive",
                                          "wide pp8_gpipe",
                                          "wide pp8_dualpipe on GPUs",
                                          "wide pp16_1f1b",
                                          "wide dp16_zero3_in_sets",
                                          "tiny-gpt dp2_tp2_pp2_interleaved",
                                          "tiny-gpt cp2_ring",
                                          "tiny-llama dp2_tp4_sp_zero1",
                                          "tiny-latent tp2_sp_cp2_ring",
                                          "tiny-gpt-dropout dp2_tp2_pp2_sp_zb_h1",
                                          "tiny-gpt dp2_tp2_pp2_sp_offload on GPUs"};
    std::vector<program::Plan> plans = all_plans();
    std::erase_if(plans, [&](const program::Plan& plan) {
        return std::find(wanted.begin(), wanted.end(), plan.name) == wanted.end();
    });
    return plans;
}

}  // namespace orrery::paced
