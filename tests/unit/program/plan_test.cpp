#include "sim/program/plan.h"

#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>
#include <numeric>

#include "core/error.h"
#include "core/file.h"
#include "tests/unit/core/test_folder.h"

namespace orrery::program {
namespace {

using nlohmann::ordered_json;

/// 2x2x2 of tiny-llama on one node of a cluster with a device a rank.
ordered_json written_by_hand() {
    return ordered_json::parse(R"({"schema": "orrery.plan/1", "name": "by hand", "model": "tiny-llama",
        "cluster": "dgx-h100", "parallelism": {"dp": 2, "tp": 2, "pp": 2},
        "training": {"sequence_length": 32, "global_batch_size": 8}})");
}
Plan parse(const ordered_json& json) {
    return plan_from_json_text(json.dump(), "p.json");
}
std::string error_of(const ordered_json& json) {
    return message_of<InputError>([&] { (void)parse(json); });
}
ordered_json with(const std::string& pointer, const ordered_json& value) {
    ordered_json json = written_by_hand();
    json[ordered_json::json_pointer(pointer)] = value;
    return json;
}

TEST(EvenStages, GivesTheRemainderToTheFirst) {
    EXPECT_EQ(even_stages(8, 4), (std::vector<std::int64_t>{2, 2, 2, 2}));
    EXPECT_EQ(even_stages(7, 3), (std::vector<std::int64_t>{3, 2, 2}));
    EXPECT_EQ(even_stages(5, 1), (std::vector<std::int64_t>{5}));
    EXPECT_THROW((void)even_stages(4, 5), InputError);
    EXPECT_THROW((void)even_stages(4, 0), InputError);
}

TEST(Precisions, HaveNames) {
    EXPECT_EQ(precision_named("fp32"), Precision{});
    EXPECT_EQ(precision_named("bf16"), (Precision{DType::bf16, DType::bf16, DType::fp32, true}));
    EXPECT_EQ(name_of(precision_named("fp32")), "fp32");
    EXPECT_EQ(name_of(precision_named("bf16")), "bf16");
    EXPECT_EQ(name_of(Precision{DType::fp16, DType::fp16, DType::fp16, true}),
              "fp16 parameters, fp16 activations, fp16 gradients, fp32 master weights");
    EXPECT_THROW((void)precision_named("fp8"), InputError);
}

TEST(PlanJson, FillsDefaultsAndSaysSo) {
    const Plan plan = parse(written_by_hand());
    EXPECT_EQ(plan.model, models::load_model("tiny-llama"));
    EXPECT_EQ(plan.implementation.name, "orrery");
    EXPECT_EQ(plan.cluster.name, "dgx-h100");
    EXPECT_EQ(plan.parallelism.stage_layers, (std::vector<std::int64_t>{2, 2}));
    EXPECT_EQ(plan.parallelism.schedule, Schedule::one_f_one_b);
    EXPECT_EQ(plan.training.micro_batch_size, 1);
    EXPECT_EQ(plan.micro_batches(), 4);
    EXPECT_EQ(plan.training.precision, Precision{});
    EXPECT_EQ(plan.origins.at("/model"), "name: tiny-llama");
    EXPECT_EQ(plan.origins.at("/cluster"), "name: dgx-h100");
    EXPECT_EQ(plan.origins.at("/training/seed"), "default");
    EXPECT_EQ(plan.origins.at("/parallelism/stage_layers"), "default");
    EXPECT_EQ(plan.origins.at("/training/dropout"), "implementation orrery");
    EXPECT_EQ(plan.origins.count("/parallelism/dp"), 0U);
}

TEST(PlanJson, TakesDropoutFromTheImplementation) {
    EXPECT_EQ(parse(with("/implementation", "megatron-lm-2022")).training.dropout, 0.1);
    ordered_json json = with("/implementation", "megatron-lm-2022");
    json["training"]["dropout"] = 0.25;
    EXPECT_EQ(parse(json).training.dropout, 0.25);
}

TEST(PlanJson, IsSelfContainedAndRoundTrips) {
    ordered_json json = written_by_hand();
    json["model"] = "llama3.1-70b";
    json["parallelism"] = {{"dp", 4},
                           {"tp", 8},
                           {"pp", 3},
                           {"sequence_parallel", true},
                           {"schedule", "gpipe"},
                           {"stage_layers", {26, 28, 26}}};
    json["training"] = {{"sequence_length", 8192},     {"global_batch_size", 48},
                        {"micro_batch_size", 2},       {"precision", "bf16"},
                        {"seed", 9223372036854775807}, {"optimizer", {{"learning_rate", 0.1}, {"epsilon", 1e-300}}}};
    json["origins"] = {{"/parallelism/tp", "planner"}};
    const Plan plan = parse(json);
    EXPECT_EQ(plan.cluster.device_count(), 96);
    EXPECT_EQ(plan.training.optimizer.learning_rate, 0.1);
    EXPECT_EQ(plan.training.optimizer.beta1, 0.9);
    EXPECT_EQ(plan.training.seed, 9223372036854775807U);
    EXPECT_EQ(plan.origins.at("/parallelism/tp"), "planner");
    EXPECT_EQ(plan.origins.at("/training/optimizer/beta1"), "default");
    const std::string text = to_json_text(plan);
    EXPECT_TRUE(ordered_json::parse(text).at("model").is_object());
    EXPECT_TRUE(ordered_json::parse(text).at("cluster").is_object());
    EXPECT_EQ(plan_from_json_text(text, "again"), plan);
    EXPECT_EQ(to_json_text(plan_from_json_text(text, "again")), text);
    const TestFolder folder;
    write_file_atomically(folder.file("p.plan.json"), text);
    EXPECT_EQ(read_plan(folder.file("p.plan.json")), plan);
}

TEST(PlanJson, EveryKeyOfTheFullTextIsKnownAndNeeded) {
    // In the full text an additional key is refused wherever it stands; so is a value of another kind.
    const ordered_json full = ordered_json::parse(to_json_text(parse(written_by_hand())));
    for (const char* pointer : {"", "/model", "/cluster", "/implementation", "/parallelism", "/training",
                                "/training/precision", "/training/optimizer"}) {
        ordered_json spoilt = full;
        spoilt[ordered_json::json_pointer(std::string(pointer) + "/surprise")] = 1;
        EXPECT_NE(error_of(spoilt).find("/surprise: unknown key, got 1"), std::string::npos) << pointer;
    }
    const ordered_json flat = full.flatten();
    for (const auto& [pointer, value] : flat.items()) {
        if (pointer.starts_with("/cluster") || value.is_null()) continue;  // the cluster's reader has its own tests
        ordered_json spoilt = full;
        spoilt[ordered_json::json_pointer(pointer)] = ordered_json::array({ordered_json::object()});
        const std::string message = error_of(spoilt);
        EXPECT_NE(message.find("p.json: " + pointer + ": got "), std::string::npos) << message;
    }
}

TEST(PlanJson, WritesTheKeysOfThePublishedSchema) {
    const ordered_json schema =
        ordered_json::parse(read_text_file(std::string(ORRERY_SOURCE_DIR) + "/docs/schema/orrery.plan.1.schema.json"));
    const ordered_json full = ordered_json::parse(to_json_text(parse(written_by_hand())));
    const auto expect_same_keys = [](const ordered_json& rules, const ordered_json& object) {
        EXPECT_EQ(rules.at("additionalProperties"), false);
        EXPECT_EQ(rules.at("properties").size(), object.size());
        for (const auto& [key, value] : object.items()) EXPECT_TRUE(rules.at("properties").contains(key)) << key;
    };
    expect_same_keys(schema, full);
    const ordered_json& properties = schema.at("properties");
    expect_same_keys(properties.at("parallelism"), full.at("parallelism"));
    const ordered_json& training = properties.at("training");
    expect_same_keys(training, full.at("training"));
    expect_same_keys(training.at("properties").at("optimizer"), full.at("training").at("optimizer"));
    expect_same_keys(training.at("properties").at("precision").at("oneOf").at(1), full.at("training").at("precision"));
}

TEST(PlanJson, NamesMissingKeys) {
    for (const char* key : {"schema", "name", "model", "cluster", "parallelism", "training"}) {
        ordered_json json = written_by_hand();
        json.erase(key);
        EXPECT_EQ(error_of(json).find(std::string("p.json: /") + key + ": the key is missing"), 0U) << key;
    }
    for (const char* key : {"sequence_length", "global_batch_size"}) {
        ordered_json json = written_by_hand();
        json["training"].erase(key);
        EXPECT_EQ(error_of(json).find(std::string("p.json: /training/") + key + ": the key is missing"), 0U) << key;
    }
}

TEST(PlanJson, SuggestsTheNearestKey) {
    EXPECT_NE(error_of(with("/parallelism/stage_layer", 2)).find("did you mean \"stage_layers\"?"), std::string::npos);
    EXPECT_NE(error_of(with("/training/sequence_lenght", 2)).find("did you mean \"sequence_length\"?"),
              std::string::npos);
}

TEST(PlanJson, EveryTruncationIsAnInputError) {
    const std::string text = written_by_hand().dump();
    for (std::size_t length = 0; length < text.size(); length += 7) {
        EXPECT_THROW((void)plan_from_json_text(text.substr(0, length), "p.json"), InputError) << length;
    }
}

TEST(PlanJson, PassesOnTheErrorsOfWhatItNames) {
    EXPECT_NE(error_of(with("/model", "tiny-lama")).find("did you mean \"tiny-llama\"?"), std::string::npos);
    EXPECT_NE(error_of(with("/implementation", "orrey")).find("did you mean \"orrery\"?"), std::string::npos);
    EXPECT_THROW((void)parse(with("/cluster", "dgx-h1000")), InputError);
    ordered_json full = ordered_json::parse(to_json_text(parse(written_by_hand())));
    full["model"]["layers"] = 0;
    EXPECT_EQ(error_of(full).find("p.json: /model/layers: got 0; "), 0U) << error_of(full);
}

struct BadValue {
    const char* pointer;   // that is changed
    const char* value;     // JSON
    const char* expected;  // how the message goes on after the file's name
};
class CheckPlan : public testing::TestWithParam<BadValue> {};
TEST_P(CheckPlan, NamesKeyValueAndWhatIsAllowed) {
    const std::string message = error_of(with(GetParam().pointer, ordered_json::parse(GetParam().value)));
    EXPECT_EQ(message.find(std::string("p.json: ") + GetParam().expected), 0U) << message;
    EXPECT_NE(message.find("allowed: "), std::string::npos) << message;
}
INSTANTIATE_TEST_SUITE_P(
    All, CheckPlan,
    testing::Values(
        BadValue{"/parallelism/dp", "0", "/parallelism/dp: got 0; "},
        BadValue{"/parallelism/tp", "-1", "/parallelism/tp: got -1; "},
        BadValue{"/parallelism/pp", "1099511627776", "/parallelism/pp: got 1099511627776; "},
        BadValue{"/parallelism/dp", "2.0", "/parallelism/dp: got 2.0; "},
        BadValue{"/parallelism/tp", "4", "/parallelism/tp: got 4; allowed: a divisor of the model's kv_heads, 2"},
        BadValue{"/parallelism/pp", "8", "/parallelism/pp: got 8; allowed: at most 4, the model's layers"},
        BadValue{"/parallelism/schedule", "\"zero bubble\"", "/parallelism/schedule: got \"zero bubble\"; "},
        BadValue{"/parallelism/stage_layers", "[4]", "/parallelism/stage_layers: got 1 stages; allowed: 2 stages"},
        BadValue{"/parallelism/stage_layers", "[]", "/parallelism/stage_layers: got 0 stages; "},
        BadValue{"/parallelism/stage_layers", "[4, 0]", "/parallelism/stage_layers/1: got 0; "},
        BadValue{"/parallelism/stage_layers", "[2, 3]",
                 "/parallelism/stage_layers: got a sum of 5; allowed: a sum of 4"},
        BadValue{"/training/sequence_length", "0", "/training/sequence_length: got 0; "},
        BadValue{"/training/micro_batch_size", "0", "/training/micro_batch_size: got 0; "},
        BadValue{"/training/micro_batch_size", "3", "/training/global_batch_size: got 8; allowed: a multiple of 6"},
        BadValue{"/training/global_batch_size", "7", "/training/global_batch_size: got 7; allowed: a multiple of 2"},
        BadValue{"/training/global_batch_size", "0", "/training/global_batch_size: got 0; "},
        BadValue{"/training/precision", "\"fp8\"", "/training/precision: got \"fp8\"; allowed: \"fp32\", \"bf16\""},
        BadValue{"/training/precision",
                 R"({"parameter": "fp32", "activation": "bf16", "gradient": "fp32", "master_weights": true})",
                 "/training/precision/master_weights: got true; "},
        BadValue{"/training/precision",
                 R"({"parameter": "int32", "activation": "bf16", "gradient": "fp32", "master_weights": false})",
                 "/training/precision/parameter: got \"int32\"; "},
        BadValue{"/training/dropout", "1", "/training/dropout: got 1; "},
        BadValue{"/training/optimizer", R"({"beta2": 1})", "/training/optimizer/beta2: got 1; "},
        BadValue{"/training/optimizer", R"({"epsilon": 0})", "/training/optimizer/epsilon: got 0; "},
        BadValue{"/training/optimizer", R"({"learning_rate": -0.1})", "/training/optimizer/learning_rate: got -0.1; "},
        BadValue{"/training/seed", "-1", "/training/seed: got -1; "},
        BadValue{"/training/data", "\"\"", "/training/data: got \"\"; "},
        BadValue{"/training/data", "\"text.txt\"", "/training/data: got \"text.txt\"; allowed: \"synthetic\""},
        BadValue{"/model", "7", "/model: got 7; allowed: a name, a path, or an object"},
        BadValue{"/schema", "\"orrery.model/1\"", "/schema: got \"orrery.model/1\"; "},
        BadValue{"/name", "\"\"", "/name: got \"\"; "},
        BadValue{"/origins", R"({"dp": "flag"})", "/origins/dp: got \"flag\"; "}));

TEST(CheckPlanRules, LearnedPositionsBoundTheSequence) {
    ordered_json json = with("/model", "tiny-gpt");
    json["training"]["sequence_length"] = 64;
    EXPECT_NO_THROW((void)parse(json));
    json["training"]["sequence_length"] = 65;
    EXPECT_EQ(error_of(json),
              "p.json: /training/sequence_length: got 65; allowed: at most 64, the model's learned "
              "positions");
    json["model"] = "tiny-llama";  // rotary positions go on
    EXPECT_NO_THROW((void)parse(json));
}

TEST(CheckPlanRules, SequenceParallelNeedsTensorParallelAndAMultiple) {
    ordered_json json = with("/parallelism/sequence_parallel", true);
    EXPECT_NO_THROW((void)parse(json));
    json["training"]["sequence_length"] = 33;
    EXPECT_EQ(error_of(json).find("p.json: /training/sequence_length: got 33; allowed: a multiple of tp, 2"), 0U);
    json["training"]["sequence_length"] = 32;
    json["parallelism"]["tp"] = 1;
    EXPECT_EQ(error_of(json).find("p.json: /parallelism/sequence_parallel: got true; "), 0U);
}

TEST(CheckPlanRules, TheWorldFillsTheCluster) {
    Plan plan = parse(written_by_hand());
    const auto world_error = [&] { return message_of<InputError>([&] { check_plan(plan, "flags"); }); };
    plan.cluster.nodes = 2;
    EXPECT_EQ(world_error(),
              "flags: /parallelism: got dp 2 * tp 2 * pp 2 = 8; allowed: dp * tp * pp = 16, the devices of cluster "
              "\"dgx-h100\"");
    plan.cluster.nodes = 1;
    plan.cluster.devices_per_node = 4;
    EXPECT_EQ(
        world_error(),
        "flags: /parallelism: got dp 2 * tp 2 * pp 2 = 8; allowed: at most 4, the devices of cluster \"dgx-h100\"");
    plan.cluster.devices_per_node = 16;  // part of one node
    EXPECT_NO_THROW(check_plan(plan, "flags"));
    plan.cluster.devices_per_node = 1;
    plan.cluster.device.host_runs_compute = true;  // ranks share the cores
    EXPECT_NO_THROW(check_plan(plan, "flags"));
    plan.parallelism.dp = std::int64_t{1} << 19;
    EXPECT_NE(world_error().find("allowed: at most 1048576 ranks"), std::string::npos);
}

TEST(CheckPlanRules, AnyNumberOfMicroBatchesIsLegal) {
    Plan plan = parse(written_by_hand());
    for (std::int64_t micro_batches : {1, 2, 3, 1000}) {
        plan.training.global_batch_size = micro_batches * plan.parallelism.dp;
        EXPECT_NO_THROW(check_plan(plan, "flags")) << micro_batches;
        EXPECT_EQ(plan.micro_batches(), micro_batches);
    }
}

TEST(CheckPlanRules, NumbersThatAreNotFiniteAreRefused) {
    const double nan = std::nan("");
    const double infinity = std::numeric_limits<double>::infinity();
    for (double Optimizer::*field : {&Optimizer::learning_rate, &Optimizer::beta1, &Optimizer::beta2,
                                     &Optimizer::epsilon, &Optimizer::weight_decay}) {
        for (double value : {nan, infinity, -infinity}) {
            Plan plan = parse(written_by_hand());
            plan.training.optimizer.*field = value;
            EXPECT_THROW(check_plan(plan, "flags"), InputError);
        }
    }
    Plan plan = parse(written_by_hand());
    plan.training.dropout = nan;
    EXPECT_THROW(check_plan(plan, "flags"), InputError);
}

TEST(CheckPlanRules, ASeedBeyondJsonIntegersIsRefused) {
    Plan plan = parse(written_by_hand());
    plan.training.seed = std::uint64_t{1} << 63;
    EXPECT_THROW(check_plan(plan, "flags"), InputError);
}

}  // namespace
}  // namespace orrery::program
