// Embedding and head sharded over the stages of a pipeline.
#include <algorithm>

#include "tests/parity/plans.h"

namespace orrery::parity {
namespace {

using program::DataParallel;
using program::VocabularyParallel;

/// Pads so little that every stage has real tokens; if their number is odd, the last stage has a padding row.
void pad_little(models::Implementation& implementation) {
    implementation.vocab_multiple = 1;
}
void pad_little_and_overlap_nothing(models::Implementation& implementation) {
    pad_little(implementation);
    implementation.data_parallel.overlaps_backward = false;
    implementation.pipeline.posts_receives_ahead = false;
    implementation.host.waits_for_transfers = true;
}
void pad_little_and_shards_a_lot(models::Implementation& implementation) {
    pad_little(implementation);
    implementation.data_parallel.shard_alignment_elements = 48;
    implementation.data_parallel.bucket_bytes = 40'000;
}

/// Cases that are run with each kind of vocabulary parallelism.
std::vector<Case> of_each_kind() {
    const Shape pp2{.name = "pp2", .pp = 2, .adjust = pad_little};
    const Shape pp4{.name = "pp4", .pp = 4, .adjust = pad_little};
    const Shape dp2_pp2{.name = "dp2_pp2", .dp = 2, .pp = 2, .adjust = pad_little};
    const Shape zero1{.name = "dp2_pp2_zero1",
                      .dp = 2,
                      .pp = 2,
                      .data_parallel = DataParallel::zero1,
                      .adjust = pad_little_and_shards_a_lot};
    Shape bf16 = dp2_pp2;
    bf16.name = "bf16_dp2_pp2";
    bf16.precision = "bf16";
    return {
        {"tiny-gpt", pp2},
        {"tiny-gpt", pp4},
        {"tiny-gpt", dp2_pp2},
        {"tiny-gpt", {.name = "pp2_one_micro_batch", .pp = 2, .micro_batch_size = 8}},  // stage 1 has only padding
        {"tiny-gpt-clipped", zero1},
        {"tiny-gpt-odd-vocab", pp2},
        {"tiny-gpt-untied", dp2_pp2},
        {"tiny-llama", pp4},
        {"tiny-llama", zero1},
        {"tiny-llama", bf16},
        {"tiny-llama-odd-vocab", pp4},
        {"tiny-llama-tied", zero1},
    };
}

}  // namespace

std::vector<Case> vocabulary_cases() {
    std::vector<Case> cases;
    for (const VocabularyParallel kind :
         {VocabularyParallel::two_barriers, VocabularyParallel::one_barrier, VocabularyParallel::interlaced}) {
        const auto add = [&](Case one) {
            one.shape.vocabulary_parallel = kind;
            std::string name = name_of(kind);
            std::replace(name.begin(), name.end(), '-', '_');
            one.shape.name += "_" + name;
            cases.push_back(std::move(one));
        };
        for (const Case& one : of_each_kind()) add(one);
    }
    const auto add = [&](Case one) {
        one.shape.name += "_vocab_2";
        one.shape.vocabulary_parallel = VocabularyParallel::one_barrier;
        cases.push_back(std::move(one));
    };
    add({"tiny-gpt", {.name = "pp3_uneven", .pp = 3, .micro_batch_size = 2, .stage_layers = {1, 2, 1}}});
    add({"tiny-gpt", {.name = "dp2_pp4", .dp = 2, .pp = 4, .adjust = pad_little}});
    add({"tiny-gpt-clipped-sgd", {.name = "dp2_pp2", .dp = 2, .pp = 2, .adjust = pad_little}});
    add({"tiny-gpt-bloom", {.name = "pp2", .pp = 2, .adjust = pad_little}});
    add({"tiny-gpt-opt",
         {.name = "dp2_pp2_overlapping_nothing", .dp = 2, .pp = 2, .adjust = pad_little_and_overlap_nothing}});
    add({"tiny-llama",
         {.name = "pp2_recompute_full",
          .pp = 2,
          .memory = {.recompute = program::Recompute::full},
          .adjust = pad_little}});
    add({"tiny-gpt",
         {.name = "dp2_pp2_offload_optimizer",
          .dp = 2,
          .pp = 2,
          .memory = {.offload_optimizer = true},
          .adjust = pad_little}});
    add({"tiny-mixtral-clipped", {.name = "dp2_pp2_ep2", .dp = 2, .pp = 2, .ep = 2, .adjust = pad_little}});
    return cases;
}

}  // namespace orrery::parity
