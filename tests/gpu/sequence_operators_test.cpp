// Operators on parts of a sequence, norms and residual sums, with the shapes and types of every lowering.
#include <set>
#include <string>
#include <vector>

#include "exec/operator_rows.h"
#include "kernels/cuda/positions.h"
#include "tests/gpu/operators_fixture.h"
#include "tests/unit/models/short_yarn.h"

namespace orrery::exec {
namespace {

using models::ModelSpec;
using models::OpKind;
using program::ContextParallel;
using program::samples::Sample;

/// The kinds of this file.
const std::set<OpKind>& kinds() {
    static const std::set<OpKind> all{
        OpKind::embedding_forward,    OpKind::embedding_backward, OpKind::position_forward,
        OpKind::position_backward,    OpKind::layer_norm_forward, OpKind::layer_norm_backward,
        OpKind::rms_norm_forward,     OpKind::rms_norm_backward,  OpKind::head_norm_forward,
        OpKind::head_norm_backward,   OpKind::rope_forward,       OpKind::rope_backward,
        OpKind::attention_forward,    OpKind::attention_backward, OpKind::attention_merge,
        OpKind::copy_columns,         OpKind::add_columns,        OpKind::repeat_heads,
        OpKind::sum_repeated_heads,   OpKind::cut_heads,          OpKind::join_heads,
        OpKind::join_sequence,        OpKind::cut_sequence,       OpKind::residual_add,
        OpKind::residual_add_backward};
    return all;
}

/// Few elements, and widths that are no multiples of a warp.
void shrink(ModelSpec& model) {
    model.layers = 2;
    model.hidden = 40;
    model.head_dim = 10;
    model.ffn_hidden = 24;
    model.vocab = 46;
}
void take_after_bloom(ModelSpec& model) {
    shrink(model);
    model.family = "bloom";
    model.position = models::PositionKind::alibi;
    model.embedding_norm = true;
}
void take_after_neox(ModelSpec& model) {
    shrink(model);
    model.family = "gpt_neox";
    model.position = models::PositionKind::rotary;
    model.parallel_residual = true;
    model.rotary_fraction = 0.4;
}
void take_after_opt(ModelSpec& model) {
    shrink(model);
    model.family = "opt";
    model.position_offset = 2;
}
void take_after_bert(ModelSpec& model) {
    shrink(model);
    model.causal = false;
}
void take_after_qwen3(ModelSpec& model) {
    shrink(model);
    model.family = "qwen3";
    model.qk_norm = true;
}
void slide(ModelSpec& model) {
    shrink(model);
    model.family = "mistral";
    model.sliding_window = 5;
}
void stretch(ModelSpec& model) {
    shrink(model);
    model.rope_scaling = test::short_yarn();
}
void take_latent(ModelSpec& model) {
    stretch(model);
    model.latent = {.q_lora_rank = 24, .kv_lora_rank = 16, .nope_head_dim = 9, .rope_head_dim = 6, .v_head_dim = 7};
    model.kv_heads = model.heads;
    model.head_dim = model.latent.nope_head_dim + model.latent.rope_head_dim;
}
/// Fewer key/value heads than ranks of Ulysses.
void share_keys(ModelSpec& model) {
    shrink(model);
    model.kv_heads = 1;
}
/// Heads of more than 64 and of more than 128 elements.
template <std::int64_t kHeadDim>
void widen(ModelSpec& model) {
    shrink(model);
    model.heads = 2;
    model.kv_heads = 1;
    model.head_dim = kHeadDim;
}

struct Case {
    const char* name;
    Sample sample;
    std::vector<const char*> kinds;  // some of those that the plan must have
};

Sample parts(const char* model, void (*adjust)(ModelSpec&), Sample sample) {
    sample.model = model;
    sample.adjust = adjust;
    sample.sequence_length = 6 * sample.cp * sample.tp;
    sample.micro_batch_size = 3;
    sample.micro_batches = 1;
    return sample;
}

std::vector<Case> cases() {
    constexpr auto kUlysses = ContextParallel::ulysses;
    constexpr auto kGathered = ContextParallel::all_gather;
    const Sample alone, ring{.cp = 2}, gathered{.cp = 3, .context_parallel = kGathered},
        ulysses{.cp = 2, .context_parallel = kUlysses}, sharded{.tp = 2, .sequence_parallel = true, .cp = 2};
    Sample dropping, dropping_ring = ring, dropping_sharded = sharded, dropping_ulysses = ulysses;
    for (Sample* sample : {&dropping, &dropping_ring, &dropping_sharded, &dropping_ulysses}) sample->dropout = 0.3;
    return {
        {"gpt", parts("tiny-gpt", shrink, alone), {"layer_norm_backward", "position_backward", "embedding_backward"}},
        {"gpt_sharded", parts("tiny-gpt", shrink, sharded), {"position_forward", "attention_merge"}},
        {"gpt_dropping", parts("tiny-gpt", shrink, dropping), {"residual_add_backward"}},
        {"gpt_dropping_ring", parts("tiny-gpt", shrink, dropping_ring), {"residual_add_backward"}},
        {"gpt_dropping_sharded", parts("tiny-gpt", shrink, dropping_sharded), {"residual_add_backward"}},
        {"opt_ring", parts("tiny-gpt", take_after_opt, ring), {"position_forward", "position_backward"}},
        {"bert", parts("tiny-gpt", take_after_bert, alone), {"attention_backward"}},
        {"bloom_ring", parts("tiny-gpt", take_after_bloom, ring), {"attention_backward"}},
        {"bloom_ulysses", parts("tiny-gpt", take_after_bloom, dropping_ulysses), {"attention_backward", "cut_heads"}},
        {"neox_sharded", parts("tiny-gpt", take_after_neox, sharded), {"rope_backward", "add_columns"}},
        {"neox_dropping", parts("tiny-gpt", take_after_neox, dropping), {"rope_backward", "residual_add_backward"}},
        {"llama_gathered", parts("tiny-llama", shrink, gathered), {"attention_backward", "copy_columns"}},
        {"llama_ulysses",
         parts("tiny-llama", share_keys, ulysses),
         {"repeat_heads", "sum_repeated_heads", "join_heads", "join_sequence", "cut_sequence"}},
        {"qwen3", parts("tiny-llama", take_after_qwen3, alone), {"head_norm_forward", "head_norm_backward"}},
        {"window", parts("tiny-llama", slide, alone), {"attention_backward"}},
        {"window_gathered", parts("tiny-llama", slide, gathered), {"attention_backward"}},
        {"yarn_sharded", parts("tiny-llama", stretch, sharded), {"rope_backward"}},
        {"latent", parts("tiny-llama", take_latent, alone), {"rope_forward", "rope_backward", "attention_backward"}},
        {"latent_ring", parts("tiny-llama", take_latent, ring), {"attention_backward", "attention_merge"}},
        {"latent_ulysses", parts("tiny-llama", take_latent, ulysses), {"cut_heads"}},
        {"heads_of_70", parts("tiny-llama", widen<70>, alone), {"attention_backward"}},
        {"heads_of_250", parts("tiny-llama", widen<250>, alone), {"attention_backward"}},
    };
}

void expect_same_positions(const std::vector<kernels::PositionRun>& runs) {
    const kernels::cuda::PositionRuns compact(runs);
    ASSERT_EQ(compact.count(), static_cast<std::int64_t>(runs.size()));
    std::int64_t index = 0;
    for (std::size_t i = 0; i < runs.size(); ++i) {
        EXPECT_EQ(compact[static_cast<std::int64_t>(i)].first, runs[i].first);
        EXPECT_EQ(compact[static_cast<std::int64_t>(i)].count, runs[i].count);
        for (std::int64_t j = 0; j < runs[i].count; ++j) EXPECT_EQ(compact.position(index++), runs[i].first + j);
    }
    EXPECT_EQ(compact.positions(), index);
}

class SequenceOperatorsOnGpu : public OperatorsOnGpu {
  protected:
    void compare_cases(bool bf16) {
        for (const Case& one : cases()) {
            SCOPED_TRACE(one.name);
            Sample sample = one.sample;
            sample.bf16 = bf16;
            seen_.clear();
            compare_all(sample, kinds());
            if (HasFatalFailure()) return;
            for (const char* kind : one.kinds) EXPECT_TRUE(seen_.contains(kind)) << kind;
        }
    }
};

/// Kernels take the runs of any degree of context parallelism in a form of fixed size.
TEST(PositionRunsTest, HoldThePositionsOfOneRankAndOfAll) {
    for (const std::int64_t ranks : {1, 2, 3, 64}) {
        std::vector<kernels::PositionRun> runs;
        for (std::int64_t rank = 0; rank < ranks; ++rank) {
            const std::vector<kernels::PositionRun> own = positions_of_rank(10 * ranks, ranks, rank);
            runs.insert(runs.end(), own.begin(), own.end());
            expect_same_positions(own);
        }
        expect_same_positions(runs);
    }
    expect_same_positions(std::vector<kernels::PositionRun>{{4, 1}, {15, 5}});
    expect_same_positions({});
    const std::vector<kernels::PositionRun> irregular{{0, 2}, {10, 2}, {4, 3}};
    EXPECT_THROW(kernels::cuda::PositionRuns{irregular}, BugError);
}

TEST_F(SequenceOperatorsOnGpu, MatchTheCpu) {
    compare_cases(false);
}
TEST_F(SequenceOperatorsOnGpu, MatchTheCpuInBf16) {
    compare_cases(true);
}

}  // namespace
}  // namespace orrery::exec
