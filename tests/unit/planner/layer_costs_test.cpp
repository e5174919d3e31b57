#include "sim/planner/layer_costs.h"

#include <gtest/gtest.h>

#include <numeric>

#include "sim/planner/isolated_times.h"
#include "tests/unit/planner/planner_cases.h"
#include "topologies/cluster_variant.h"

namespace orrery::sim {
namespace {

void expect_equal(const LayerCost& a, const LayerCost& b) {
    EXPECT_EQ(a.forward_s, b.forward_s);
    EXPECT_EQ(a.backward_s, b.backward_s);
    EXPECT_EQ(a.input_gradient_s, b.input_gradient_s);
    EXPECT_EQ(a.saved_bytes, b.saved_bytes);
    EXPECT_EQ(a.forward_change.peak_bytes, b.forward_change.peak_bytes);
    EXPECT_EQ(a.backward_change.peak_bytes, b.backward_change.peak_bytes);
    EXPECT_EQ(a.backward_change.net_bytes, b.backward_change.net_bytes);
    EXPECT_EQ(a.dense_parameters, b.dense_parameters);
    EXPECT_EQ(a.expert_parameters, b.expert_parameters);
}

void expect_near(const LayerCost& a, const LayerCost& b) {
    for (const auto seconds : {&LayerCost::forward_s, &LayerCost::backward_s, &LayerCost::input_gradient_s,
                               &LayerCost::input_pass_s, &LayerCost::weight_pass_s}) {
        EXPECT_NEAR(a.*seconds, b.*seconds, 1e-9 * b.*seconds);
    }
    EXPECT_NEAR(a.wide_gradients_s, b.wide_gradients_s, 1e-9 * b.backward_s);
    EXPECT_NEAR(a.draws.seconds(), b.draws.seconds(), 1e-9 * b.draws.seconds());
    EXPECT_EQ(a.saved_bytes, b.saved_bytes);
    EXPECT_EQ(a.kept_bytes, b.kept_bytes);
    for (const auto change : {&LayerCost::forward_change, &LayerCost::backward_change}) {
        EXPECT_EQ((a.*change).net_bytes, (b.*change).net_bytes);
        EXPECT_EQ((a.*change).peak_bytes, (b.*change).peak_bytes);
    }
    EXPECT_EQ(a.dense_parameters, b.dense_parameters);
    EXPECT_EQ(a.expert_parameters, b.expert_parameters);
}

TEST(LayerCosts, OfAnyMicroBatchSizeFollowFromTwoLowerings) {
    for (const char* model : {"gpt2", "llama3-8b", "mixtral-8x7b", "deepseek-v3", "qwen3-30b-a3b", "bert-base"}) {
        for (const char* implementation : {"orrery", "megatron-core", "torch-fsdp2", "deepspeed"}) {
            const PlanRequest request = request_for(model, 8, 64, 512, implementation);
            const topologies::Cluster cluster(request.cluster);
            const RooflineCost cost(request.cluster);
            std::vector<Choice> choices{{},
                                        {.tp = 2, .sequence_parallel = true, .schedule = program::Schedule::zb_h1},
                                        {.cp = 2, .recompute = program::Recompute::selective},
                                        {.tp = 2, .sequence_parallel = true, .recompute = program::Recompute::full}};
            if (request.model.has_experts()) choices.push_back({.dp = 2, .ep = 2});
            for (Choice choice : choices) {
                LayerCosting costing(request, cluster, cost);
                for (const std::int64_t size : {8, 1, 2, 3, 32}) {
                    choice.micro_batch = size;
                    SCOPED_TRACE(std::string(model) + " " + implementation + " " + plan_of(request, choice).name);
                    const LayerCosts scaled = costing.all_costs(choice),
                                     lowered = layer_costs(request, cluster, cost, choice);
                    for (std::size_t kind = 0; kind < lowered.of_kind.size(); ++kind) {
                        SCOPED_TRACE(kind);
                        expect_near(scaled.of_kind[kind], lowered.of_kind[kind]);
                    }
                    EXPECT_EQ(scaled.block_transient_bytes, lowered.block_transient_bytes);
                    EXPECT_EQ(scaled.optimizer_elements, lowered.optimizer_elements);
                }
                // Whole backward passes with gradients of either type, and split ones.
                const std::int64_t programs = 2 + (row_of(choice.schedule).splits_backward() ? 1 : 0);
                EXPECT_EQ(costing.lowerings(), 2 * programs);
            }
        }
    }
}

/// Cuts share the lowered layers that are the same in all of them.
TEST(LayerCosts, DoNotDependOnTheCutsCostedBefore) {
    for (const char* model : {"llama3-8b", "mixtral-8x7b", "deepseek-v3"}) {
        for (const char* implementation : {"orrery", "megatron-core", "torch-fsdp2"}) {
            const PlanRequest request = request_for(model, 16, 64, 512, implementation);
            const topologies::Cluster cluster(request.cluster);
            const RooflineCost cost(request.cluster);
            std::vector<Choice> choices{{},
                                        {.micro_batch = 4},
                                        {.tp = 2},
                                        {.tp = 2, .recompute = program::Recompute::selective},
                                        {.tp = 2, .recompute = program::Recompute::full},
                                        {.tp = 2, .schedule = program::Schedule::zb_h1},
                                        {.tp = 2, .cp = 2}};
            if (request.model.has_experts()) {
                choices.push_back({.dp = 2, .ep = 2});
                choices.push_back({.dp = 4, .ep = 4});
                choices.push_back({.tp = 2, .ep = 2});
                choices.push_back({.tp = 2, .etp = 2});
            }
            for (Choice& choice : choices) choice.sequence_parallel = choice.tp > 1;
            if (!request.model.has_experts()) choices.push_back({.tp = 2});
            LayerCosting costing(request, cluster, cost);
            for (const Choice& choice : choices) {
                SCOPED_TRACE(std::string(model) + " " + implementation + " " + plan_of(request, choice).name);
                const LayerCosts among = costing.all_costs(choice), alone = layer_costs(request, cluster, cost, choice);
                ASSERT_EQ(among.of_kind.size(), alone.of_kind.size());
                for (std::size_t kind = 0; kind < alone.of_kind.size(); ++kind) {
                    SCOPED_TRACE(kind);
                    expect_near(among.of_kind[kind], alone.of_kind[kind]);
                }
                EXPECT_EQ(among.block_transient_bytes, alone.block_transient_bytes);
            }
        }
    }
}

/// 12 ranks on nodes of 8 exchange tokens in the least time if 6 are on each of two nodes.
TEST(LayerCosts, TokensTakeNoLongerThanInAnyPlaceOfTheirGroup) {
    for (const char* implementation : {"megatron-core", "megatron-core-flex"}) {
        PlanRequest request = request_for("kimi-k2", 24, 24, 4096, implementation);
        request.cluster = topologies::make_cluster(
            {.base = "dgx-h100", .device = "h800-sxm-80gb", .intra_node = "nvlink-400"}, request.devices);
        request.model.layers = 2;
        const topologies::Cluster cluster(request.cluster);
        const RooflineCost cost(request.cluster);
        program::Plan plan = plan_of(request, {.dp = 12, .ep = 12});
        const auto exchanges_s = [&] {
            const program::Program program = program::lower(plan);
            const program::RankClass& ranks = program.classes.front();
            const auto forward = std::ranges::find(ranks.actions, program::ActionKind::forward, &program::Action::kind);
            IsolatedTimes times(program, cluster, cost);
            return times.communication(0, forward->segments)[program::Stream::ep].seconds;
        };
        const double bound = exchanges_s();
        double least = std::numeric_limits<double>::infinity(), most = 0;
        for (std::int64_t first = 0; first < 8; ++first) {
            plan.parallelism.placement.resize(12);
            std::iota(plan.parallelism.placement.begin(), plan.parallelism.placement.end(), first);
            least = std::min(least, exchanges_s());
            most = std::max(most, exchanges_s());
        }
        EXPECT_EQ(bound, least) << implementation;
        EXPECT_GT(most, 1.02 * bound) << implementation;
    }
}

TEST(LayerCosts, OfAFewBlocksAreThoseOfEveryBlock) {
    for (const char* model : {"gpt2", "llama3-8b", "mixtral-8x7b", "deepseek-v3", "qwen3-30b-a3b", "bert-base"}) {
        for (const char* implementation : {"orrery", "megatron-core", "torch-fsdp2"}) {
            PlanRequest request = request_for(model, 8, 16, 512);
            request.implementation = models::load_implementation(implementation);
            if (request.model.has_experts() && request.model.moe.first_dense_layers > 0) {
                request.model.moe.layer_interval = 2;  // every second block after the dense ones has experts
                request.model.layers -= 1;
            }
            const topologies::Cluster cluster(request.cluster);
            const RooflineCost cost(request.cluster);
            std::vector<Choice> choices{{.micro_batch = 2},
                                        {.tp = 2, .sequence_parallel = true, .schedule = program::Schedule::zb_h1},
                                        {.cp = 2, .recompute = program::Recompute::selective},
                                        {.tp = 2, .sequence_parallel = true, .recompute = program::Recompute::full}};
            if (request.model.has_experts()) choices.push_back({.dp = 2, .ep = 2, .micro_batch = 2});
            for (const Choice& choice : choices) {
                SCOPED_TRACE(std::string(model) + " " + implementation + " " + plan_of(request, choice).name);
                const LayerCosts few = layer_costs(request, cluster, cost, choice);
                const LayerCosts every = layer_costs_of_every_block(request, cluster, cost, choice);
                const auto layers = static_cast<std::size_t>(request.model.layers + 2);
                ASSERT_EQ(few.kinds->layers(), layers);
                ASSERT_EQ(every.kinds->layers(), layers);
                for (std::size_t layer = 0; layer < layers; ++layer) {
                    SCOPED_TRACE(layer);
                    expect_equal(few.layer(layer), every.layer(layer));
                }
                EXPECT_EQ(few.parameters(0, layers), every.parameters(0, layers));
                EXPECT_EQ(few.total(&LayerCost::saved_bytes, 1, layers - 2),
                          every.total(&LayerCost::saved_bytes, 1, layers - 2));
                EXPECT_EQ(few.block_transient_bytes, every.block_transient_bytes);
                EXPECT_LE(few.optimizer_elements, every.optimizer_elements);
            }
        }
    }
}

}  // namespace
}  // namespace orrery::sim
