// What implementations state that they support, and that plans are checked against it.
#include <gtest/gtest.h>

#include <map>
#include <nlohmann/json.hpp>
#include <optional>

#include "core/error.h"
#include "core/file.h"
#include "sim/program/plan.h"
#include "sim/program/plan_names.h"

namespace orrery::program {
namespace {

using Json = nlohmann::json;

/// Sets one value of a plan by its JSON pointer; knows the pointers in impossible_configurations.json.
void set(Plan& plan, const std::string& pointer, const Json& value) {
    Parallelism& p = plan.parallelism;
    MemorySavings& memory = plan.training.memory;
    const std::map<std::string, std::int64_t*> integers{{"/parallelism/tp", &p.tp},
                                                        {"/parallelism/pp", &p.pp},
                                                        {"/parallelism/dp", &p.dp},
                                                        {"/parallelism/cp", &p.cp},
                                                        {"/parallelism/ep", &p.ep},
                                                        {"/parallelism/etp", &p.etp},
                                                        {"/parallelism/chunks", &p.chunks},
                                                        {"/parallelism/dp_shard", &p.dp_shard},
                                                        {"/training/memory/offload_layers", &memory.offload_layers},
                                                        {"/cluster/nodes", &plan.cluster.nodes}};
    const std::map<std::string, bool*> booleans{
        {"/parallelism/sequence_parallel", &p.sequence_parallel},
        {"/training/memory/offload_optimizer", &memory.offload_optimizer},
        {"/training/memory/offload_parameters", &memory.offload_parameters},
        {"/training/optimizer/post_validation", &plan.training.optimizer.post_validation}};
    if (const auto one = integers.find(pointer); one != integers.end()) {
        *one->second = value.get<std::int64_t>();
    } else if (const auto two = booleans.find(pointer); two != booleans.end()) {
        *two->second = value.get<bool>();
    } else if (pointer == "/parallelism/schedule") {
        p.schedule = schedule_named(value.get<std::string>());
    } else if (pointer == "/parallelism/data_parallel") {
        p.data_parallel = data_parallel_named(value.get<std::string>());
    } else if (pointer == "/parallelism/context_parallel") {
        p.context_parallel = value_named<ContextParallel>(value.get<std::string>()).value();
    } else if (pointer == "/parallelism/vocabulary_parallel") {
        p.vocabulary_parallel = value_named<VocabularyParallel>(value.get<std::string>()).value();
    } else if (pointer == "/training/memory/recompute") {
        memory.recompute = recompute_named(value.get<std::string>());
    } else if (pointer == "/training/memory/recompute_parts") {
        memory.recompute = Recompute::selective;
        memory.recompute_parts = value.get<std::vector<std::string>>();
    } else if (pointer == "/training/precision/fp8") {
        plan.training.precision.fp8 = value_named<Fp8Scaling>(value.get<std::string>()).value();
    } else if (pointer == "/training/precision/activation") {
        plan.training.precision.activation = dtype_named(value.get<std::string>()).value();
    } else if (pointer == "/training/precision/moments") {
        plan.training.precision.moments = dtype_named(value.get<std::string>()).value();
    } else {
        FAIL() << "a pointer that this test does not know: " << pointer;
    }
}

/// The first name that the list states, if it states single ones.
std::optional<std::string> first_of(const std::vector<std::string>& list) {
    if (list.empty() || models::Support::states_all(list)) return std::nullopt;
    return list.front();
}

/// The smallest plan that the implementation supports: one rank, or two with torch DataParallel.
Plan least_plan(const std::string& implementation) {
    Plan plan;
    plan.implementation = models::load_implementation(implementation);
    const models::Support& supports = plan.implementation.supports;
    if (const auto name = first_of(supports.precisions))
        plan.training.precision.activation = dtype_named(*name).value();
    if (const auto name = first_of(supports.schedules)) plan.parallelism.schedule = schedule_named(*name);
    if (const auto name = first_of(supports.context_parallel)) {
        plan.parallelism.context_parallel = value_named<ContextParallel>(*name).value();
    }
    if (const auto name = first_of(supports.data_parallel)) plan.parallelism.data_parallel = data_parallel_named(*name);
    return plan;
}

std::string refusal_of(const Plan& plan) {
    try {
        check_support(plan, "the plan");
    } catch (const InputError& error) {
        return error.what();
    }
    return "";
}

TEST(Support, IsStatedByEveryImplementationInThePlansNames) {
    for (const std::string& name : models::implementation_names()) {
        const Plan plan = least_plan(name);
        EXPECT_FALSE(plan.implementation.supports.source.empty()) << name;
        EXPECT_EQ(refusal_of(plan), "") << name;
        const std::string text = models::to_json_text(plan.implementation);
        EXPECT_EQ(models::implementation_from_json_text(text, name), plan.implementation) << name;
    }
}

TEST(Support, ForbidsConfigurationsThatFrameworksCannotRun) {
    const std::string file = std::string(ORRERY_SOURCE_DIR) + "/tests/unit/program/impossible_configurations.json";
    std::map<std::string, int> counts;
    for (const Json& one : Json::parse(read_text_file(file))) {
        const std::string implementation = one.at("implementation"), pointer = one.at("pointer");
        SCOPED_TRACE(implementation + ": " + one.at("what").get<std::string>());
        EXPECT_FALSE(one.at("source").get<std::string>().empty());
        Plan plan = least_plan(implementation);
        for (const auto& [key, value] : one.at("with").items()) set(plan, key, value);
        EXPECT_EQ(refusal_of(plan), "") << "the rest of the configuration must be supported";
        set(plan, pointer, one.at("value"));
        const std::string refusal = refusal_of(plan);
        EXPECT_EQ(refusal.rfind("the plan: " + pointer, 0), 0U) << refusal;
        EXPECT_NE(refusal.find("implementation \"" + implementation + "\""), std::string::npos) << refusal;
        ++counts[implementation];
    }
    for (const std::string& name : models::implementation_names()) {
        if (name == "orrery") continue;  // supports every legal plan
        EXPECT_GE(counts[name], 5) << name;
    }
}

TEST(Support, WithoutAStatementNothingIsRefused) {
    Plan plan = least_plan("torch-dp");
    plan.parallelism.tp = 8;
    EXPECT_NE(refusal_of(plan), "");
    plan.implementation.supports = {};
    EXPECT_EQ(refusal_of(plan), "");
}

TEST(Support, MisspeltNamesAreRefused) {
    Plan plan = least_plan("torch-ddp");
    plan.implementation.supports.axes = {"tp", "pipeline"};
    const std::string refusal = refusal_of(plan);
    EXPECT_NE(refusal.find("/implementation/supports/axes/1: got \"pipeline\""), std::string::npos) << refusal;
}

TEST(Support, AllStandsForEveryNameAndStandsAlone) {
    Plan plan = least_plan("megatron-core");
    plan.parallelism.pp = 2;
    plan.parallelism.schedule = Schedule::dualpipe;
    EXPECT_NE(refusal_of(plan), "");
    plan.implementation.supports.schedules = {"all"};
    EXPECT_EQ(refusal_of(plan), "");
    plan.implementation.supports.schedules = {"1f1b", "all"};
    EXPECT_NE(refusal_of(plan).find("/implementation/supports/schedules/1: got \"all\""), std::string::npos)
        << refusal_of(plan);
    plan.implementation.supports.schedules = {"all"};
    plan.implementation.supports.data_parallel = {"all"};
    plan.implementation.supports.data_parallel_of_pipelines = {"zero4"};
    EXPECT_NE(refusal_of(plan).find("/supports/data_parallel_of_pipelines/0: got \"zero4\""), std::string::npos)
        << refusal_of(plan);
}

TEST(Support, IsReadWithItsSource) {
    const std::string text =
        R"({"schema": "orrery.implementation/1", "name": "mine", "version": "1", "source": "here", "supports": {"axes": []}})";
    try {
        (void)models::implementation_from_json_text(text, "mine.json");
        FAIL() << "a statement without a source was accepted";
    } catch (const InputError& error) {
        EXPECT_NE(std::string(error.what()).find("/supports/source"), std::string::npos) << error.what();
    }
}

}  // namespace
}  // namespace orrery::program
