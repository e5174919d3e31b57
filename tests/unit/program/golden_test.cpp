// Published figures (arXiv 2205.05198, and papers on schedules) reproduced from lowered Programs.
#include <gtest/gtest.h>

#include <string>

#include "core/units.h"
#include "tests/unit/program/sample_plans.h"

namespace orrery::program {
namespace {

struct Job {
    const char* model;
    std::int64_t micro_batch, tp, pp;
};

constexpr std::int64_t kSequenceLength = 2048;

/// As Megatron-LM ran it: unfused attention, dropout 0.1, 1F1B with enough micro-batches to fill the pipeline.
Plan megatron_plan(const Job& job, const char* precision, bool sequence_parallel = false) {
    Plan plan;
    plan.name = job.model;
    plan.model = models::load_model(job.model);
    plan.implementation = models::load_implementation("megatron-lm-2022");
    plan.parallelism = {.tp = job.tp,
                        .pp = job.pp,
                        .sequence_parallel = sequence_parallel,
                        .stage_layers = even_stages(plan.model.layers, job.pp)};
    plan.training.sequence_length = kSequenceLength;
    plan.training.micro_batch_size = job.micro_batch;
    plan.training.global_batch_size = job.micro_batch * (job.pp + 1);
    plan.training.precision = precision_named(precision);
    plan.training.dropout = plan.implementation.default_dropout;
    return plan;
}

double gib(std::int64_t bytes) {
    return to_gib(Bytes(bytes));
}

const std::vector<Segment>& forward_segments(const RankClass& stage) {
    for (const Action& action : stage.actions) {
        if (action.kind == ActionKind::forward) return stage.segment_lists[action.segments];
    }
    throw std::logic_error("no forward");
}

/// Elements of the weight matrices of the class's blocks.
std::int64_t block_matrix_elements(const RankClass& stage) {
    std::int64_t elements = 0;
    for (const Parameter& parameter : stage.parameters) {
        if (parameter.name.rfind("layers.", 0) == 0 && parameter.decl.shape.size() == 2 &&
            parameter.decl.shape[1] > 1) {
            elements += parameter.elements;
        }
    }
    return elements;
}

TEST(GoldenMemory, ModelStatesTakeEighteenBytesPerParameter) {
    struct Row {
        Job job;
        double block_gib;  // 18 * 12 L h^2 / (t p)
    };
    for (const Row& row : {Row{{"megatron-22b", 4, 8, 1}, 45.56}, Row{{"gpt3-175b", 1, 8, 8}, 45.56},
                           Row{{"megatron-530b", 1, 8, 35}, 31.64}, Row{{"megatron-1t", 1, 8, 64}, 32.96}}) {
        const Program program = lower(megatron_plan(row.job, "bf16"));
        for (const RankClass& stage : program.classes) {
            EXPECT_NEAR(gib(18 * block_matrix_elements(stage)), row.block_gib, 0.005) << row.job.model;
            const MemoryFootprint& memory = stage.memory;
            EXPECT_EQ(memory.parameters + memory.gradients + memory.optimizer_states, 18 * stage.parameter_elements);
            EXPECT_GT(stage.parameter_elements, block_matrix_elements(stage));  // norms, biases and embeddings too
        }
    }
    const Program fp32 = lower(megatron_plan({"megatron-22b", 1, 8, 1}, "fp32"));
    const MemoryFootprint& memory = fp32.classes.front().memory;
    EXPECT_EQ(memory.parameters + memory.gradients + memory.optimizer_states,
              16 * fp32.classes.front().parameter_elements);
}

struct SavedByBlocks {
    std::int64_t bytes = 0;
    std::int64_t norm_statistics = 0;  // part of `bytes`
};

/// Activations that the first stage's blocks keep for one micro-batch: their inputs and the slots that the backward
/// pass reads.
SavedByBlocks saved_by_blocks(const Program& program) {
    SavedByBlocks saved;
    for (const Segment& segment : forward_segments(program.classes.front())) {
        const Body& body = program.bodies[segment.body];
        if (body.layer_kind != models::LayerKind::block) continue;
        for (const Slot& slot : body.slots) {
            if (slot.space != Space::activation && slot.space != Space::hidden_in) continue;
            saved.bytes += slot.bytes;
            if (slot.decl.name.ends_with(".stats")) saved.norm_statistics += slot.bytes;
        }
    }
    return saved;
}

// The paper's bytes per layer and micro-batch: s b h (10 + 24/t + 5 a s / (h t)), and with sequence parallelism
// s b h (34/t + 5 a s / (h t)). Ours are equal to the byte, plus the mean and deviation that each norm keeps, two fp32
// numbers per token, which the paper leaves out: below 0.02 %.
TEST(GoldenMemory, ActivationsWithoutRecomputationMatchThePaper) {
    struct Row {
        Job job;
        double gib;
    };
    for (const Row& row : {Row{{"megatron-22b", 4, 8, 1}, 59.25}, Row{{"megatron-1t", 1, 8, 64}, 131.25}}) {
        for (const bool sequence_parallel : {false, true}) {
            const Plan plan = megatron_plan(row.job, "bf16", sequence_parallel);
            const Program program = lower(plan);
            const RankClass& first = program.classes.front();
            ASSERT_EQ(first.chunks.front().frame_count, row.job.pp);
            const SavedByBlocks saved = saved_by_blocks(program);
            const std::int64_t t = row.job.tp, b = row.job.micro_batch, h = plan.model.hidden, a = plan.model.heads;
            const std::int64_t token_bytes = sequence_parallel
                                                 ? 34 * kSequenceLength * b * h / t
                                                 : 10 * kSequenceLength * b * h + 24 * kSequenceLength * b * h / t;
            const std::int64_t layer = token_bytes + 5 * a * kSequenceLength * kSequenceLength * b / t;
            EXPECT_EQ(saved.bytes - saved.norm_statistics, first.chunks.front().block_count * layer);
            EXPECT_EQ(saved.norm_statistics,
                      first.chunks.front().block_count * 2 * kSequenceLength * b * 8 / (sequence_parallel ? t : 1));
            if (sequence_parallel) continue;  // the paper's figure is without sequence parallelism
            const double all = gib(saved.bytes * first.chunks.front().frame_count);
            EXPECT_NEAR(all, row.gib, 0.002 * row.gib) << row.job.model;
            EXPECT_GE(gib(first.memory.activations_live_peak), all);
        }
    }
}

// Micro-batches whose activations a stage holds at once.
TEST(GoldenSchedules, InFlightCountsMatchTheSchedules) {
    for (const std::int64_t p : {2, 4}) {
        for (const std::int64_t m : {1, 2, 3, 8, 16}) {
            const Program gpipe =
                samples::make_program({.model = "tiny-gpt", .pp = p, .schedule = Schedule::gpipe, .micro_batches = m});
            const Program one_f_one_b = samples::make_program({.model = "tiny-gpt", .pp = p, .micro_batches = m});
            for (std::int64_t r = 0; r < p; ++r) {
                const ClassIndex stage = ClassIndex::of(r);
                EXPECT_EQ(gpipe.classes[stage].chunks.front().frame_count, m);
                EXPECT_EQ(one_f_one_b.classes[stage].chunks.front().frame_count, std::min(p - r, m));
            }
        }
    }
}

double flops_of(const Program& program, ActionKind kind) {
    double flops = 0;
    const RankClass& ranks = program.classes.front();
    for (const Action& action : ranks.actions) {
        if (action.kind != kind) continue;
        for (const Segment& segment : ranks.segment_lists[action.segments]) {
            for (const models::Operator& op : program.bodies[segment.body].operators) {
                if (op.is_matmul() || op.is_attention() || op.is_attention_product()) flops += op.flops;
            }
        }
    }
    return flops;
}

// 72 B L s h^2 (1 + s / (6h) + V / (12hL)) with the padded vocabulary; two thirds of it is the backward pass.
TEST(GoldenFlops, ASingleRanksFlopsMatchMegatronsClosedForm) {
    for (const char* name : {"gpt2", "gpt2-xl", "megatron-22b", "gpt3-175b"}) {
        constexpr std::int64_t kMicroBatches = 3;
        Plan plan = megatron_plan({name, 2, 1, 1}, "bf16");
        plan.training.sequence_length = plan.model.max_positions;
        plan.training.global_batch_size = 2 * kMicroBatches;
        const Program program = lower(plan);
        const auto s = static_cast<double>(plan.training.sequence_length);
        const auto h = static_cast<double>(plan.model.hidden);
        const auto layers = static_cast<double>(plan.model.layers);
        const auto vocab = static_cast<double>(
            models::padded_vocabulary(plan.model, plan.implementation.vocab_multiple, plan.parallelism.tp));
        const double closed =
            72 * 2 * kMicroBatches * layers * s * h * h * (1 + s / (6 * h) + vocab / (12 * h * layers));
        const double forward = flops_of(program, ActionKind::forward);
        const double backward = flops_of(program, ActionKind::backward);
        EXPECT_NEAR((forward + backward) / closed, 1, 1e-12) << name;
        EXPECT_NEAR(backward / forward, 2, 1e-12) << name;
        if (plan.model.vocab != static_cast<std::int64_t>(vocab)) continue;  // the convention does not count padding
        const double stated = models::model_flops_per_sequence(plan.model, plan.training.sequence_length,
                                                               models::FlopsConvention::full_attention);
        EXPECT_NEAR((forward + backward) / (2 * kMicroBatches * stated), 1, 1e-12) << name;
    }
}

}  // namespace
}  // namespace orrery::program
