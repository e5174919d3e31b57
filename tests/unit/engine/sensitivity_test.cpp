// Derivatives of the step time, checked against finite differences of whole simulations and against known sums.
#include <gtest/gtest.h>

#include <cmath>
#include <map>

#include "sim/cost/roofline_cost.h"
#include "sim/engine/network_communication.h"
#include "sim/engine/simulate.h"
#include "sim/program/work_rates.h"

namespace orrery::sim {
namespace {

using program::DataParallel;
using program::Plan;
using program::RateKey;
using program::Rates;
using program::Schedule;
using program::Sensitivity;

struct Case {
    const char* name;
    const char* model;
    std::int64_t dp, tp, pp, micro_batches;
    Schedule schedule = Schedule::one_f_one_b;
    DataParallel data_parallel = DataParallel::ddp;
};

Plan plan_of(const Case& chosen) {
    Plan plan;
    plan.name = chosen.name;
    plan.model = models::load_model(chosen.model);
    plan.model.layers = 8;
    plan.cluster = topologies::load_cluster("dgx-h100", 16);
    plan.implementation = models::load_implementation("megatron-core");
    program::Parallelism& p = plan.parallelism;
    p.dp = chosen.dp;
    p.tp = chosen.tp;
    p.pp = chosen.pp;
    p.schedule = chosen.schedule;
    if (chosen.schedule == Schedule::interleaved) p.chunks = 2;
    p.data_parallel = chosen.data_parallel;
    p.stage_layers = program::even_stages(plan.model.layers, p.virtual_stages());
    plan.training.sequence_length = 2048;
    plan.training.global_batch_size = chosen.dp * chosen.micro_batches;
    plan.training.precision = program::precision_named("bf16");
    plan.rates = program::resolve_rates(plan.implementation, plan.cluster);
    return plan;
}

const std::vector<Case>& cases() {
    static const std::vector<Case> list{
        {"dp16", "llama2-7b", 16, 1, 1, 2},
        {"tp8 dp2", "llama2-7b", 2, 8, 1, 2},
        {"pp4 tp2 dp2", "gpt3-175b", 2, 2, 4, 8},
        {"interleaved", "llama2-7b", 2, 2, 4, 8, Schedule::interleaved},
        {"zb-h1", "llama2-7b", 2, 2, 4, 8, Schedule::zb_h1},
        {"zero3", "llama2-7b", 16, 1, 1, 1, Schedule::one_f_one_b, DataParallel::zero3},
        {"host-bound", "tiny-llama", 2, 2, 4, 8},
    };
    return list;
}

double step_of(const Plan& plan, Sensitivity* sensitivity = nullptr) {
    const topologies::Cluster cluster(plan.cluster);
    return simulate(program::lower(plan), cluster, RooflineCost(plan.cluster, plan.rates),
                    NetworkCommunication(cluster), {.sensitivity = sensitivity})
        .step_time_s;
}

/// d step / d log(rate), by the rules that map work to rates.
std::map<RateKey, double> by_rate(const Plan& plan, const Sensitivity& sensitivity) {
    std::map<RateKey, double> derivatives;
    for (const auto& [cell, seconds] : sensitivity) {
        for (const program::RateUse& use : program::rates_of(cell, plan.parallelism, plan.cluster.devices_per_node)) {
            derivatives[use.key] += use.power * seconds;
        }
    }
    return derivatives;
}

Plan with_rate(Plan plan, RateKey key, double factor) {
    Rates::Resolved resolved = plan.rates.of(key);
    resolved.rate.value *= factor;
    plan.rates.set(key, resolved);
    return plan;
}

TEST(Sensitivity, AgreesWithFiniteDifferences) {
    int compared = 0, excused = 0;
    for (const Case& one : cases()) {
        const Plan plan = plan_of(one);
        Sensitivity sensitivity;
        const double step = step_of(plan, &sensitivity);
        std::map<RateKey, double> derivatives = by_rate(plan, sensitivity);
        for (std::size_t k = 0; k < program::kRateKeys; ++k) {
            const auto key = static_cast<RateKey>(k);
            constexpr double kChange = 1e-3;
            const double up = (step_of(with_rate(plan, key, 1 + kChange)) - step) / std::log1p(kChange);
            const double down = (step - step_of(with_rate(plan, key, 1 - kChange))) / -std::log1p(-kChange);
            ++compared;
            // If the one-sided differences differ, the step time has a kink there.
            if (std::abs(up - down) > 0.01 * std::abs(up + down) / 2 + 1e-5 * step) {
                ++excused;
                continue;
            }
            const double expected = (up + down) / 2;
            EXPECT_NEAR(derivatives[key], expected, 0.01 * std::abs(expected) + 1e-4 * step)
                << one.name << ", " << program::row_of(key).name << ", of a step of " << step << " s";
        }
    }
    EXPECT_LE(excused, compared / 20) << "of " << compared;
}

TEST(Sensitivity, CellsSumToTheStepTimeIfNothingIsShared) {
    Plan plan = plan_of({"one", "llama2-7b", 1, 1, 1, 2});
    Sensitivity sensitivity;
    const double step = step_of(plan, &sensitivity);
    double sum = 0;
    for (const auto& [cell, seconds] : sensitivity) {
        EXPECT_GT(seconds, 0) << name_of(cell);
        sum += seconds;
    }
    EXPECT_NEAR(sum, step, 1e-9 * step);
}

TEST(Sensitivity, DoesNotChangeTheStep) {
    for (const Case& one : cases()) {
        Sensitivity sensitivity;
        const Plan plan = plan_of(one);
        EXPECT_EQ(step_of(plan, &sensitivity), step_of(plan)) << one.name;
    }
}

/// Eight groups share a node's single NIC: a slower fabric slows all of them in proportion.
TEST(Sensitivity, ASharedFabricHasFullSensitivity) {
    Plan plan = plan_of({"one NIC", "llama2-7b", 2, 8, 1, 1});
    plan.cluster.nics_per_node = 1;
    plan.rates = program::resolve_rates(plan.implementation, plan.cluster);
    Sensitivity sensitivity;
    const double step = step_of(plan, &sensitivity);
    const double slower = step_of(with_rate(plan, RateKey::fabric, 2)) - step;
    EXPECT_GT(slower, 0.1 * step);
    EXPECT_NEAR(step_of(with_rate(plan, RateKey::fabric, 3)) - step, 2 * slower, 0.02 * slower);
    EXPECT_NEAR(by_rate(plan, sensitivity)[RateKey::fabric], slower, 0.05 * slower);
}

TEST(Sensitivity, HostTimeIsAFloor) {
    const Plan slow = with_rate(plan_of({"floor", "tiny-llama", 1, 1, 1, 4}), RateKey::host_layer_ms, 100);
    Sensitivity sensitivity;
    const double step = step_of(slow, &sensitivity);
    // 8 blocks and 4 micro-batches; nothing hides the host's time.
    const double floor = 8 * 4 * slow.rates[RateKey::host_layer_ms] * 1e-3;
    EXPECT_GT(step, floor);
    std::map<RateKey, double> derivatives = by_rate(slow, sensitivity);
    EXPECT_NEAR(derivatives[RateKey::host_layer_ms], floor, 0.05 * floor);
    // Behind the GEMMs of a large model the host's time is hidden and changes nothing.
    const Plan fast = plan_of({"hidden", "llama2-7b", 1, 1, 1, 4});
    EXPECT_NEAR(step_of(with_rate(fast, RateKey::host_layer_ms, 2)), step_of(fast), 1e-3 * step_of(fast));
}

}  // namespace
}  // namespace orrery::sim
