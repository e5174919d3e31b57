// Every plan that the CUDA backend takes trains on emulated devices as on CPU ranks, whatever the order in which the
// devices execute what the streams and events leave open.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <set>
#include <string>

#include "core/error.h"
#include "exec/device/gpu_limits.h"
#include "tests/parity/job.h"
#include "tests/parity/plans.h"
#include "tests/parity/record_checks.h"
#include "topologies/cluster_spec.h"

namespace orrery::parity {
namespace {

constexpr std::int64_t kEmulatedSteps = 3;
constexpr std::int64_t kMostRanks = 4;
constexpr double kTolerance = 1e-5;  // relative

/// The case's plan for a node of GPUs. Sequences are short, because a kernel's threads take turns on one core.
program::Plan gpu_plan(const Case& one) {
    program::Plan plan = make_plan(one);
    plan.cluster = topologies::load_cluster("dgx-h100", plan.parallelism.world_size());
    plan.training.sequence_length = 8;
    program::check_plan(plan, plan.name);
    return plan;
}

bool runs_on_gpus(const program::Plan& plan) {
    try {
        exec::check_runs_on_gpu(program::lower(plan), plan.name);
    } catch (const InputError&) {
        return false;
    }
    return true;
}

std::vector<Case> gpu_cases() {
    std::vector<Case> cases;
    for (const Case& one : all_cases()) {
        const std::int64_t ranks = one.shape.dp * one.shape.tp * one.shape.pp * one.shape.cp;
        if (ranks <= kMostRanks && runs_on_gpus(gpu_plan(one))) cases.push_back(one);
    }
    return cases;
}

struct SeededCase {
    Case plan;
    int seed = 0;
    friend std::ostream& operator<<(std::ostream& out, const SeededCase& one) {
        return out << one.plan << ", seed " << one.seed;
    }
};

std::string name_of_case(const testing::TestParamInfo<SeededCase>& info) {
    std::string name =
        info.param.plan.model + "_" + info.param.plan.shape.name + "_seed" + std::to_string(info.param.seed);
    std::replace(name.begin(), name.end(), '-', '_');
    return name;
}

double norm(const std::vector<float>& values, const std::vector<float>& others) {
    double sum = 0;
    for (std::size_t i = 0; i < values.size(); ++i) {
        sum += std::pow(static_cast<double>(values[i]) - (others.empty() ? 0.0 : static_cast<double>(others[i])), 2);
    }
    return std::sqrt(sum);
}

void expect_gradients(const exec::GlobalTensors& got, const exec::GlobalTensors& expected) {
    ASSERT_EQ(got.size(), expected.size());
    double all = 0;
    for (const auto& [name, tensor] : expected) all = std::hypot(all, norm(tensor.values, {}));
    for (const auto& [name, tensor] : expected) {
        ASSERT_TRUE(got.contains(name)) << name;
        ASSERT_EQ(got.at(name).values.size(), tensor.values.size()) << name;
        // Some gradients are small differences of large numbers, such as those of the key bias.
        EXPECT_LE(norm(got.at(name).values, tensor.values), kTolerance * norm(tensor.values, {}) + 1e-6 * all) << name;
    }
}

class OnEmulatedGpus : public testing::TestWithParam<SeededCase> {};

TEST_P(OnEmulatedGpus, TrainsLikeCpuRanks) {
    const program::Plan plan = gpu_plan(GetParam().plan);
    const int seed = GetParam().seed;
    // With the last seed a device holds one collective at a time, as one without room for two would.
    Job cpu(plan), gpu(plan, {.program = ORRERY_EMULATED,
                              .environment = {"EMULATED_CUDA_SEED=" + std::to_string(seed),
                                              "EMULATED_CUDA_ONE_COLLECTIVE=" + std::to_string(seed / 2)}});
    cpu.run(kEmulatedSteps, {"--on-cpu"});
    gpu.run(kEmulatedSteps);
    const program::RunRecord expected = cpu.record(), got = gpu.record();
    ASSERT_EQ(got.losses.size(), expected.losses.size());
    for (std::size_t step = 0; step < got.losses.size(); ++step) {
        EXPECT_NEAR(got.losses[step], expected.losses[step], kTolerance * expected.losses[step]) << "step " << step;
    }
    expect_bytes_of_program(gpu.program(), got);
    expect_order_of_program(gpu.program(), got);
    // Later gradients belong to weights that rounding has already changed.
    cpu.run(1, {"--on-cpu"});
    gpu.run(1);
    EXPECT_EQ(gpu.record().losses.at(0), got.losses.at(0));  // in whatever order
    expect_gradients(gpu.gradients(), cpu.gradients());
}

/// One plan for each way to shard, reduce and save memory, as models and seeds take turns.
std::vector<SeededCase> few_cases() {
    const std::set<std::string> names{"tiny-gpt offload_two_layers",
                                      "tiny-gpt dp4_zero1_in_sets",
                                      "tiny-gpt dp2_zero3_recompute_full",
                                      "tiny-gpt-clipped dp2_zero2",
                                      "tiny-gpt-odd-vocab tp2",
                                      "tiny-gpt-sgd dp2_tp2",
                                      "tiny-llama dp2_zero3_by_layer",
                                      "tiny-llama dp2_every_micro_batch",
                                      "tiny-llama tp2_sp_recompute_attention_core"};
    std::vector<SeededCase> few;
    for (const Case& one : gpu_cases()) {
        const auto seed = static_cast<int>(few.size() % 3);
        if (names.contains(one.model + " " + one.shape.name)) few.push_back({one, seed});
    }
    EXPECT_EQ(few.size(), names.size());
    return few;
}
INSTANTIATE_TEST_SUITE_P(Few, OnEmulatedGpus, testing::ValuesIn(few_cases()), name_of_case);

std::vector<SeededCase> all_seeds() {
    std::vector<SeededCase> all;
    for (const Case& one : gpu_cases()) {
        for (const int seed : {0, 1, 2}) all.push_back({one, seed});
    }
    return all;
}
INSTANTIATE_TEST_SUITE_P(All, OnEmulatedGpus, testing::ValuesIn(all_seeds()), name_of_case);

}  // namespace
}  // namespace orrery::parity
