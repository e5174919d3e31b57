// Random legal plans round-trip through JSON, and the JSON conforms to the published schema.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <set>

#include "core/error.h"
#include "core/random.h"
#include "tests/house/json_schema.h"
#include "tests/unit/program/plan_rules.h"

namespace orrery::program {
namespace {

class PlanMaker {
  public:
    explicit PlanMaker(std::uint64_t seed) : random_(seed, "random plans") {
        for (const char* name : {"tiny-llama", "tiny-gpt", "qwen3-30b-a3b", "deepseek-v3", "bert-base"}) {
            models_.push_back(models::load_model(name));
        }
        models_.push_back(rules::with_experts(models_.front()));
        for (const char* name : {"dgx-b200", "dgx-h100", "dgx1-v100"}) {
            clusters_.push_back(topologies::load_cluster(name, 1));
        }
        for (const char* name : {"orrery", "megatron-lm-2022"}) {
            implementations_.push_back(models::load_implementation(name));
        }
    }

    /// The next plan, which is often illegal.
    Plan make() {
        Plan plan;
        plan.name = "random";
        plan.model = one_of(models_);
        plan.implementation = one_of(implementations_);
        fill(plan.parallelism, plan.model);
        fill(plan.training, plan.implementation);
        plan.cluster = one_of(clusters_);
        const std::int64_t world = plan.parallelism.world_size();
        plan.cluster.nodes = std::max<std::int64_t>(1, world / plan.cluster.devices_per_node);
        if (happens(4)) {
            for (std::int64_t rank = 0; rank < world; ++rank) plan.parallelism.placement.push_back(world - 1 - rank);
        }
        plan.origins = {{"/parallelism/tp", "planner"}, {"/model", "file: a\"b\\c.json"}};
        return plan;
    }

  private:
    std::int64_t pick(std::uint64_t bound) { return static_cast<std::int64_t>(random_.below(draw_++, bound)); }
    bool happens(std::uint64_t once_in) { return pick(once_in) == 0; }
    template <typename List>
    typename List::value_type one_of(const List& list) {
        return *(std::begin(list) + pick(std::size(list)));
    }
    std::int64_t degree() { return one_of(std::array<std::int64_t, 6>{1, 1, 1, 2, 2, 4}); }

    void fill(Parallelism& p, const models::ModelSpec& model) {
        p.dp = degree(), p.tp = degree(), p.pp = degree(), p.cp = degree();
        if (model.has_experts()) p.ep = degree(), p.etp = degree();
        p.sequence_parallel = p.tp > 1 && happens(2);
        p.context_parallel = static_cast<ContextParallel>(pick(3));
        p.schedule = static_cast<Schedule>(pick(kScheduleCount));
        const bool two = p.schedule == Schedule::interleaved || p.schedule == Schedule::zb_v ||
                         p.schedule == Schedule::dualpipe || p.schedule == Schedule::dualpipe_v;
        p.chunks = two ? 2 : 1;
        if (p.schedule == Schedule::interleaved && happens(2)) p.interleave_group = p.pp;
        if (p.virtual_stages() <= model.layers) p.stage_layers = even_stages(model.layers, p.virtual_stages());
        if (p.stage_layers.size() > 1 && happens(2)) {
            ++p.stage_layers.front();
            --p.stage_layers.back();
        }
        p.data_parallel = static_cast<DataParallel>(pick(5));
        if (p.shards_optimizer() && happens(2)) p.dp_shard = degree();
        p.reshard_after_forward = happens(2);
        p.reduces_every_micro_batch = happens(4);
        for (std::size_t i = 0; happens(2) && i < p.order.size(); ++i) {
            std::swap(p.order[i], p.order[static_cast<std::size_t>(pick(p.order.size()))]);
        }
    }

    void fill(Training& t, const models::Implementation& implementation) {
        t.sequence_length = 16 * (1 + pick(4));
        t.micro_batch_size = 1 + pick(2);
        t.global_batch_size = 64;
        t.precision = precision_named(one_of(precision_names()), implementation);
        t.precision.fp8_parameters = t.precision.fp8 != Fp8Scaling::none && happens(2);
        if (t.precision.fp8 != Fp8Scaling::none) t.precision.fp8 = static_cast<Fp8Scaling>(1 + pick(5));
        if (happens(3)) t.precision.reduction = DType::bf16;
        t.optimizer = {.kind = static_cast<OptimizerKind>(pick(3)),
                       .learning_rate = random_.uniform(draw_++),
                       .beta1 = random_.uniform(draw_++),
                       .beta2 = random_.uniform(draw_++),
                       .epsilon = 1e-12,
                       .momentum = random_.uniform(draw_++),
                       .weight_decay = random_.uniform(draw_++),
                       .clip_norm = random_.uniform(draw_++) * 10};
        MemorySavings& m = t.memory;
        m.recompute = static_cast<Recompute>(pick(3));
        if (m.recompute == Recompute::full) m.recompute_layers = pick(3) - 1;
        if (m.recompute == Recompute::full) m.shards_checkpoints = happens(4);
        if (m.recompute == Recompute::selective && happens(2)) m.recompute_parts = {"norm", "attention_core"};
        if (happens(8)) m.offload_layers = 1;
        m.offload_optimizer = happens(4);
        m.offload_parameters = happens(8);
        if (happens(2))
            t.expert_load = {1 + random_.uniform(draw_++), 1.25, happens(2), 4.0 * random_.uniform(draw_++)};
        if (t.expert_load.largest < 1) t.expert_load.largest = 0;
        t.dropout = random_.uniform(draw_++);
        t.seed = random_.bits(draw_++) >> 1;
    }

    RandomStream random_;
    std::uint64_t draw_ = 0;
    std::vector<models::ModelSpec> models_;
    std::vector<topologies::ClusterSpec> clusters_;
    std::vector<models::Implementation> implementations_;
};

TEST(RandomPlans, RoundTripThroughJson) {
    const house::SchemaSet schemas = house::repository_schemas(ORRERY_SOURCE_DIR);
    PlanMaker maker(11);
    constexpr int kPlans = 300;
    int legal = 0;
    std::set<Schedule> schedules;
    std::set<DataParallel> kinds;
    for (int round = 0; round < 40000 && legal < kPlans; ++round) {
        const Plan plan = maker.make();
        try {
            check_plan(plan, "random");
        } catch (const InputError&) {
            continue;
        }
        ++legal;
        schedules.insert(plan.parallelism.schedule);
        kinds.insert(plan.parallelism.data_parallel);
        const std::string text = to_json_text(plan);
        ASSERT_EQ(plan_from_json_text(text, "again"), plan) << text;
        if (legal % 10 == 0) {
            ASSERT_EQ(schemas.check(text), "") << text;
        }
    }
    EXPECT_EQ(legal, kPlans);
    EXPECT_EQ(schedules.size(), static_cast<std::size_t>(kScheduleCount));
    EXPECT_EQ(kinds.size(), 5U);
}

}  // namespace
}  // namespace orrery::program
