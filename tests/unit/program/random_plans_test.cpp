// Every random plan that check_plan accepts is lowered to a Program that passes validate().
#include "tests/unit/program/random_plans.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <map>
#include <string>

#include "sim/program/program.h"

namespace orrery::program {
namespace {

using models::BlockPart;

/// Techniques by name, with tests of whether a plan uses them.
const std::map<std::string, std::function<bool(const Plan&)>>& techniques() {
    using P = const Plan&;
    static const std::map<std::string, std::function<bool(P)>> all{
        {"tensor parallelism", [](P p) { return p.parallelism.tp > 1 && !p.parallelism.sequence_parallel; }},
        {"sequence parallelism", [](P p) { return p.parallelism.sequence_parallel; }},
        {"ring", [](P p) { return p.parallelism.cp > 1 && p.parallelism.context_parallel == ContextParallel::ring; }},
        {"all-gathered keys",
         [](P p) { return p.parallelism.cp > 1 && p.parallelism.context_parallel == ContextParallel::all_gather; }},
        {"ulysses",
         [](P p) { return p.parallelism.cp > 1 && p.parallelism.context_parallel == ContextParallel::ulysses; }},
        {"expert parallelism", [](P p) { return p.parallelism.ep > 1; }},
        {"expert tensor parallelism", [](P p) { return p.parallelism.etp > 1; }},
        {"copied key/value heads", [](P p) { return p.parallelism.tp > p.model.kv_heads; }},
        {"latent attention", [](P p) { return p.model.has_latent_attention(); }},
        {"shared experts", [](P p) { return p.model.moe.shared_ffn_hidden > 0; }},
        {"parallel residual", [](P p) { return p.model.parallel_residual; }},
        {"post norm", [](P p) { return p.model.post_norm; }},
        {"tied over ranks",
         [](P p) {
             return p.model.tied_embeddings && p.parallelism.pp > 1 && p.parallelism.schedule < Schedule::zb_v;
         }},
        {"tied on a rank",
         [](P p) {
             return p.model.tied_embeddings && p.parallelism.pp > 1 && p.parallelism.schedule >= Schedule::zb_v;
         }},
        {"uneven stages",
         [](P p) { return p.parallelism.stage_layers != even_stages(p.model.layers, p.parallelism.virtual_stages()); }},
        {"empty stage",
         [](P p) { return p.parallelism.stage_layers.front() == 0 || p.parallelism.stage_layers.back() == 0; }},
        {"vocabulary over stages", [](P p) { return p.parallelism.vocabulary_parallel != VocabularyParallel::none; }},
        {"torch DataParallel", [](P p) { return p.parallelism.data_parallel == DataParallel::dp; }},
        {"ddp", [](P p) { return p.parallelism.data_parallel == DataParallel::ddp && p.parallelism.dp > 1; }},
        {"zero1", [](P p) { return p.parallelism.data_parallel == DataParallel::zero1 && p.parallelism.dp > 1; }},
        {"zero2", [](P p) { return p.parallelism.data_parallel == DataParallel::zero2 && p.parallelism.dp > 1; }},
        {"zero3", [](P p) { return p.parallelism.data_parallel == DataParallel::zero3 && p.parallelism.dp > 1; }},
        {"several sets of shards",
         [](P p) { return p.parallelism.dp_shard > 0 && p.parallelism.dp_shard < p.parallelism.gradient_ranks(); }},
        {"full recomputation", [](P p) { return p.training.memory.recompute == Recompute::full; }},
        {"selective recomputation", [](P p) { return p.training.memory.recompute == Recompute::selective; }},
        {"sharded checkpoints", [](P p) { return p.training.memory.shards_checkpoints; }},
        {"offloaded activations", [](P p) { return p.training.memory.offload_layers > 0; }},
        {"offloaded optimizer", [](P p) { return p.training.memory.offload_optimizer; }},
        {"offloaded parameters", [](P p) { return p.training.memory.offload_parameters; }},
        {"fp8", [](P p) { return p.training.precision.fp8 != Fp8Scaling::none; }},
        {"fp8 gathers", [](P p) { return p.training.precision.fp8_parameters; }},
        {"loss scaling", [](P p) { return p.training.precision.loss_scaling; }},
        {"moments in bf16", [](P p) { return p.training.precision.moments == DType::bf16; }},
        {"moments in bf16 on the host",
         [](P p) { return p.training.precision.moments == DType::bf16 && p.training.memory.offload_optimizer; }},
        {"post-validation", [](P p) { return p.training.optimizer.post_validation && p.training.checks_gradients(); }},
        {"dropout", [](P p) { return p.training.dropout > 0; }},
        {"pipelined gathers",
         [](P p) { return p.parallelism.sequence_parallel && p.implementation.tensor_parallel.pipelined_gather; }},
        {"scattered transfers",
         [](P p) {
             return p.parallelism.pp > 1 && p.parallelism.tp > 1 && p.implementation.pipeline.scatters_transfers;
         }},
        {"reduction every micro-batch",
         [](P p) { return p.parallelism.reduces_every_micro_batch && !p.parallelism.shards_gradients(); }},
    };
    return all;
}

TEST(RandomPlanLowering, ProgramsAreValid) {
    constexpr int kPlans = 3000;
    constexpr int kOften = 20;
    samples::RandomPlans maker(20'240'601);
    std::map<std::string, int> met;
    int legal = 0;
    for (int round = 0; round < kPlans; ++round) {
        Plan plan = maker.make();
        const bool has_moments = plan.training.optimizer.kind != OptimizerKind::sgd_momentum;
        if (has_moments && round % 3 == 0) plan.training.precision.moments = DType::bf16;
        try {
            check_plan(plan, "random");
        } catch (const InputError&) {
            continue;
        }
        ++legal;
        ++met[name_of(plan.parallelism.schedule) + (plan.parallelism.pp > 1 ? "" : " on one rank")];
        for (const auto& [name, uses] : techniques()) met[name] += uses(plan) ? 1 : 0;
        ASSERT_NO_THROW(validate(lower(plan))) << "plan " << round << ": " << to_json_text(plan);
    }
    EXPECT_GE(legal, kPlans * 2 / 5);
    for (const auto& [name, uses] : techniques()) EXPECT_GE(met[name], kOften) << name;
    for (int schedule = 0; schedule < kScheduleCount; ++schedule) {
        const std::string name = name_of(static_cast<Schedule>(schedule));
        EXPECT_GE(met[name], kOften) << name;
    }
}

/// In the first step DDP has one bucket, since it does not know yet in which order gradients become ready.
TEST(RandomPlanLowering, ProgramsOfFirstStepsAreValid) {
    samples::RandomPlans maker(7);
    for (int round = 0; round < 100; ++round) {
        const Plan plan = maker.make_legal();
        ASSERT_NO_THROW(validate(lower(plan, StepKind::first))) << "plan " << round << ": " << to_json_text(plan);
    }
}

TEST(RandomPlanLowering, PlansDependOnlyOnTheSeed) {
    samples::RandomPlans one(3), same(3), other(4);
    bool differs = false;
    for (int round = 0; round < 20; ++round) {
        const Plan plan = one.make();
        EXPECT_EQ(plan, same.make());
        differs = differs || plan != other.make();
    }
    EXPECT_TRUE(differs);
}

TEST(RandomPlanLowering, NoTwoBodiesAreEqual) {
    samples::RandomPlans random(29);
    for (int i = 0; i < 100; ++i) {
        const Program program = lower(random.make_legal());
        for (auto body = program.bodies.begin(); body != program.bodies.end(); ++body) {
            ASSERT_EQ(std::find(program.bodies.begin(), body, *body), body)
                << "plan " << i << ", body " << body - program.bodies.begin();
        }
    }
}

}  // namespace
}  // namespace orrery::program
