// A resumed run trains like an uninterrupted one: bitwise equal under the same plan, up to rounding under another plan.
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <fstream>

#include "core/file.h"
#include "exec/checkpoint/folder.h"
#include "exec/checkpoint/manifest.h"
#include "tests/cli/checks.h"
#include "tests/parity/job.h"
#include "tests/parity/plans.h"

namespace orrery::parity {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using program::DataParallel;

constexpr std::int64_t kHalf = 3;        // steps before the stop, and after it
constexpr double kLossTolerance = 1e-6;  // relative, of fp32
constexpr double kBf16LossTolerance = 5e-3;

struct Change {
    std::string model;
    Shape from, to;
    friend std::ostream& operator<<(std::ostream& out, const Change& one) {
        return out << one.model << " " << one.from.name << " to " << one.to.name;
    }
};

void pad(models::Implementation& implementation) {
    implementation.data_parallel.shard_alignment_elements = 48;
    implementation.data_parallel.bucket_bytes = 40'000;
}

std::vector<Change> changes() {
    const Shape one{.name = "one_rank"};
    const Shape dp2{.name = "dp2", .dp = 2};
    const Shape tp2_sp{.name = "tp2_sp", .tp = 2, .sequence_parallel = true};
    const Shape pp2{.name = "pp2", .pp = 2};
    const Shape cp2{.name = "cp2", .cp = 2};
    const Shape zero1{.name = "dp2_zero1_padded", .dp = 2, .data_parallel = DataParallel::zero1, .adjust = pad};
    const Shape zero2{.name = "dp2_zero2_padded", .dp = 2, .data_parallel = DataParallel::zero2, .adjust = pad};
    const Shape zero3{.name = "dp2_zero3_padded", .dp = 2, .data_parallel = DataParallel::zero3, .adjust = pad};
    const Shape all{
        .name = "dp2_tp2_pp2_zero1", .dp = 2, .tp = 2, .pp = 2, .data_parallel = DataParallel::zero1, .adjust = pad};
    const Shape sets{
        .name = "dp4_zero3_in_sets", .dp = 4, .data_parallel = DataParallel::zero3, .dp_shard = 2, .adjust = pad};
    const Shape folded{.name = "pp2_dualpipe", .pp = 2, .schedule = program::Schedule::dualpipe, .chunks = 2};
    const Shape spread{.name = "dp4_ep2_zero2", .dp = 4, .data_parallel = DataParallel::zero2, .ep = 2};
    const Shape cut{.name = "tp2_sp_etp2", .tp = 2, .sequence_parallel = true, .etp = 2};
    const Shape offloaded{.name = "dp2_zero1_offloaded",
                          .dp = 2,
                          .memory = {.offload_optimizer = true},
                          .data_parallel = DataParallel::zero1};
    const Shape master{.name = "dp2_master", .dp = 2, .data_parallel = DataParallel::dp};
    const Shape bf16_zero1{.name = "bf16_dp2_zero1_padded",
                           .dp = 2,
                           .data_parallel = DataParallel::zero1,
                           .adjust = pad,
                           .precision = "bf16"};
    const Shape bf16_zero3{
        .name = "bf16_dp2_zero3", .dp = 2, .data_parallel = DataParallel::zero3, .precision = "bf16"};
    const Shape bf16_tp2{.name = "bf16_tp2", .tp = 2, .precision = "bf16"};
    const Shape copies{.name = "dp2_tp4_zero1", .dp = 2, .tp = 4, .data_parallel = DataParallel::zero1, .adjust = pad};
    const Shape always{
        .name = "dp2_zero1_every_micro_batch", .dp = 2, .data_parallel = DataParallel::zero1, .reduces_always = true};
    const Shape on_host{.name = "dp2_zero3_on_host",
                        .dp = 2,
                        .memory = {.offload_optimizer = true, .offload_parameters = true},
                        .data_parallel = DataParallel::zero3};
    const Shape fp32_shards{
        .name = "bf16_dp2_zero3_fp32_shards",
        .dp = 2,
        .data_parallel = DataParallel::zero3,
        .adjust = [](models::Implementation& implementation) { implementation.stores_fp32_shards = true; },
        .precision = "bf16"};
    const Shape tied{.name = "dp2_pp2_zero3", .dp = 2, .pp = 2, .data_parallel = DataParallel::zero3};
    const Shape chunks{.name = "pp2_interleaved", .pp = 2, .schedule = program::Schedule::interleaved, .chunks = 2};
    return {{"tiny-gpt", one, zero3},
            {"tiny-gpt", dp2, chunks},
            {"tiny-gpt-odd-vocab", tp2_sp, zero1},
            {"tiny-gpt", pp2, folded},  // the tied embedding has a copy on the last stage
            {"tiny-gpt", zero1, cp2},
            {"tiny-llama", zero2, tp2_sp},
            {"tiny-llama", zero3, pp2},
            {"tiny-llama-odd-vocab", all, one},
            {"tiny-gpt-dropout", tp2_sp, cp2},
            {"tiny-gpt-clipped", sets, dp2},
            {"tiny-gpt-adam", folded, all},
            {"tiny-gpt-sgd", cp2, zero2},
            {"tiny-qwen3", zero3, tp2_sp},
            {"tiny-mixtral", spread, one},
            {"tiny-mixtral", cut, spread},
            {"tiny-gpt", offloaded, tp2_sp},
            {"tiny-gpt", master, offloaded},
            {"tiny-gpt-odd-vocab", tied, always},
            {"tiny-llama", on_host, zero2},
            {"tiny-llama", zero2, on_host},
            {"tiny-gpt", fp32_shards, bf16_tp2},
            {"tiny-gpt", bf16_zero1, fp32_shards},
            {"tiny-gpt", bf16_zero1, bf16_tp2},
            {"tiny-gpt", bf16_zero3, bf16_zero1},
            {"tiny-llama", copies, zero2},
            {"tiny-llama-clipped", zero3, copies},
            {"tiny-gpt-moments", zero1, tp2_sp},
            {"tiny-gpt-moments", bf16_zero1, fp32_shards},
            {"tiny-latent", zero3, tp2_sp}};
}

void pad_vocabulary_little(models::Implementation& implementation) {
    implementation.vocab_multiple = 1;
}

/// A vocabulary that is sharded over the stages, and experts under both expert and expert-tensor parallelism.
std::vector<Change> further_changes() {
    const Shape one{.name = "one_rank"};
    const Shape tp2_sp{.name = "tp2_sp", .tp = 2, .sequence_parallel = true};
    const Shape zero3{.name = "dp2_zero3_padded", .dp = 2, .data_parallel = DataParallel::zero3, .adjust = pad};
    const Shape stages{.name = "pp2_vocab_2",
                       .pp = 2,
                       .adjust = pad_vocabulary_little,
                       .vocabulary_parallel = program::VocabularyParallel::one_barrier};
    const Shape stages_zero1{.name = "dp2_pp2_vocab_1_zero1",
                             .dp = 2,
                             .pp = 2,
                             .data_parallel = DataParallel::zero1,
                             .adjust = pad_vocabulary_little,
                             .vocabulary_parallel = program::VocabularyParallel::two_barriers};
    const Shape both{.name = "dp2_tp2_sp_ep2_etp2", .dp = 2, .tp = 2, .sequence_parallel = true, .ep = 2, .etp = 2};
    return {{"tiny-llama", zero3, stages_zero1}, {"tiny-gpt-odd-vocab", stages, tp2_sp}, {"tiny-deepseek", both, one}};
}

std::string name_of_change(const Change& change) {
    std::string name = change.model + "_" + change.from.name + "_to_" + change.to.name;
    std::replace(name.begin(), name.end(), '-', '_');
    return name;
}

class Resumed : public testing::TestWithParam<Change> {};

TEST_P(Resumed, TrainsLikeAnUninterruptedRun) {
    const TestFolder folder;
    const std::string checkpoints = folder.file("c");
    Job whole(make_plan({GetParam().model, GetParam().from}));
    whole.run(2 * kHalf, {"--checkpoint", checkpoints, "--checkpoint-every", std::to_string(kHalf)});
    const program::RunRecord record = whole.record();
    EXPECT_EQ(record.checkpoint_seconds.size(), 2U);
    const exec::GlobalTensors gradients = whole.gradients();
    // Without the last checkpoint the folder is that of a run that ended after half of the steps.
    fs::remove_all(checkpoints + "/" + exec::checkpoint_name(2 * kHalf));
    const std::vector<double> rest(record.losses.begin() + kHalf, record.losses.end());

    whole.run(kHalf, {"--resume", checkpoints});
    EXPECT_EQ(whole.record().first_step, kHalf);
    EXPECT_EQ(whole.record().losses, rest);
    const exec::GlobalTensors repeated = whole.gradients();
    for (const auto& [name, tensor] : gradients) EXPECT_EQ(repeated.at(name).values, tensor.values) << name;

    Job other(make_plan({GetParam().model, GetParam().to}));
    other.run(kHalf, {"--resume", checkpoints});
    const std::vector<double> losses = other.record().losses;
    ASSERT_EQ(losses.size(), rest.size());
    const double tolerance = GetParam().to.precision == std::string("fp32") ? kLossTolerance : kBf16LossTolerance;
    for (std::size_t step = 0; step < rest.size(); ++step) {
        EXPECT_LE(std::abs(losses[step] - rest[step]), tolerance * rest[step]) << step;
    }
}
INSTANTIATE_TEST_SUITE_P(Plans, Resumed, testing::ValuesIn(changes()),
                         [](const auto& one) { return name_of_change(one.param); });
INSTANTIATE_TEST_SUITE_P(FurtherPlans, Resumed, testing::ValuesIn(further_changes()),
                         [](const auto& one) { return name_of_change(one.param); });

TEST(Checkpoints, DoNotChangeTheTraining) {
    const TestFolder folder;
    Job job(make_plan({"tiny-gpt", {.name = "dp2_zero1", .dp = 2, .data_parallel = DataParallel::zero1}}));
    job.run(4);
    const std::vector<double> losses = job.record().losses;
    EXPECT_TRUE(job.record().checkpoint_seconds.empty());
    job.run(4, {"--checkpoint", folder.file("c"), "--checkpoint-every", "1", "--keep", "3"});
    EXPECT_EQ(job.record().losses, losses);
    EXPECT_EQ(job.record().checkpoint_seconds.size(), 4U);
    EXPECT_EQ(exec::checkpoint_steps(folder.file("c")), (std::vector<std::int64_t>{2, 3, 4}));
}

// The remaining tests use the command on one rank.
std::vector<double> losses_in(const test::Workplace& here, const std::string& name) {
    return json::parse(here.read(name)).at("losses").get<std::vector<double>>();
}

std::vector<std::string> run_words(const std::string& steps, const std::vector<std::string>& more) {
    std::vector<std::string> words{"run", "plan.json", "--warm-up", "0", "--steps", steps, "--quiet"};
    words.insert(words.end(), more.begin(), more.end());
    return words;
}

void flip_byte(const std::string& path, std::int64_t at) {
    std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
    file.seekg(at);
    const int byte = file.get();
    file.seekp(at);
    file.put(static_cast<char>(~byte));
    ASSERT_TRUE(file.good());
}

TEST(Checkpoints, DamagedOnesAreSkipped) {
    const test::Workplace here;
    here.write("plan.json", test::local_plan());
    test::expect_done(here.run(run_words("8", {"--record", "whole.json"})));
    test::expect_done(here.run(run_words("6", {"--checkpoint", "c", "--checkpoint-every", "2", "--keep", "3"})));
    flip_byte(here.path("c/step-00000006/rank-00000.slices"), 1'500'000);
    flip_byte(here.path("c/step-00000004/manifest.json"), 300);
    const test::CommandResult result =
        here.run(run_words("6", {"--resume", "c", "--checkpoint", "c", "--record", "r"}));
    EXPECT_EQ(result.exit_code, 0) << result.err;
    EXPECT_NE(result.err.find("orrery: c/step-00000006/rank-00000.slices: bytes from 1048576: got another checksum"),
              std::string::npos)
        << result.err;
    EXPECT_NE(result.err.find("orrery: c/step-00000004/manifest.json: /crc32c: "), std::string::npos) << result.err;
    std::vector<double> rest = losses_in(here, "whole.json");
    rest.erase(rest.begin(), rest.begin() + 2);
    EXPECT_EQ(losses_in(here, "r"), rest);
    EXPECT_EQ(json::parse(here.read("r")).at("notes").size(), 3U);  // two skipped checkpoints, and the one resumed from
    EXPECT_EQ(exec::checkpoint_steps(here.path("c")), (std::vector<std::int64_t>{2, 8}));

    fs::resize_file(here.path("c/step-00000008/rank-00000.slices"), 1000);
    fs::remove(here.path("c/step-00000002/manifest.json"));
    const test::CommandResult none = here.run(run_words("1", {"--resume", "c"}));
    EXPECT_EQ(none.exit_code, 2);
    for (const char* words : {"rank-00000.slices: size: got 1000 bytes; allowed: 2548224; skipped\n",
                              "c/step-00000002/manifest.json: cannot be read: No such file or directory; skipped\n",
                              "orrery: c: --resume: got no checkpoint that can be read; allowed: "}) {
        EXPECT_NE(none.err.find(words), std::string::npos) << none.err;
    }
}

TEST(Checkpoints, ResumingWithoutOneIsRefused) {
    const test::Workplace here;
    here.write("plan.json", test::local_plan());
    here.write("file", std::string("x"));
    test::expect_refused(here.run(run_words("1", {"--resume", "absent"})), 2,
                         {"absent: --resume: got no checkpoint", "orrery run --checkpoint"});
    test::expect_refused(here.run(run_words("1", {"--resume", "file"})), 2, {"file: cannot be read"});
    test::expect_refused(here.run(run_words("1", {"--checkpoint", "file"})), 2, {"file: --checkpoint: got"});
    test::expect_refused(here.run(run_words("1", {"--checkpoint", "absent/c"})), 2, {"absent/c: --checkpoint: got"});
    test::expect_refused(here.run(run_words("1", {"--checkpoint-every", "2"})), 2, {"--checkpoint"});
    test::expect_refused(here.run(run_words("1", {"--checkpoint", "c", "--keep", "0"})), 2, {"--keep"});
    EXPECT_FALSE(here.has("c"));
}

TEST(Checkpoints, OfAnotherRunAreNotOverwritten) {
    const test::Workplace here;
    here.write("plan.json", test::local_plan());
    test::expect_done(here.run(run_words("1", {"--checkpoint", "c"})));
    test::expect_refused(here.run(run_words("2", {"--checkpoint", "c"})), 2,
                         {"c: --checkpoint: got a folder with a checkpoint of another run, step-00000001"});
    test::expect_refused(here.run(run_words("2", {"--checkpoint", "c", "--resume", "absent"})), 2, {"c: --checkpoint"});
    test::expect_done(here.run(run_words("2", {"--checkpoint", "d/", "--resume", "./c/"})));
    EXPECT_EQ(exec::checkpoint_steps(here.path("c")), std::vector<std::int64_t>{1});
    EXPECT_EQ(exec::checkpoint_steps(here.path("d")), std::vector<std::int64_t>{3});
}

TEST(Checkpoints, OnlyTheSameTrainingCanResume) {
    const test::Workplace here;
    json plan = test::local_plan();
    plan["model"] = json::parse(models::to_json_text(models::load_model("tiny-gpt")));
    plan["model"]["vocab"] = 256;
    std::string text;
    for (int i = 0; i < 1000; ++i) text.push_back(static_cast<char>('a' + i * i % 23));
    plan["training"]["data"] = here.write("text.txt", text);
    here.write("plan.json", plan);
    test::expect_done(here.run(run_words("1", {"--checkpoint", "c"})));
    const auto refused = [&](const json& other, const std::vector<std::string>& words) {
        here.write("plan.json", other);
        test::expect_refused(here.run(run_words("1", {"--resume", "c"})), 2, words);
    };
    json other = plan;
    other["model"]["vocab"] = 300;
    refused(other, {"plan.json: /model/vocab: got 300; allowed: 256, as in c/step-00000001"});
    other = plan;
    other["training"]["seed"] = 5;
    refused(other, {"plan.json: /training/seed: got 5; allowed: 1234, as in c/step-00000001"});
    other = plan;
    other["training"]["global_batch_size"] = 4;
    refused(other, {"plan.json: /training/global_batch_size: got 4; allowed: 8"});
    other = plan;
    other["training"]["optimizer"]["kind"] = "sgd_momentum";
    refused(other, {R"(plan.json: /training/optimizer/kind: got "sgd_momentum"; allowed: "adamw")"});
    other = plan;
    other["training"]["precision"] = json{{"parameter", "fp32"},
                                          {"activation", "fp32"},
                                          {"gradient", "fp32"},
                                          {"master_weights", false},
                                          {"moments", "bf16"}};
    refused(other, {R"(plan.json: /training/precision: got "fp32 with bf16 moments"; allowed: "fp32")"});
    other = plan;
    other["training"]["data"] = here.write("other.txt", text + "z");
    refused(other, {"plan.json: /training/data: got \"text of 1001 bytes", "allowed: \"text of 1000 bytes"});

    other = plan;  // another path of the same text, another learning rate, other ranks, other micro-batches
    other["name"] = "other";
    other["training"]["data"] = here.write("copy.txt", text);
    other["training"]["optimizer"]["learning_rate"] = 1e-5;
    other["training"]["micro_batch_size"] = 2;
    other["parallelism"]["dp"] = 2;
    here.write("plan.json", other);
    test::expect_done(here.run(run_words("1", {"--resume", "c"})));
}

TEST(Checkpoints, TheSummaryShowsTheirNumberAndSize) {
    const test::Workplace here;
    here.write("plan.json", test::local_plan());
    const test::CommandResult result =
        here.run({"run", "plan.json", "--steps", "3", "--checkpoint", "c", "--checkpoint-every", "1"});
    test::expect_done(result);
    EXPECT_NE(result.out.find("checkpoints  5 of 2.55 MB, "), std::string::npos) << result.out;
}

}  // namespace
}  // namespace orrery::parity
