// `orrery run` on emulated GPUs, as a user runs it: which GPUs ranks get, what is said when they cannot be used, and
// that no error of a device is lost.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>
#include <vector>

#include "core/file.h"
#include "sim/program/plan.h"
#include "tests/cli/command.h"
#include "tests/emulator/like_torchrun.h"
#include "tests/unit/core/test_folder.h"
#include "tests/unit/program/sample_plans.h"
#include "tests/unit/topologies/made_up_cluster.h"

namespace orrery::test {
namespace {

program::Plan gpu_plan(const program::samples::Sample& options) {
    program::Plan plan = program::samples::make_plan(options);
    plan.name = "sample";
    plan.cluster = topologies::load_cluster("dgx-h100", plan.parallelism.world_size());
    program::check_plan(plan, plan.name);
    return plan;
}

class RunOnEmulatedGpus : public testing::Test {
  protected:
    void write(const program::samples::Sample& options) {
        write_file_atomically(path(), program::to_json_text(gpu_plan(options)));
    }
    [[nodiscard]] std::string path() const { return folder_.file("plan.json"); }

    /// Runs the plan, whose ranks the command starts by itself.
    [[nodiscard]] CommandResult run(const std::vector<std::string>& environment, int steps = 1) const {
        return run_command(words(steps), {.environment = environment});
    }

    /// Starts the ranks as a launcher does, each with its own variables.
    [[nodiscard]] std::vector<CommandResult> run_ranks(const std::vector<std::vector<std::string>>& of_ranks) const {
        const LikeTorchrun launcher;
        std::vector<CommandResult> results(of_ranks.size());
        std::vector<std::thread> threads;
        for (std::size_t rank = 0; rank < of_ranks.size(); ++rank) {
            threads.emplace_back([&, rank] {
                std::vector<std::string> environment = launcher.variables(rank, of_ranks.size());
                environment.insert(environment.end(), of_ranks[rank].begin(), of_ranks[rank].end());
                results[rank] = run_command(words(1), {.environment = environment});
            });
        }
        for (std::thread& thread : threads) thread.join();
        return results;
    }

    [[nodiscard]] std::vector<std::string> words(int steps) const {
        return {ORRERY_EMULATED,       "run",       path(), "--quiet", "--warm-up", "0", "--steps",
                std::to_string(steps), "--timeout", "20"};
    }
    TestFolder folder_;
};

/// A plan that fails is not called one that ran.
TEST_F(RunOnEmulatedGpus, BackendsTellsWhatHappened) {
    write({.dp = 2});
    const auto outcomes = [&](int exit_code, const CommandOptions& options) {
        const CommandResult result = orrery({"backends", path(), "--run", "--json"}, options);
        EXPECT_EQ(result.exit_code, exit_code) << result.err;
        return nlohmann::json::parse(result.out).at("plans").at(0).at("backends");
    };
    const nlohmann::json ran = outcomes(0, {});
    EXPECT_EQ(ran.at("cpu"), nlohmann::json({{"outcome", "ran"}}));
    EXPECT_EQ(ran.at("cuda_emulated"), nlohmann::json({{"outcome", "ran"}}));
    const nlohmann::json failed = outcomes(1, {.environment = {"ORRERY_FAULT=kill:rank=1,step=0"}});
    for (const char* backend : {"cpu", "cuda_emulated"}) {
        EXPECT_EQ(failed.at(backend).at("outcome"), "failed");
        EXPECT_NE(failed.at(backend).at("reason").get<std::string>().find("rank 1"), std::string::npos) << failed;
    }
}

/// Without a GPU, by the ordinary command.
TEST_F(RunOnEmulatedGpus, TheCommandShowsNoTimesOfEmulatedGpus) {
    write({.pp = 2});
    const std::string record = folder_.file("record.json");
    const CommandResult result = orrery(
        {"run", path(), "--backend", "cuda", "--emulated", "--steps", "1", "--warm-up", "0", "--record", record});
    EXPECT_EQ(result.exit_code, 0) << result.err;
    EXPECT_NE(result.out.find("(on emulated GPUs)"), std::string::npos) << result.out;
    EXPECT_NE(result.out.find("loss by step: "), std::string::npos) << result.out;
    for (const char* time : {"throughput", "MFU", "busy", " ms"}) {
        EXPECT_EQ(result.out.find(time), std::string::npos) << time << ": " << result.out;
    }
    for (const std::vector<std::string>& use :
         {std::vector<std::string>{"diff", path(), path(), "--records", record, record},
          {"run", path(), "--paced", record},
          {"report", record, "--output", folder_.file("report.html")}}) {
        const CommandResult refused = orrery(use);
        EXPECT_EQ(refused.exit_code, 2) << use.front();
        EXPECT_NE(refused.err.find("cuda_emulated"), std::string::npos) << refused.err;
    }
    const CommandResult traced = orrery({"run", path(), "--emulated", "--trace", folder_.file("trace.json")});
    EXPECT_EQ(traced.exit_code, 2);
    EXPECT_NE(traced.err.find("--trace excludes --emulated"), std::string::npos) << traced.err;
}

/// The losses of these steps, which follow those of the folder's newest checkpoint; they end with a checkpoint there.
std::vector<double> train_on(const std::string& plan, const TestFolder& folder, bool on_gpus, int steps) {
    const std::string saved = folder.file("saved"), record = folder.file("record.json");
    std::vector<std::string> words{"run",
                                   plan,
                                   on_gpus ? "--emulated" : "--on-cpu",
                                   "--steps",
                                   std::to_string(steps),
                                   "--warm-up",
                                   "0",
                                   "--quiet",
                                   "--record",
                                   record,
                                   "--checkpoint",
                                   saved};
    if (std::filesystem::exists(saved)) words.insert(words.end(), {"--resume", saved});
    const CommandResult result = orrery(words);
    EXPECT_EQ(result.exit_code, 0) << result.err;
    return nlohmann::json::parse(read_text_file(record)).at("losses").get<std::vector<double>>();
}

TEST_F(RunOnEmulatedGpus, CpuRanksResumeTheirCheckpointsAndTheOtherWayRound) {
    write({.dp = 2, .micro_batches = 1, .data_parallel = program::DataParallel::zero1});
    const TestFolder whole;
    const std::vector<double> expected = train_on(path(), whole, false, 3);
    ASSERT_EQ(expected.size(), 3U);
    for (const bool first_on_gpus : {false, true}) {
        const TestFolder parts;
        std::vector<double> losses;
        for (const bool on_gpus : {first_on_gpus, !first_on_gpus, first_on_gpus}) {
            const std::vector<double> part = train_on(path(), parts, on_gpus, 1);
            losses.insert(losses.end(), part.begin(), part.end());
        }
        ASSERT_EQ(losses.size(), expected.size());
        for (std::size_t step = 0; step < losses.size(); ++step) {
            EXPECT_NEAR(losses[step], expected[step], 1e-5 * expected[step]) << "step " << step;
        }
    }
}

TEST_F(RunOnEmulatedGpus, APlanForCpusIsRefused) {
    program::Plan plan = gpu_plan({});
    plan.cluster = made_up_local_cluster();
    write_file_atomically(path(), program::to_json_text(plan));
    const CommandResult result = orrery({"run", path(), "--emulated"});
    EXPECT_EQ(result.exit_code, 2);
    EXPECT_NE(result.err.find("a cluster of GPUs with --emulated"), std::string::npos) << result.err;
}

TEST_F(RunOnEmulatedGpus, ADriverThatIsTooOldIsNotTakenForNoGpu) {
    write({});
    const CommandResult old = run({"EMULATED_CUDA_DRIVER=12040"});
    EXPECT_EQ(old.exit_code, 1);
    EXPECT_NE(
        old.err.find("CUDA driver version is insufficient for CUDA runtime version (the driver is for CUDA 12.4, this "
                     "orrery was built with 13.0)"),
        std::string::npos)
        << old.err;
    for (const char* none : {"EMULATED_CUDA_DRIVER=0", "EMULATED_CUDA_DEVICES=0"}) {
        const CommandResult result = run({none});
        EXPECT_EQ(result.exit_code, 2) << none;
        EXPECT_NE(result.err.find("has no NVIDIA GPU or no driver for it"), std::string::npos) << result.err;
    }
}

TEST_F(RunOnEmulatedGpus, CalibrationSaysWhyItCannotUseTheGpu) {
    const std::vector<std::string> words{ORRERY_EMULATED, "calibrate", "--gpu",
                                         "dgx-h100",      "--output",  folder_.file("c.json")};
    const CommandResult old = run_command(words, {.environment = {"EMULATED_CUDA_DRIVER=12040"}});
    EXPECT_EQ(old.exit_code, 1);
    EXPECT_NE(old.err.find("insufficient"), std::string::npos) << old.err;
    EXPECT_EQ(run_command(words, {.environment = {"EMULATED_CUDA_DRIVER=0"}}).exit_code, 2);
}

TEST_F(RunOnEmulatedGpus, RanksMayHaveOneVisibleGpuEach) {
    write({.dp = 2});
    const auto of_task = [](const char* gpu) {
        return std::vector<std::string>{"EMULATED_CUDA_DEVICES=8", std::string("CUDA_VISIBLE_DEVICES=") + gpu};
    };
    for (const CommandResult& result : run_ranks({of_task("3"), of_task("5")})) {
        EXPECT_EQ(result.exit_code, 0) << result.err;
    }
    const std::vector<CommandResult> same = run_ranks({of_task("3"), of_task("3")});
    EXPECT_EQ(same[0].exit_code, 1);
    EXPECT_EQ(same[1].exit_code, 1);
    EXPECT_NE((same[0].err + same[1].err).find("ranks 0 and 1 have the same GPU, 0000:03:00.0"), std::string::npos)
        << same[0].err << same[1].err;
}

TEST_F(RunOnEmulatedGpus, TorchrunsLocalRankWinsOverOpenMpis) {
    write({.dp = 2});
    const auto of_rank = [](bool torchrun) {
        std::vector<std::string> variables{"OMPI_COMM_WORLD_LOCAL_RANK=0"};
        if (torchrun) variables.push_back("TORCHELASTIC_RUN_ID=none");
        return variables;
    };
    for (const CommandResult& result : run_ranks({of_rank(true), of_rank(true)})) {
        EXPECT_EQ(result.exit_code, 0) << result.err;
    }
    const std::vector<CommandResult> others = run_ranks({of_rank(false), of_rank(false)});
    EXPECT_NE((others[0].err + others[1].err).find("have the same GPU"), std::string::npos);
    const std::vector<CommandResult> wrong = run_ranks({{"LOCAL_RANK=zero"}, {}});
    EXPECT_NE((wrong[0].err + wrong[1].err).find("LOCAL_RANK: got 'zero'"), std::string::npos);
}

/// The emulated communicator of two ranks takes 48 MiB. Memory that suffices without it does not suffice.
TEST_F(RunOnEmulatedGpus, CommunicatorsAreMadeBeforeMemoryIsReserved) {
    write({});
    EXPECT_EQ(run({"EMULATED_CUDA_MEMORY_MIB=350"}).exit_code, 0);
    write({.dp = 2});
    const std::vector<std::string> little{"EMULATED_CUDA_MEMORY_MIB=350"};
    const std::vector<CommandResult> results = run_ranks({little, little});
    for (const CommandResult& result : results) EXPECT_EQ(result.exit_code, 1);
    EXPECT_NE((results[0].err + results[1].err).find("and the device has 0.00"), std::string::npos)
        << results[0].err << results[1].err;
}

/// The kernels of a run of one step; see EMULATED_CUDA_COUNTS.
std::int64_t kernels_in(const std::string& path) {
    std::int64_t kernels = 0;
    std::ifstream(path) >> kernels;
    return kernels;
}

TEST_F(RunOnEmulatedGpus, NoErrorOfAKernelIsLost) {
    write({.micro_batches = 1});
    const std::string counts = folder_.file("counts");
    EXPECT_EQ(run({"EMULATED_CUDA_COUNTS=" + counts}).exit_code, 0);
    const std::int64_t kernels = kernels_in(counts);
    ASSERT_GT(kernels, 50);
    for (const std::int64_t fails : {std::int64_t{1}, kernels / 2, kernels}) {
        for (const int seed : {0, 1, 2}) {
            const CommandResult result =
                run({"EMULATED_CUDA_FAULT=" + std::to_string(fails), "EMULATED_CUDA_SEED=" + std::to_string(seed)});
            EXPECT_EQ(result.exit_code, 1) << fails << " of " << kernels;
            EXPECT_NE(result.err.find("unspecified launch failure"), std::string::npos) << result.err;
        }
    }
    EXPECT_EQ(run({"EMULATED_CUDA_FAULT=" + std::to_string(kernels + 1)}).exit_code, 0);
}

TEST_F(RunOnEmulatedGpus, AnErrorOfNcclEndsTheJob) {
    write({.dp = 2});
    for (const char* fails : {"1", "3"}) {
        const std::string fault = std::string("EMULATED_NCCL_FAULT=") + fails;
        const std::vector<CommandResult> results = run_ranks({{}, {fault}});
        EXPECT_EQ(results[1].exit_code, 1);
        EXPECT_NE(results[1].err.find("remote process exited or there was a network error"), std::string::npos)
            << results[1].err;
        EXPECT_EQ(results[0].exit_code, 1);
    }
}

/// Two ranks may each begin the collective that the other one has not reached yet, if a device has room for one.
TEST_F(RunOnEmulatedGpus, CollectivesOfTwoCommunicatorsDoNotWaitForEachOther) {
    write({.dp = 2, .tp = 2, .micro_batches = 2, .data_parallel = program::DataParallel::zero3});
    bool is_stuck = false;
    for (int seed = 0; seed < 3 && !is_stuck; ++seed) {
        std::vector<std::string> device{"EMULATED_CUDA_SEED=" + std::to_string(seed), "EMULATED_CUDA_ONE_COLLECTIVE=1"};
        EXPECT_EQ(run(device, 2).exit_code, 0);
        device.emplace_back("NCCL_LAUNCH_ORDER_IMPLICIT=0");  // what Orrery asks NCCL for, unless the user sets it
        device.emplace_back("EMULATED_CUDA_PATIENCE_S=3");
        is_stuck = run(device, 2).err.find("a collective that may not begin yet") != std::string::npos;
    }
    EXPECT_TRUE(is_stuck);  // else this test shows nothing
}

/// The last stage begins a collective over the stages before the first stage has its gradient, and meanwhile exchanges
/// tokens among its experts, on which that gradient depends.
TEST_F(RunOnEmulatedGpus, AVocabularyOverStagesDoesNotHoldUpExperts) {
    program::Plan plan = gpu_plan(
        {.model = "tiny-llama", .dp = 2, .pp = 2, .micro_batches = 2, .ep = 2, .adjust = [](models::ModelSpec& model) {
             model.moe = {.expert_count = 4, .top_k = 2, .expert_ffn_hidden = 32};
         }});
    plan.parallelism.vocabulary_parallel = program::VocabularyParallel::one_barrier;
    plan.training.expert_load.largest = 2;
    program::check_plan(plan, plan.name);
    write_file_atomically(path(), program::to_json_text(plan));
    for (const char* seed : {"0", "1", "2"}) {
        const CommandResult result = run({std::string("EMULATED_CUDA_SEED=") + seed, "EMULATED_CUDA_ONE_COLLECTIVE=1"});
        EXPECT_EQ(result.exit_code, 0) << "seed " << seed << ": " << result.err;
    }
}

}  // namespace
}  // namespace orrery::test
