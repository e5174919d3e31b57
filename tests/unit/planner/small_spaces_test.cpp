// Compares the search with the simulation of every plan of small spaces.
#include <gtest/gtest.h>

#include <algorithm>

#include "core/units.h"
#include "tests/unit/planner/brute_force.h"

namespace orrery::sim {
namespace {

using program::DataParallel;
using program::PlanResult;
using program::Schedule;

struct Space {
    const char* model = "gpt2";
    std::int64_t layers = 4, devices = 4, batch = 8, sequence = 512;
    const char* implementation = "orrery";
    std::int64_t tp = 0, pp = 0, cp = 1, ep = 0, micro_batch = 0;
    std::vector<Schedule> schedules{Schedule::one_f_one_b, Schedule::interleaved, Schedule::zb_v};
    std::vector<DataParallel> data_parallel{DataParallel::ddp, DataParallel::zero1, DataParallel::zero2,
                                            DataParallel::zero3};
    double fitting = 0.5;  // share of the plans that fit as they are, at least one; 1: those that fit the device
    program::Optimizer optimizer;
    DType moments = DType::fp32;
    bool is_full = false;            // allow_full_space
    bool fuses = true;               // as the implementation does
    std::vector<Offload> offload{};  // empty: as the space has it
    bool recomputes = true;
    /// Of passes with the tokens of another pass. Empty: also with overlap, if among_best names it.
    std::optional<bool> overlaps{};
    /// Parts of names that occur among the best plans, so that a search that misses them fails.
    std::vector<const char*> among_best{};

    [[nodiscard]] PlanRequest request() const {
        PlanRequest request = request_for(model, devices, batch, sequence, implementation);
        if (!fuses) request = unfused(request);
        request.model.layers = layers;
        request.training.optimizer = optimizer;
        request.training.precision.moments = moments;
        allow_every_technique(request);
        if (is_full) allow_full_space(request);
        if (!offload.empty()) request.offload = offload;
        request.overlaps_experts = overlaps;
        request.tries_expert_overlap = std::ranges::count(among_best, std::string_view("-overlap")) > 0;
        if (!recomputes) request.recompute = {program::Recompute::none};
        if (request.model.has_experts()) {
            request.model.moe.first_dense_layers = std::min(layers - 1, request.model.moe.first_dense_layers);
        }
        std::erase_if(request.schedules,
                      [&](Schedule one) { return std::count(schedules.begin(), schedules.end(), one) == 0; });
        if (request.schedules.empty()) request.schedules = {Schedule::one_f_one_b};
        request.rates = program::resolve_rates(request.implementation, request.cluster);
        request.data_parallel = data_parallel;
        request.tp = tp, request.pp = pp, request.cp = cp, request.ep = ep, request.micro_batch_size = micro_batch;
        return request;
    }
};

std::vector<Space> spaces() {
    using enum Schedule;
    return {
        {},
        {.layers = 6, .pp = 2, .fitting = 1},
        {.layers = 5, .devices = 4, .pp = 4, .data_parallel = {DataParallel::ddp}},  // uneven
        {.layers = 7, .devices = 8, .tp = 2, .pp = 2, .micro_batch = 1},
        {.layers = 3, .devices = 16, .batch = 16, .tp = 2, .pp = 1},  // HSDP
        {.layers = 3, .devices = 16, .batch = 16, .tp = 2, .pp = 1, .fitting = 1},
        {.layers = 4, .devices = 32, .batch = 32, .tp = 2, .pp = 2, .micro_batch = 1, .schedules = {one_f_one_b}},
        {.model = "llama3-8b", .layers = 3, .devices = 16, .batch = 16, .sequence = 2048, .tp = 2, .pp = 1},
        {.model = "llama3-8b", .layers = 4, .devices = 4, .batch = 8, .sequence = 4096, .pp = 2, .cp = 2},
        {.model = "llama3-8b", .layers = 3, .devices = 4, .batch = 4, .sequence = 4096, .pp = 1, .cp = 4},
        {.model = "llama3-8b", .layers = 5, .devices = 8, .batch = 16, .sequence = 1024, .tp = 2, .pp = 4},
        {.model = "llama3-8b",
         .layers = 5,
         .devices = 8,
         .batch = 16,
         .sequence = 1024,
         .tp = 2,
         .pp = 4,
         .schedules = {zb_h1, zb_v}},
        {.model = "mixtral-8x7b", .layers = 2, .devices = 8, .batch = 8, .sequence = 1024, .tp = 1, .pp = 1},
        {.model = "mixtral-8x7b", .layers = 4, .devices = 8, .batch = 16, .sequence = 1024, .tp = 1, .pp = 2, .ep = 4},
        {.model = "mixtral-8x7b",
         .layers = 3,
         .devices = 8,
         .batch = 16,
         .sequence = 1024,
         .tp = 2,
         .pp = 2,
         .micro_batch = 1},
        {.model = "llama3-8b",
         .layers = 4,
         .devices = 8,
         .batch = 16,
         .sequence = 2048,
         .implementation = "megatron-core",
         .tp = 2,
         .pp = 2},
        {.model = "llama3-8b",
         .layers = 6,
         .devices = 16,
         .batch = 32,
         .sequence = 2048,
         .implementation = "megatron-core",
         .tp = 4,
         .pp = 2,
         .micro_batch = 1},
        {.model = "mixtral-8x7b",
         .layers = 4,
         .devices = 8,
         .batch = 16,
         .sequence = 1024,
         .implementation = "megatron-core",
         .tp = 1,
         .pp = 2,
         .micro_batch = 1},
        {.model = "llama3-8b",
         .layers = 4,
         .devices = 16,
         .batch = 32,
         .sequence = 2048,
         .implementation = "torch-fsdp2",
         .tp = 2,
         .pp = 1},
        {.model = "llama3-8b",
         .layers = 4,
         .devices = 8,
         .batch = 16,
         .sequence = 2048,
         .implementation = "torch-fsdp2",
         .tp = 2,
         .pp = 2,
         .schedules = {one_f_one_b, zb_v}},
        {.model = "llama3-8b",
         .layers = 8,
         .devices = 8,
         .batch = 32,
         .sequence = 2048,
         .implementation = "megatron-lm-zero-bubble",
         .tp = 2,
         .pp = 4,
         .schedules = {one_f_one_b, zb_h1, zb_h2, zb_2p, zb_v},
         .optimizer = {.clip_norm = 1, .post_validation = true}},
        {.model = "mixtral-8x7b",
         .layers = 4,
         .devices = 8,
         .batch = 16,
         .sequence = 1024,
         .implementation = "megatron-core",
         .tp = 1,
         .pp = 2,
         .micro_batch = 1,
         .optimizer = {.clip_norm = 1},
         .moments = DType::bf16},
        {.model = "mixtral-8x7b",
         .layers = 4,
         .devices = 8,
         .batch = 16,
         .sequence = 1024,
         .implementation = "megatron-core",
         .tp = 1,
         .pp = 1,
         .data_parallel = {DataParallel::ddp, DataParallel::zero1},
         .fitting = 1,
         .is_full = true,
         .offload = {Offload::none},
         .among_best = {"-overlap"}},
        {.model = "gpt2-medium",
         .layers = 6,
         .devices = 8,
         .batch = 16,
         .implementation = "deepspeed",
         .tp = 1,
         .pp = 2},
    };
}

std::vector<Space> full_spaces() {
    using enum Schedule;
    using enum DataParallel;
    return {
        {.batch = 16,
         .tp = 1,
         .schedules = {one_f_one_b},
         .data_parallel = {ddp, zero1},
         .is_full = true,
         .fuses = false,  // else plans without a sharded vocabulary are all the best
         .among_best = {"vocab-2"}},
        {.model = "llama3-8b",
         .layers = 4,
         .batch = 16,
         .sequence = 1024,
         .implementation = "megatron-core",
         .tp = 1,
         .pp = 4,
         .micro_batch = 1,
         .data_parallel = {ddp, zero1},
         .is_full = true,
         .among_best = {"vocab-1", "vocab-2", "interlaced", "host-optimizer"}},
        {.model = "llama3-8b",
         .layers = 8,
         .devices = 8,
         .batch = 16,
         .sequence = 1024,
         .tp = 2,
         .pp = 4,
         .micro_batch = 1,
         .schedules = {one_f_one_b, dualpipe_v},
         .data_parallel = {ddp, zero1},
         .is_full = true,
         .among_best = {"dualpipe-v"}},
        {.model = "mixtral-8x7b",
         .layers = 2,
         .devices = 8,
         .batch = 8,
         .sequence = 1024,
         .pp = 1,
         .micro_batch = 1,
         .is_full = true,
         .among_best = {"etp2"}},
        {.model = "mixtral-8x7b",
         .layers = 3,
         .devices = 8,
         .batch = 16,
         .sequence = 1024,
         .implementation = "megatron-core",
         .tp = 4,
         .pp = 1,
         .fitting = 0.1,
         .is_full = true,
         .overlaps = false,
         .among_best = {"etp2"}},
        {.model = "llama3-8b",
         .layers = 3,
         .devices = 8,
         .batch = 32,
         .sequence = 2048,
         .tp = 1,
         .pp = 1,
         .data_parallel = {ddp, zero1},
         .fitting = 0.3,
         .is_full = true,
         .among_best = {"offload", "host-optimizer"}},
        {.model = "llama3-8b",
         .layers = 3,
         .devices = 8,
         .batch = 64,
         .sequence = 512,
         .implementation = "torch-fsdp1",
         .tp = 1,
         .pp = 1,
         .data_parallel = {zero3},
         .fitting = 0,
         .is_full = true,
         .offload = {Offload::none, Offload::parameters},
         .recomputes = false,
         .among_best = {"host-parameters"}},
        {.model = "llama3-8b",
         .layers = 12,
         .devices = 8,
         .batch = 16,
         .sequence = 4096,
         .tp = 2,
         .pp = 2,
         .micro_batch = 2,
         .fitting = 0.1,
         .is_full = true,
         .offload = {Offload::activations},
         .recomputes = false,
         .among_best = {"offload"}},
        {.model = "gpt2-xl",
         .layers = 6,
         .devices = 8,
         .batch = 16,
         .sequence = 1024,
         .implementation = "deepspeed",
         .tp = 1,
         .pp = 2,
         .fitting = 0.05,
         .is_full = true,
         .recomputes = false,
         .among_best = {"host-optimizer"}},
        {.model = "llama3-8b",
         .layers = 3,
         .devices = 8,
         .batch = 16,
         .sequence = 2048,
         .tp = 1,
         .pp = 2,
         .schedules = {one_f_one_b, zb_v},
         .is_full = true,
         .offload = {Offload::optimizer, Offload::parameters},
         .among_best = {"host-optimizer"}},
    };
}

class SmallSpaces : public testing::TestWithParam<Space> {};

TEST_P(SmallSpaces, AreSearchedAsIfEveryPlanWereSimulated) {
    BruteForce brute(GetParam().request());
    if (GetParam().fitting < 1) brute.tighten(GetParam().fitting);
    const PlanRequest& request = brute.request();
    const std::vector<PlanResult> every = brute.results();
    constexpr std::size_t kTop = 5;
    ASSERT_GT(every.size(), kTop);
    for (const char* part : GetParam().among_best) {
        const auto has = [&](const PlanResult& result) { return result.plan.name.find(part) != std::string::npos; };
        EXPECT_TRUE(std::any_of(every.begin(), every.begin() + kTop, has)) << part;
    }
    const topologies::Cluster cluster(request.cluster);
    const PlanSearch all = search_plans(request, cluster, kTop, kTop);
    for (std::size_t i = 0; i < kTop; ++i) {
        EXPECT_LE((1 - kStepTolerance) * all.results[i].step_time_s, every[i].step_time_s)
            << all.results[i].plan.name << " " << every[i].plan.name;
        EXPECT_EQ(all.results[i].peak_memory_gib, to_gib(Bytes(peak_of(all.results[i].plan))));
    }
    // With the best plan alone to be proven, which ends the search earlier.
    const PlanResult best = search_plans(request, cluster, 1, 1).results.front();
    EXPECT_LE((1 - kStepTolerance) * best.step_time_s, every.front().step_time_s)
        << best.plan.name << " " << every.front().plan.name;
}
INSTANTIATE_TEST_SUITE_P(Full, SmallSpaces, testing::ValuesIn(full_spaces()));
INSTANTIATE_TEST_SUITE_P(All, SmallSpaces, testing::ValuesIn(spaces()));

}  // namespace
}  // namespace orrery::sim
