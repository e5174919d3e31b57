// Experts that are sharded over other ranks than the rest of the model, by expert and expert-tensor parallelism.
#include "tests/parity/plans.h"

namespace orrery::parity {

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
    return cases;
}

}  // namespace orrery::parity
