// Every plan that the CUDA backend takes trains on emulated devices as on CPU ranks, whatever the order in which the
// devices execute what the streams and events leave open.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <set>
#include <string>

#include "sim/program/kernel_memory.h"
#include "tests/emulator/emulated_memory.h"
#include "tests/parity/job.h"
#include "tests/parity/plans.h"
#include "tests/parity/record_checks.h"
#include "topologies/cluster_spec.h"

namespace orrery::parity {
namespace {

constexpr std::int64_t kEmulatedSteps = 3;
constexpr int kSeeds = 3;
/// CUDA tells times since an event as a float of milliseconds, which are a second at most.
constexpr std::int64_t kResolution_ps = 200'000;

/// How far GPU ranks may be from CPU ranks, relatively. Both round to bf16 at the same places, but sums that differ in
/// their last bits may be rounded to other numbers.
struct Tolerance {
    double loss = 1e-5, gradient = 1e-5;
    double of_all = 1e-6;  // of the norm of all gradients: some are small differences of large numbers
};
Tolerance tolerance_of(const program::Plan& plan) {
    if (plan.training.precision.activation == DType::bf16) return {.loss = 5e-3, .gradient = 0x1p-5, .of_all = 0x1p-8};
    return {};
}

/// The case's plan for a node of GPUs. Sequences are short, because a kernel's threads take turns on one core; so few
/// tokens leave some of fewer experts idle, too.
program::Plan gpu_plan(const Case& one) {
    program::Plan plan = make_plan(one);
    plan.cluster = topologies::load_cluster("dgx-h100", plan.parallelism.world_size());
    plan.training.sequence_length = 8;
    constexpr std::int64_t kMostExperts = 96;
    plan.model.moe.expert_count = std::min(plan.model.moe.expert_count, kMostExperts);
    program::check_plan(plan, plan.name);
    return plan;
}

std::vector<Case> cases_of_ranks(std::int64_t fewest, std::int64_t most) {
    std::vector<Case> cases;
    for (const Case& one : all_cases()) {
        const std::int64_t ranks = one.shape.dp * one.shape.tp * one.shape.pp * one.shape.cp;
        if (ranks >= fewest && ranks <= most) cases.push_back(one);
    }
    return cases;
}

double norm(const std::vector<float>& values, const std::vector<float>& others) {
    double sum = 0;
    for (std::size_t i = 0; i < values.size(); ++i) {
        sum += std::pow(static_cast<double>(values[i]) - (others.empty() ? 0.0 : static_cast<double>(others[i])), 2);
    }
    return std::sqrt(sum);
}

void expect_gradients(const exec::GlobalTensors& got, const exec::GlobalTensors& expected, const Tolerance& tolerance) {
    ASSERT_EQ(got.size(), expected.size());
    double all = 0;
    for (const auto& [name, tensor] : expected) all = std::hypot(all, norm(tensor.values, {}));
    for (const auto& [name, tensor] : expected) {
        ASSERT_TRUE(got.contains(name)) << name;
        ASSERT_EQ(got.at(name).values.size(), tensor.values.size()) << name;
        EXPECT_LE(norm(got.at(name).values, tensor.values),
                  tolerance.gradient * norm(tensor.values, {}) + tolerance.of_all * all)
            << name;
    }
}

/// Streams of pipeline transfers of the class.
std::int64_t pipeline_streams(const program::Program& program, const program::RankClass& ranks) {
    std::set<program::Stream> streams;
    for (const auto& segments : ranks.segment_lists) {
        for (const program::Segment& segment : segments) {
            for (const program::Instruction& one : program.bodies[segment.body].instructions) {
                if (one.is_communication && is_pipeline(one.stream)) streams.insert(one.stream);
            }
        }
    }
    return std::ssize(streams);
}

/// A device holds what the Program predicts: tensors, memory of kernels, a communicator of all ranks, one for each
/// stream of pipeline transfers, and one for a vocabulary that is spread over the stages, if these are not all ranks.
/// Parts of communicators take some multiples of emulated::kSharedBytes.
void expect_memory_of_program(const program::Program& program, const program::RunRecord& record) {
    constexpr std::int64_t kMostRounding = std::int64_t{1} << 16;  // of the arena's regions and of blocks
    const program::Parallelism& p = program.plan->parallelism;
    const bool spreads_vocabulary = p.spreads_vocabulary() && p.pp < program.world_size();
    for (const program::RankRecord& rank : record.ranks) {
        const program::RankClass& ranks = program.classes[rank.rank_class];
        const std::int64_t communicators =
            (program.world_size() > 1 ? 1 : 0) + pipeline_streams(program, ranks) + (spreads_vocabulary ? 1 : 0);
        const std::int64_t rest = rank.memory_peak_bytes - emulated::kContextBytes - ranks.memory.allocated(false) -
                                  program::kernel_memory(program, ranks).bytes(emulated::kComputeCapability) -
                                  communicators * emulated::kOwnBytes;
        EXPECT_GE(rest, 0) << "rank " << rank.rank;
        EXPECT_LT(rest, emulated::kOwnBytes) << "rank " << rank.rank;
        EXPECT_LT(rest % emulated::kSharedBytes, kMostRounding) << "rank " << rank.rank << ": " << rest;
    }
}

Job emulated_job(const program::Plan& plan, int seed) {
    // With the last seed a device holds one collective at a time of those that share resources, as NCCL does.
    return Job(plan, {.program = ORRERY_EMULATED,
                      .environment = {"EMULATED_CUDA_SEED=" + std::to_string(seed),
                                      "EMULATED_CUDA_ONE_COLLECTIVE=" + std::to_string(seed / 2)}});
}

/// The same losses to the last bit as with another seed, and the order of the Program.
void expect_same_losses(Job& job, std::int64_t steps, const std::vector<double>& losses, int seed) {
    job.run(steps);
    const program::RunRecord record = job.record();
    EXPECT_EQ(record.losses, std::vector<double>(losses.begin(), losses.begin() + steps)) << "seed " << seed;
    expect_order_of_program(job.program(), record, kResolution_ps);
}

/// Losses, bytes, memory and order with the first seed. First gradients with the second one, which runs one step, and
/// the same losses with all others.
void compare_with_cpu(const program::Plan& plan, const std::vector<int>& seeds) {
    const Tolerance tolerance = tolerance_of(plan);
    Job cpu(plan), gpu = emulated_job(plan, seeds[0]);
    cpu.run(kEmulatedSteps, {"--on-cpu"});
    gpu.run(kEmulatedSteps);
    const program::RunRecord expected = cpu.record(), got = gpu.record();
    ASSERT_EQ(got.losses.size(), expected.losses.size());
    for (std::size_t step = 0; step < got.losses.size(); ++step) {
        EXPECT_NEAR(got.losses[step], expected.losses[step], tolerance.loss * expected.losses[step]) << "step " << step;
    }
    expect_bytes_of_program(gpu.program(), got);
    expect_order_of_program(gpu.program(), got, kResolution_ps);
    expect_memory_of_program(gpu.program(), got);
    // Later gradients belong to weights that rounding has already changed.
    Job one_step = emulated_job(plan, seeds[1]);
    cpu.run(1, {"--on-cpu"});
    expect_same_losses(one_step, 1, got.losses, seeds[1]);
    expect_gradients(one_step.gradients(), cpu.gradients(), tolerance);
    for (std::size_t i = 2; i < seeds.size(); ++i) {
        Job other = emulated_job(plan, seeds[i]);
        expect_same_losses(other, kEmulatedSteps, got.losses, seeds[i]);
    }
}

/// One plan for each way to divide a training, as models and seeds take turns.
std::vector<Case> few_cases() {
    const std::set<std::string> names{"tiny-gpt dp2_zero3_recompute_full",
                                      "tiny-gpt-clipped dp2_zero2",
                                      "tiny-llama tp2_sp_recompute_attention_core",
                                      "tiny-gpt pp2_dualpipe",
                                      "tiny-gpt-odd-vocab pp2_vocab_1",
                                      "tiny-llama bf16_cp2_ring",
                                      "tiny-mixtral dp2_ep2",
                                      "tiny-gpt dp2_offload_optimizer"};
    std::vector<Case> few;
    for (const Case& one : cases_of_ranks(1, 4)) {
        if (names.contains(one.model + " " + one.shape.name)) few.push_back(one);
    }
    EXPECT_EQ(few.size(), names.size());
    return few;
}

struct SeededCase {
    Case plan;
    std::vector<int> seeds;
    friend std::ostream& operator<<(std::ostream& out, const SeededCase& one) {
        return out << one.plan << ", first seed " << one.seeds.front();
    }
};
/// So many seeds, of which each is the first in turn.
std::vector<SeededCase> with_seeds(const std::vector<Case>& cases, int seeds) {
    std::vector<SeededCase> seeded;
    for (const Case& one : cases) {
        const int first = static_cast<int>(std::ssize(seeded) % kSeeds);
        SeededCase& next = seeded.emplace_back(SeededCase{one, {}});
        for (int i = 0; i < seeds; ++i) next.seeds.push_back((first + i) % kSeeds);
    }
    return seeded;
}
std::string name_of_seeded(const testing::TestParamInfo<SeededCase>& info) {
    std::string name = info.param.plan.model + "_" + info.param.plan.shape.name;
    std::replace(name.begin(), name.end(), '-', '_');
    return name + "_seed" + std::to_string(info.param.seeds.front());
}

/// Also where NCCL runs the collectives that share buffers one after the other.
TEST(PlansForGpus, CannotDeadlock) {
    for (const Case& one : cases_of_ranks(1, 8)) {
        EXPECT_NO_THROW(program::validate(program::lower(gpu_plan(one)))) << one;
    }
}

class OnEmulatedGpus : public testing::TestWithParam<SeededCase> {};

TEST_P(OnEmulatedGpus, TrainsLikeCpuRanks) {
    compare_with_cpu(gpu_plan(GetParam().plan), GetParam().seeds);
}
INSTANTIATE_TEST_SUITE_P(Few, OnEmulatedGpus, testing::ValuesIn(with_seeds(few_cases(), 2)), name_of_seeded);
INSTANTIATE_TEST_SUITE_P(All, OnEmulatedGpus, testing::ValuesIn(with_seeds(cases_of_ranks(1, 4), kSeeds)),
                         name_of_seeded);
INSTANTIATE_TEST_SUITE_P(Eight, OnEmulatedGpus, testing::ValuesIn(with_seeds(cases_of_ranks(5, 8), 2)), name_of_seeded);

}  // namespace
}  // namespace orrery::parity
