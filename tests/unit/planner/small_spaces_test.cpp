// Compares the search with the simulation of every plan of small spaces.
#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "core/units.h"
#include "sim/planner/part_sets.h"
#include "sim/planner/timing.h"
#include "tests/unit/planner/planner_cases.h"

namespace orrery::sim {
namespace {

using program::DataParallel;
using program::PlanResult;
using program::Recompute;
using program::Schedule;

struct Space {
    const char* model = "gpt2";
    std::int64_t layers = 4, devices = 4, batch = 8, sequence = 512;
    const char* implementation = "orrery";
    std::int64_t tp = 0, pp = 0, cp = 1, ep = 0, micro_batch = 0;
    std::vector<Schedule> schedules{Schedule::one_f_one_b, Schedule::interleaved, Schedule::zb_v};
    std::vector<DataParallel> data_parallel{DataParallel::ddp, DataParallel::zero1, DataParallel::zero2,
                                            DataParallel::zero3};
    bool is_tight = true;  // half of the plans do not fit without recomputation

    [[nodiscard]] PlanRequest request() const {
        PlanRequest request = request_for(model, devices, batch, sequence, implementation);
        request.model.layers = layers;
        if (request.model.has_experts()) {
            request.model.moe.first_dense_layers = std::min(layers - 1, request.model.moe.first_dense_layers);
        }
        std::erase_if(request.schedules,
                      [&](Schedule one) { return std::count(schedules.begin(), schedules.end(), one) == 0; });
        if (request.schedules.empty()) request.schedules = {Schedule::one_f_one_b};
        request.data_parallel = data_parallel;
        request.tp = tp, request.pp = pp, request.cp = cp, request.ep = ep, request.micro_batch_size = micro_batch;
        return request;
    }
};

/// Peak memory of each plan, by the whole lowering.
class Brute {
  public:
    explicit Brute(const Space& space) : request_(space.request()), cost_(request_.cluster, request_.rates) {
        for (const Choice& choice : choices_of(list_candidates(request_))) {
            if (choice.recompute == list_candidates(request_).recompute.front()) first_.push_back(choice);
        }
        if (space.is_tight) tighten();
    }

    [[nodiscard]] const PlanRequest& request() const { return request_; }

    /// All plans that fit, each with the least recomputation of its kind, fastest first.
    std::vector<PlanResult> results() {
        const topologies::Cluster cluster(request_.cluster);
        const CandidateList list = list_candidates(request_);
        const std::vector<PartSet> sets = part_sets(request_, cluster, cost_);
        const bool has_none = std::count(list.recompute.begin(), list.recompute.end(), Recompute::none) > 0;
        std::vector<PlanResult> results;
        for (Choice choice : choices_of(list)) {
            Choice without = choice;
            without.recompute = Recompute::none;
            if (choice.recompute != Recompute::none && has_none && fits(without)) continue;
            if (!recompute_enough(sets, choice)) continue;
            results.push_back(timed(plan_of(request_, choice), cluster, cost_));
        }
        std::stable_sort(results.begin(), results.end(),
                         [](const PlanResult& a, const PlanResult& b) { return a.step_time_s < b.step_time_s; });
        return results;
    }

  private:
    std::int64_t bytes(const Choice& choice) {
        const auto [entry, fresh] = bytes_.try_emplace(choice, 0);
        if (fresh) entry->second = peak_of(plan_of(request_, choice));
        return entry->second;
    }
    bool fits(const Choice& choice) { return bytes(choice) <= memory_per_rank_bytes(plan_of(request_, choice)); }

    bool recompute_enough(const std::vector<PartSet>& sets, Choice& choice) {
        if (choice.recompute == Recompute::none) return fits(choice);
        if (choice.recompute == Recompute::selective) {
            return std::any_of(sets.begin(), sets.end(), [&](PartSet set) {
                choice.recompute_parts = set;
                return fits(choice);
            });
        }
        const std::int64_t blocks = largest_stage(plan_of(request_, choice));
        for (choice.recompute_layers = 1; choice.recompute_layers <= blocks; ++choice.recompute_layers) {
            if (fits(choice)) return true;
        }
        return false;
    }

    void tighten() {
        std::vector<std::int64_t> all;
        for (const Choice& choice : first_) all.push_back(bytes(choice));
        const auto middle = all.begin() + std::ssize(all) / 2;
        std::nth_element(all.begin(), middle, all.end());
        topologies::DeviceProfile& device = request_.cluster.device;
        const double reserved = device.memory_capacity_gib.value - device.usable_gib();
        device.memory_capacity_gib.value = to_gib(Bytes(*middle)) + kDefaultMemoryMarginGib + reserved + 1e-6;
    }

    PlanRequest request_;
    RooflineCost cost_;
    std::vector<Choice> first_;
    std::map<Choice, std::int64_t> bytes_;
};

std::vector<Space> spaces() {
    using enum Schedule;
    return {
        {},
        {.layers = 6, .pp = 2, .is_tight = false},
        {.layers = 5, .devices = 4, .pp = 4, .data_parallel = {DataParallel::ddp}},  // uneven
        {.layers = 7, .devices = 8, .tp = 2, .pp = 2, .micro_batch = 1},
        {.layers = 3, .devices = 16, .batch = 16, .tp = 2, .pp = 1},  // HSDP
        {.layers = 3, .devices = 16, .batch = 16, .tp = 2, .pp = 1, .is_tight = false},
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
        {.model = "gpt2-medium",
         .layers = 6,
         .devices = 8,
         .batch = 16,
         .implementation = "deepspeed",
         .tp = 1,
         .pp = 2},
    };
}

class SmallSpaces : public testing::TestWithParam<Space> {};

TEST_P(SmallSpaces, AreSearchedAsIfEveryPlanWereSimulated) {
    Brute brute(GetParam());
    const PlanRequest& request = brute.request();
    const std::vector<PlanResult> every = brute.results();
    ASSERT_GT(every.size(), 5U);
    const topologies::Cluster cluster(request.cluster);
    constexpr std::size_t kTop = 5;
    const PlanSearch all = search_plans(request, cluster, kTop, kTop);
    for (std::size_t i = 0; i < kTop; ++i) {
        EXPECT_LE((1 - kStepTolerance) * all.results[i].step_time_s, every[i].step_time_s)
            << all.results[i].plan.name << " " << every[i].plan.name;
        EXPECT_EQ(all.results[i].peak_memory_gib, to_gib(Bytes(peak_of(all.results[i].plan))));
    }
    // With dominance, for the best plan alone.
    const PlanResult best = search_plans(request, cluster, 1, 1).results.front();
    EXPECT_LE((1 - kStepTolerance) * best.step_time_s, every.front().step_time_s)
        << best.plan.name << " " << every.front().plan.name;
}
INSTANTIATE_TEST_SUITE_P(All, SmallSpaces, testing::ValuesIn(spaces()));

}  // namespace
}  // namespace orrery::sim
