// Placement and reduction of gradients and parameters, in combinations that plans.cpp does not have.
#include "tests/parity/plans.h"

namespace orrery::parity {
namespace {

using program::DataParallel;
using program::Schedule;

/// Gradients are reduced after every micro-batch. A rank has four micro-batches unless the name says otherwise.
std::vector<Case> crossing_every_micro_batch() {
    const Shape dp2{.name = "dp2", .dp = 2};
    const Shape zero1{.name = "dp2_zero1", .dp = 2, .data_parallel = DataParallel::zero1};
    const Shape pipeline{.name = "dp2_pp2_zb_h1", .dp = 2, .pp = 2, .schedule = Schedule::zb_h1};
    const Shape folded{.name = "dp2_pp2_dualpipe_v", .dp = 2, .pp = 2, .schedule = Schedule::dualpipe_v, .chunks = 2};
    const auto with = [](Shape shape, const char* more, DataParallel kind) {
        shape.name += more;
        shape.data_parallel = kind;
        return shape;
    };
    std::vector<Case> cases{
        {"tiny-gpt", dp2},
        {"tiny-llama", dp2},
        {"tiny-gpt", {.name = "dp4_two_micro_batches", .dp = 4}},
        {"tiny-gpt", {.name = "dp2_tp2", .dp = 2, .tp = 2}},
        {"tiny-gpt-clipped", {.name = "dp2_tp2_sp", .dp = 2, .tp = 2, .sequence_parallel = true}},
        {"tiny-gpt", {.name = "dp2_pp2", .dp = 2, .pp = 2}},
        {"tiny-llama",
         {.name = "dp2_pp2_interleaved", .dp = 2, .pp = 2, .schedule = Schedule::interleaved, .chunks = 2}},
        {"tiny-gpt", {.name = "dp2_cp2_ring", .dp = 2, .cp = 2}},
        {"tiny-gpt", pipeline},
        {"tiny-gpt", folded},
        {"tiny-gpt", zero1},
        {"tiny-gpt-clipped",
         {.name = "dp4_zero1_in_sets", .dp = 4, .data_parallel = DataParallel::zero1, .dp_shard = 2}},
        {"tiny-llama",
         {.name = "dp2_tp2_pp2_sp_zero1",
          .dp = 2,
          .tp = 2,
          .pp = 2,
          .sequence_parallel = true,
          .data_parallel = DataParallel::zero1}},
        {"tiny-gpt",
         {.name = "dp2_zero1_whole_reductions",
          .dp = 2,
          .data_parallel = DataParallel::zero1,
          .adjust =
              [](models::Implementation& implementation) { implementation.data_parallel.reduces_to_owner = false; }}},
        {"tiny-llama", with(pipeline, "_zero2", DataParallel::zero2)},
        {"tiny-llama", with(pipeline, "_zero3", DataParallel::zero3)},
        {"tiny-llama", with(folded, "_zero2", DataParallel::zero2)},
        {"tiny-mixtral", {.name = "dp4_ep2", .dp = 4, .ep = 2}},
        {"tiny-mixtral-clipped", {.name = "dp4_ep2_zero1", .dp = 4, .data_parallel = DataParallel::zero1, .ep = 2}},
        {"tiny-gpt", {.name = "bf16_dp2", .dp = 2, .precision = "bf16"}},
        {"tiny-gpt",
         {.name = "bf16_dp2_reduced_in_bf16",
          .dp = 2,
          .adjust = [](models::Implementation& implementation) { implementation.reduces_in_fp32 = false; },
          .precision = "bf16"}},
        {"tiny-gpt", {.name = "bf16_dp2_zero1", .dp = 2, .data_parallel = DataParallel::zero1, .precision = "bf16"}},
    };
    for (Case& one : cases) {
        one.shape.name += "_every_micro_batch";
        one.shape.reduces_always = true;
    }
    return cases;
}

/// Tied embeddings, with the head on another stage or, in folded schedules, on the same stage.
std::vector<Case> tied_over_stages() {
    const auto zero = [](Shape shape, DataParallel kind) {
        shape.name += kind == DataParallel::zero2 ? "_zero2" : "_zero3";
        shape.name += shape.accumulates ? "_accumulating_tied" : "_tied";
        shape.data_parallel = kind;
        return shape;
    };
    const Shape dp2_pp2{.name = "dp2_pp2", .dp = 2, .pp = 2};
    const Shape sets{.name = "dp4_pp2_in_sets", .dp = 4, .pp = 2, .dp_shard = 2};
    const Shape all{.name = "dp2_tp2_pp2_sp", .dp = 2, .tp = 2, .pp = 2, .sequence_parallel = true};
    Shape accumulating = dp2_pp2, padded = dp2_pp2, narrow = dp2_pp2, split = dp2_pp2, late = all;
    accumulating.accumulates = late.accumulates = true;
    padded.name = "dp2_pp2_padded";
    padded.adjust = [](models::Implementation& implementation) {
        implementation.data_parallel.shard_alignment_elements = 48;
    };
    narrow.name = "bf16_dp2_pp2";
    narrow.precision = "bf16";
    split.name = "dp2_pp2_zb_h1";
    split.schedule = Schedule::zb_h1;
    std::vector<Case> cases{
        {"tiny-gpt-clipped", zero({.name = "cp2_pp2", .pp = 2, .cp = 2}, DataParallel::zero2)},
        {"tiny-gpt-odd-vocab", zero(late, DataParallel::zero3)},
        {"tiny-llama-tied", zero({.name = "dp2_pp4", .dp = 2, .pp = 4}, DataParallel::zero3)},
    };
    for (const DataParallel kind : {DataParallel::zero2, DataParallel::zero3}) {
        cases.push_back({"tiny-gpt", zero(dp2_pp2, kind)});
        cases.push_back({"tiny-gpt-clipped", zero(dp2_pp2, kind)});
        cases.push_back({"tiny-gpt-odd-vocab", zero(padded, kind)});
        cases.push_back({"tiny-gpt-clipped", zero(all, kind)});
        cases.push_back({"tiny-gpt-clipped", zero(sets, kind)});
        cases.push_back({"tiny-gpt", zero(accumulating, kind)});
        cases.push_back({"tiny-gpt", zero(narrow, kind)});
        cases.push_back({"tiny-gpt-clipped", zero(split, kind)});
    }
    for (const Schedule schedule : {Schedule::zb_v, Schedule::dualpipe_v}) {
        Shape folded{.name = "dp2_pp2", .dp = 2, .pp = 2, .schedule = schedule, .chunks = 2};
        folded.name += schedule == Schedule::zb_v ? "_zb_v" : "_dualpipe_v";
        cases.push_back({"tiny-gpt", zero(folded, DataParallel::zero2)});
        cases.push_back({"tiny-gpt-clipped", zero(folded, DataParallel::zero3)});
    }
    return cases;
}

void keep_fp32_shards(models::Implementation& implementation) {
    implementation.stores_fp32_shards = true;
}

/// zero3 with parameters in host memory between steps, or, for bf16 training, in fp32.
std::vector<Case> resting_elsewhere() {
    const Shape dp2{.name = "dp2", .dp = 2};
    const Shape tp2{.name = "dp2_tp2_sp", .dp = 2, .tp = 2, .sequence_parallel = true};
    const Shape pp2{.name = "dp2_pp2", .dp = 2, .pp = 2};
    const Shape late{.name = "dp2_accumulating", .dp = 2, .accumulates = true};
    const Shape split{.name = "dp2_pp2_zb_h1", .dp = 2, .pp = 2, .schedule = Schedule::zb_h1};
    const Shape sets{.name = "dp4_in_sets", .dp = 4, .dp_shard = 2};
    const Shape stays{.name = "dp2_stays_gathered", .dp = 2, .reshard_after_forward = false};
    const Shape alone{.name = "dp2_ep2", .dp = 2, .ep = 2};  // each expert is on one rank only
    const Shape again{.name = "dp2_recompute", .dp = 2, .memory = {.recompute = program::Recompute::full}};
    std::vector<Case> cases{{"tiny-gpt", dp2},
                            {"tiny-gpt", pp2},
                            {"tiny-gpt", late},
                            {"tiny-llama", dp2},
                            {"tiny-llama", tp2},
                            {"tiny-llama", split},
                            {"tiny-gpt-clipped", sets},
                            {"tiny-gpt-odd-vocab", stays},
                            {"tiny-llama", again},
                            {"tiny-mixtral", alone},
                            {"tiny-mixtral", {.name = "dp4_ep2", .dp = 4, .ep = 2}}};
    std::vector<Case> on_host = cases, in_fp32 = cases;
    on_host.push_back({"tiny-gpt", {.name = "one_rank"}});
    on_host.push_back({"tiny-gpt", {.name = "bf16_dp2", .dp = 2, .precision = "bf16"}});
    on_host.push_back({"tiny-gpt-sgd", dp2});
    for (Case& one : on_host) {
        one.shape.name += "_zero3_on_host";
        one.shape.memory.offload_optimizer = one.shape.memory.offload_parameters = true;
    }
    for (Case& one : in_fp32) {
        one.shape.name = "bf16_" + one.shape.name + "_zero3_fp32_shards";
        one.shape.precision = "bf16";
        one.shape.adjust = keep_fp32_shards;
    }
    on_host.insert(on_host.end(), in_fp32.begin(), in_fp32.end());
    for (Case& one : on_host) one.shape.data_parallel = DataParallel::zero3;
    return on_host;
}

/// Recomputation checkpoints (inputs of blocks) that are sharded over the tensor-parallel ranks.
std::vector<Case> cut_checkpoints() {
    const program::MemorySavings memory{.recompute = program::Recompute::full, .shards_checkpoints = true};
    std::vector<Case> cases{
        {"tiny-gpt", {.name = "tp2", .tp = 2}},
        {"tiny-gpt", {.name = "tp4_micro_batch_2", .tp = 4, .micro_batch_size = 2}},
        {"tiny-llama", {.name = "dp2_tp2_pp2", .dp = 2, .tp = 2, .pp = 2}},
        {"tiny-llama", {.name = "tp2_pp2_zb_h1", .tp = 2, .pp = 2, .schedule = Schedule::zb_h1}},
        {"tiny-gpt", {.name = "tp2_pp2_interleaved", .tp = 2, .pp = 2, .schedule = Schedule::interleaved, .chunks = 2}},
        {"tiny-gpt-clipped", {.name = "dp2_tp2_zero3", .dp = 2, .tp = 2, .data_parallel = DataParallel::zero3}},
        {"tiny-llama", {.name = "tp2_cp2_ring", .tp = 2, .cp = 2}},
        {"tiny-gpt", {.name = "bf16_tp2", .tp = 2, .precision = "bf16"}},
    };
    for (Case& one : cases) {
        one.shape.name += "_cut_checkpoints";
        one.shape.memory = memory;
    }
    return cases;
}

/// AdamW's moments in bf16, in every form of the update: fp32 parameters, master weights, and both on the host.
std::vector<Case> narrow_moments() {
    return {{"tiny-gpt-moments", {.name = "dp2_zero1", .dp = 2, .data_parallel = DataParallel::zero1}},
            {"tiny-gpt-moments", {.name = "dp2_tp2_pp2_sp", .dp = 2, .tp = 2, .pp = 2, .sequence_parallel = true}},
            {"tiny-gpt-moments",
             {.name = "dp2_zero3_on_host",
              .dp = 2,
              .memory = {.offload_optimizer = true, .offload_parameters = true},
              .data_parallel = DataParallel::zero3}},
            {"tiny-gpt-moments",
             {.name = "bf16_dp2_zero2", .dp = 2, .data_parallel = DataParallel::zero2, .precision = "bf16"}},
            {"tiny-gpt-moments",
             {.name = "bf16_dp2_offloaded", .dp = 2, .memory = {.offload_optimizer = true}, .precision = "bf16"}},
            {"tiny-gpt-moments",
             {.name = "bf16_dp2_zero3_fp32_shards",
              .dp = 2,
              .data_parallel = DataParallel::zero3,
              .adjust = keep_fp32_shards,
              .precision = "bf16"}}};
}

}  // namespace

const std::vector<Case>& data_parallel_cases() {
    static const std::vector<Case> cases = [] {
        std::vector<Case> list = crossing_every_micro_batch();
        for (const Case& one : tied_over_stages()) list.push_back(one);
        for (const Case& one : resting_elsewhere()) list.push_back(one);
        for (const Case& one : cut_checkpoints()) list.push_back(one);
        for (const Case& one : narrow_moments()) list.push_back(one);
        return list;
    }();
    return cases;
}

}  // namespace orrery::parity
