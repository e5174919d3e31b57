// Experts that are sharded over other ranks than the rest of the model, by expert and expert-tensor parallelism.
#include "tests/parity/plans.h"

namespace orrery::parity {

namespace {

/// Two passes take turns, so that each computes while the other's tokens travel.
std::vector<Case> overlapped_cases() {
    using program::DataParallel;
    using program::Schedule;
    const Shape one_stage{.name = "dp2_ep2_overlapped", .dp = 2, .ep = 2, .overlaps_experts = true};
    Shape v = one_stage;
    v.name = "dp2_pp2_dualpipe_v_ep2_overlapped";
    v.pp = 2;
    v.schedule = Schedule::dualpipe_v;
    v.chunks = 2;
    Shape dualpipe = v;
    dualpipe.name = "dp2_pp2_dualpipe_ep2_zero1_overlapped";
    dualpipe.schedule = Schedule::dualpipe;
    dualpipe.data_parallel = DataParallel::zero1;
    Shape interleaved = v;
    interleaved.name = "dp2_pp2_interleaved_ep2_overlapped";
    interleaved.schedule = Schedule::interleaved;
    Shape fused = interleaved;
    fused.name += "_fused_transfers";
    fused.adjust = [](models::Implementation& implementation) {
        implementation.pipeline.posts_interleaved_receives_ahead = false;
    };
    Shape tensor = interleaved;
    tensor.name = "dp2_tp2_pp2_sp_interleaved_ep2_etp2_zero2_overlapped";
    tensor.tp = tensor.etp = 2;
    tensor.sequence_parallel = true;
    tensor.data_parallel = DataParallel::zero2;
    Shape again = v;
    again.name += "_recompute_full";
    again.memory = {.recompute = program::Recompute::full};
    std::vector<Case> cases;
    for (const char* model : {"tiny-mixtral", "tiny-deepseek"}) {
        for (const Shape& shape : {one_stage, v, dualpipe, interleaved, fused, tensor, again}) {
            cases.push_back({model, shape});
        }
    }
    return cases;
}

}  // namespace

std::vector<Case> expert_mesh_cases() {
    using program::DataParallel;
    const Shape plain{.name = "dp2_tp2_sp_ep2_etp2", .dp = 2, .tp = 2, .sequence_parallel = true, .ep = 2, .etp = 2};
    Shape stages = plain;
    stages.name = "dp2_tp2_pp2_sp_ep2_etp2";
    stages.pp = 2;
    Shape zero1 = stages;
    zero1.name += "_zero1";
    zero1.data_parallel = DataParallel::zero1;
    Shape zero2 = plain;
    zero2.name = "dp4_tp2_sp_ep2_etp2_zero2";
    zero2.dp = 4;
    zero2.data_parallel = DataParallel::zero2;
    Shape full = plain;
    full.name += "_recompute_full";
    full.memory = {.recompute = program::Recompute::full};
    Shape again = plain;
    again.name += "_recompute_experts";
    again.memory = {.recompute = program::Recompute::selective, .recompute_parts = {"experts", "shared_expert"}};
    Shape divided = stages;
    divided.name += "_zb_h1";
    divided.schedule = program::Schedule::zb_h1;
    Shape bf16 = plain;
    bf16.name = "bf16_" + plain.name;
    bf16.precision = "bf16";
    const Shape untensored{.name = "dp4_ep2_etp2", .dp = 4, .ep = 2, .etp = 2};  // without tensor parallelism
    std::vector<Case> cases;
    for (const Shape& shape : {plain, stages, zero1, zero2, full, again, divided, bf16, untensored}) {
        cases.push_back({"tiny-mixtral", shape});
    }
    for (const char* model : {"tiny-qwen2-moe", "tiny-deepseek"}) {
        for (const Shape& shape : {plain, zero1, zero2, again}) cases.push_back({model, shape});
    }
    // Experts without expert parallelism: sharded over data-parallel ranks, or whole on tensor-parallel ranks.
    const Shape cut_over_data{.name = "dp2_etp2", .dp = 2, .etp = 2};
    const Shape whole{.name = "tp2_sp", .tp = 2, .sequence_parallel = true};
    cases.push_back({"tiny-mixtral", cut_over_data});
    cases.push_back({"tiny-mixtral-clipped", plain});
    for (const Shape& shape : {plain, zero1, cut_over_data, whole}) {
        cases.push_back({"tiny-mixtral-clipped-sgd", shape});
    }
    for (const Case& one : overlapped_cases()) cases.push_back(one);
    return cases;
}

}  // namespace orrery::parity
