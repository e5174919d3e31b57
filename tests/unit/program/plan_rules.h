// A rule of check_plan, given by a legal plan and a similar illegal plan.
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <ostream>
#include <string>

#include "core/error.h"
#include "sim/program/plan.h"

namespace orrery::program::rules {

using Change = std::function<void(Plan&)>;

inline models::ModelSpec with_experts(models::ModelSpec model) {
    model.family = "mixtral";
    model.mlp_bias = false;
    model.moe = {.expert_count = 8, .top_k = 2, .expert_ffn_hidden = 88};
    return model;
}

/// tiny-llama (4 layers, 4 heads, 2 key/value heads) on one rank, 16 micro-batches.
inline Plan one_rank() {
    Plan plan;
    plan.name = "rules";
    plan.model = models::load_model("tiny-llama");
    plan.implementation = models::load_implementation("orrery");
    plan.training.sequence_length = 64;
    plan.training.global_batch_size = 16;
    return plan;
}

/// Fills in the plan's stages and cluster if they are not set.
inline void complete(Plan& plan) {
    const std::int64_t stages = plan.parallelism.virtual_stages();
    if (plan.parallelism.stage_layers.empty() && stages <= plan.model.layers) {
        plan.parallelism.stage_layers = even_stages(plan.model.layers, stages);
    }
    if (plan.cluster.name.empty()) plan.cluster = topologies::load_cluster("dgx-h100", plan.parallelism.world_size());
}

inline std::string problem_of(const Change& change) {
    Plan plan = one_rank();
    change(plan);
    complete(plan);
    try {
        check_plan(plan, "test");
    } catch (const InputError& error) {
        return error.what();
    }
    return "";
}

struct Rule {
    const char* name;
    Change legal;
    Change illegal;
    const char* message;  // beginning of the error after "test: "
};
inline void PrintTo(const Rule& rule, std::ostream* out) {
    *out << rule.name;
}

inline std::string rule_name(const testing::TestParamInfo<Rule>& info) {
    return info.param.name;
}

inline void expect_rule(const Rule& rule) {
    EXPECT_EQ(problem_of(rule.legal), "");
    const std::string message = problem_of(rule.illegal);
    EXPECT_EQ(message.find(std::string("test: ") + rule.message), 0U) << message;
    EXPECT_NE(message.find("; allowed: "), std::string::npos) << message;
}

}  // namespace orrery::program::rules
