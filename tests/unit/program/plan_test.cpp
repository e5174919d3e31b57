#include "sim/program/plan.h"

#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>
#include <numeric>

#include "core/error.h"
#include "core/file.h"
#include "tests/unit/core/test_folder.h"
#include "topologies/catalogue.h"

namespace orrery::program {
namespace {

using nlohmann::ordered_json;

/// tiny-llama with dp 2, tp 2 and pp 2 on one node of 8 devices.
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

/// Independent of the working directory.
TEST(Plans, PathsAreRelativeToThePlansFolder) {
    const TestFolder folder;
    std::filesystem::create_directories(folder.path() / "plans" / "models");
    const auto put = [&](const std::string& name, const std::string& text) {
        std::ofstream(folder.file(name)) << text;
    };
    put("plans/models/mine.json", models::to_json_text(models::load_model("tiny-gpt")));
    put("plans/lab.json", topologies::to_json_text(topologies::load_cluster("dgx-h100", 8)));
    ordered_json json = written_by_hand();
    json["model"] = "models/mine.json";
    json["cluster"] = "lab.json";
    put("plans/p.json", json.dump());
    EXPECT_EQ(read_plan(folder.file("plans/p.json")).model.name, "tiny-gpt");
    json["model"] = folder.file("plans/models/mine.json");
    put("plans/p.json", json.dump());
    EXPECT_EQ(read_plan(folder.file("plans/p.json")).model.name, "tiny-gpt");
    json["model"] = "../mine.json";
    put("plans/p.json", json.dump());
    EXPECT_NE(message_of<InputError>([&] { (void)read_plan(folder.file("plans/p.json")); }).find("plans/../mine.json"),
              std::string::npos);
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
    EXPECT_EQ(precision_named("tf32"), Precision{.compute = DType::tf32});
    const Precision bf16{.parameter = DType::bf16,
                         .activation = DType::bf16,
                         .gradient = DType::fp32,
                         .reduction = DType::fp32,
                         .compute = DType::bf16,
                         .master_weights = true};
    EXPECT_EQ(precision_named("bf16"), bf16);
    Precision fp8 = bf16;
    fp8.fp8 = Fp8Scaling::delayed;
    EXPECT_EQ(precision_named("fp8"), fp8);
    const Precision fp16{.parameter = DType::fp16,
                         .activation = DType::fp16,
                         .gradient = DType::fp32,
                         .reduction = DType::fp32,
                         .compute = DType::fp16,
                         .master_weights = true,
                         .loss_scaling = true};
    EXPECT_EQ(precision_named("fp16"), fp16);
    for (const std::string& name : precision_names()) EXPECT_EQ(name_of(precision_named(name)), name);
    Precision narrow = precision_named("bf16");
    narrow.moments = DType::bf16;
    EXPECT_EQ(name_of(narrow), "bf16 with bf16 moments");
    EXPECT_THROW((void)precision_named("fp4"), InputError);
}

TEST(Precisions, TakeMasterWeightsAndGradientsFromTheImplementation) {
    models::Implementation implementation;
    implementation.gradients_in_fp32 = false;
    EXPECT_EQ(precision_named("bf16", implementation).gradient, DType::bf16);
    EXPECT_EQ(precision_named("bf16", implementation).reduction, DType::fp32);
    implementation = {};
    implementation.fp16_gradients_in_fp32 = false;
    EXPECT_EQ(precision_named("fp16", implementation).gradient, DType::fp16);
    EXPECT_EQ(precision_named("fp16", implementation).reduction, DType::fp16);
    EXPECT_EQ(precision_named("bf16", implementation).gradient, DType::fp32);
    implementation.gradients_in_fp32 = false;
    implementation.reduces_in_fp32 = false;
    implementation.master_weights = false;
    const Precision fp16 = precision_named("fp16", implementation);
    EXPECT_EQ(fp16.gradient, DType::fp16);
    EXPECT_EQ(fp16.reduction, DType::fp16);
    EXPECT_FALSE(fp16.master_weights);
    EXPECT_TRUE(fp16.loss_scaling);
    EXPECT_EQ(precision_named("fp32", implementation), Precision{});
    EXPECT_EQ(name_of(fp16), "fp16 parameters, fp16 activations, fp16 gradients, loss scaling");
    EXPECT_EQ(name_of(precision_named("fp8", implementation)),
              "bf16 parameters, bf16 activations, bf16 gradients, fp8 products (delayed scaling)");
    Precision mixed = precision_named("bf16");
    mixed.parameter = DType::fp32;
    mixed.reduction = DType::bf16;
    mixed.master_weights = false;
    EXPECT_EQ(name_of(mixed), "fp32 parameters, bf16 activations, fp32 gradients reduced in bf16");
}

TEST(PlanNames, RoundTrip) {
    for (int i = 0; i < kScheduleCount; ++i) {
        EXPECT_EQ(schedule_named(name_of(static_cast<Schedule>(i))), static_cast<Schedule>(i));
    }
    for (const DataParallel kind :
         {DataParallel::dp, DataParallel::ddp, DataParallel::zero1, DataParallel::zero2, DataParallel::zero3}) {
        EXPECT_EQ(data_parallel_named(name_of(kind)), kind);
    }
    for (const Recompute kind : {Recompute::none, Recompute::selective, Recompute::full}) {
        EXPECT_EQ(recompute_named(name_of(kind)), kind);
    }
    EXPECT_EQ(message_of<InputError>([] { (void)recompute_named("some"); }),
              "recompute \"some\": nothing has this name; allowed: \"none\", \"selective\", \"full\"");
    EXPECT_THROW((void)schedule_named(""), InputError);
}

TEST(PlanNames, OrdersHaveEachAxisOnce) {
    EXPECT_EQ(mesh_order_text({}), "tp,cp,ep,dp,pp");
    Parallelism other;
    other.order = mesh_order_named("pp,dp,ep,cp,tp");
    EXPECT_EQ(mesh_order_text(other), "pp,dp,ep,cp,tp");
    EXPECT_EQ(other.order.front(), MeshAxis::pp);
    for (const char* text : {"", "tp", "tp,cp,ep,dp", "tp,cp,ep,dp,dp", "tp,cp,ep,dp,pp,", "tp,cp,ep,dp,pp,tp",
                             "tp, cp, ep, dp, pp", "tp-cp-ep-dp-pp", ",,,,"}) {
        EXPECT_THROW((void)mesh_order_named(text), InputError) << text;
    }
}

TEST(VirtualStages, CountOneCopyOfTheModel) {
    EXPECT_EQ((Parallelism{.pp = 4}).virtual_stages(), 4);
    EXPECT_EQ((Parallelism{.pp = 4, .schedule = Schedule::interleaved, .chunks = 3}).virtual_stages(), 12);
    EXPECT_EQ((Parallelism{.pp = 4, .schedule = Schedule::zb_v, .chunks = 2}).virtual_stages(), 8);
    EXPECT_EQ((Parallelism{.pp = 4, .schedule = Schedule::dualpipe, .chunks = 2}).virtual_stages(), 4);
    EXPECT_EQ((Parallelism{.pp = 4, .schedule = Schedule::dualpipe_v, .chunks = 2}).virtual_stages(), 8);
}

TEST(PlanJson, FillsDefaultsAndRecordsTheirOrigin) {
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
    for (const char* key : {"cp", "ep", "etp", "chunks", "order", "placement", "data_parallel", "dp_shard"}) {
        EXPECT_EQ(plan.origins.at(std::string("/parallelism/") + key), "default") << key;
    }
    EXPECT_EQ(plan.origins.at("/training/memory"), "default");
    EXPECT_EQ(plan.origins.at("/training/expert_load"), "default");
    EXPECT_EQ(plan.origins.count("/parallelism/dp"), 0U);
}

TEST(PlanJson, DefaultsFollowTheScheduleAndTheModel) {
    for (const char* schedule : {"interleaved-1f1b", "zb-v", "dualpipe", "dualpipe-v"}) {
        const Plan plan = parse(with("/parallelism/schedule", schedule));
        EXPECT_EQ(plan.parallelism.chunks, 2) << schedule;
        const auto stages = static_cast<std::size_t>(plan.parallelism.virtual_stages());
        EXPECT_EQ(plan.parallelism.stage_layers, std::vector<std::int64_t>(stages, stages == 4 ? 1 : 2)) << schedule;
    }
    for (const char* schedule : {"naive", "gpipe", "1f1b", "zb-h1", "zb-h2", "zb-1p", "zb-2p"}) {
        EXPECT_EQ(parse(with("/parallelism/schedule", schedule)).parallelism.chunks, 1) << schedule;
    }
    EXPECT_EQ(parse(written_by_hand()).parallelism.etp, 1);
    ordered_json json = with("/model", "mixtral-8x7b");
    json["parallelism"]["sequence_parallel"] = true;
    EXPECT_EQ(parse(json).parallelism.etp, 2);
    json["parallelism"]["etp"] = 1;
    EXPECT_EQ(parse(json).parallelism.etp, 1);
}

TEST(PlanJson, AcceptsAnOrderAsAListOrAsText) {
    const Plan plan = parse(with("/parallelism/order", {"tp", "dp", "ep", "cp", "pp"}));
    EXPECT_EQ(mesh_order_text(plan.parallelism), "tp,dp,ep,cp,pp");
    EXPECT_EQ(plan.parallelism, parse(with("/parallelism/order", "tp,dp,ep,cp,pp")).parallelism);
}

TEST(PlanJson, ReadsThePrecisionOfEarlierPlans) {
    const Plan plan =
        parse(with("/training/precision",
                   {{"parameter", "bf16"}, {"activation", "bf16"}, {"gradient", "fp32"}, {"master_weights", true}}));
    EXPECT_EQ(plan.training.precision, precision_named("bf16"));
    EXPECT_EQ(plan.origins.at("/training/precision/compute"), "default");
    const Plan half =
        parse(with("/training/precision",
                   {{"parameter", "fp16"}, {"activation", "fp16"}, {"gradient", "fp16"}, {"master_weights", false}}));
    EXPECT_EQ(half.training.precision.reduction, DType::fp16);
    EXPECT_EQ(half.training.precision.compute, DType::fp16);
    EXPECT_FALSE(half.training.precision.loss_scaling);
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
                        {"seed", 9223372036854775807}, {"optimizer", {{"learning_rate", 0.1}, {"epsilon", 1e-20}}}};
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

TEST(PlanJson, UnknownKeysAndWrongTypesAreRefusedEverywhere) {
    // In the full text an additional key is refused anywhere, and so is a value of another type.
    const ordered_json full = ordered_json::parse(to_json_text(parse(written_by_hand())));
    for (const char* pointer :
         {"", "/model", "/cluster", "/implementation", "/parallelism", "/training", "/training/precision",
          "/training/optimizer", "/training/memory", "/training/expert_load"}) {
        ordered_json wrong = full;
        wrong[ordered_json::json_pointer(std::string(pointer) + "/surprise")] = 1;
        EXPECT_NE(error_of(wrong).find("/surprise: unknown key, got 1"), std::string::npos) << pointer;
    }
    const ordered_json flat = full.flatten();
    for (const auto& [pointer, value] : flat.items()) {
        if (pointer.starts_with("/cluster") || value.is_null()) continue;  // the cluster's reader has its own tests
        ordered_json wrong = full;
        wrong[ordered_json::json_pointer(pointer)] = ordered_json::array({ordered_json::object()});
        const std::string message = error_of(wrong);
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
    ordered_json parallelism = full.at("parallelism");
    EXPECT_FALSE(parallelism.contains("overlaps_experts"));  // written only if it is true
    parallelism["overlaps_experts"] = true;
    expect_same_keys(properties.at("parallelism"), parallelism);
    const ordered_json& training = properties.at("training");
    expect_same_keys(training, full.at("training"));
    for (const char* key : {"optimizer", "memory", "expert_load"}) {
        expect_same_keys(training.at("properties").at(key), full.at("training").at(key));
    }
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

TEST(PlanJson, ReportsErrorsInNamedModelsClustersAndImplementations) {
    EXPECT_NE(error_of(with("/model", "tiny-lama")).find("did you mean \"tiny-llama\"?"), std::string::npos);
    EXPECT_NE(error_of(with("/implementation", "orrey")).find("did you mean \"orrery\"?"), std::string::npos);
    EXPECT_THROW((void)parse(with("/cluster", "dgx-h1000")), InputError);
    ordered_json full = ordered_json::parse(to_json_text(parse(written_by_hand())));
    full["model"]["layers"] = 0;
    EXPECT_EQ(error_of(full).find("p.json: /model/layers: got 0; "), 0U) << error_of(full);
}

struct BadValue {
    const char* pointer;   // to the changed value
    const char* value;     // JSON
    const char* expected;  // beginning of the message after the file's name
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
        BadValue{"/parallelism/tp", "8", "/parallelism/tp: got 8; allowed: a divisor of the model's heads, 4"},
        BadValue{"/parallelism/pp", "8", "/parallelism/pp: got 8; allowed: at most 4, the model's layers"},
        BadValue{"/parallelism/schedule", "\"zero bubble\"", "/parallelism/schedule: got \"zero bubble\"; "},
        BadValue{"/parallelism/stage_layers", "[4]", "/parallelism/stage_layers: got 1 stages; allowed: 2 stages"},
        BadValue{"/parallelism/stage_layers", "[]", "/parallelism/stage_layers: got 0 stages; "},
        BadValue{"/parallelism/stage_layers", "[5, 0]", "/parallelism/stage_layers/0: got 5; "},
        BadValue{"/parallelism/stage_layers", "[5, -1]", "/parallelism/stage_layers/1: got -1; "},
        BadValue{"/parallelism/stage_layers", "[2, 3]",
                 "/parallelism/stage_layers: got a sum of 5; allowed: a sum of 4"},
        BadValue{"/training/sequence_length", "0", "/training/sequence_length: got 0; "},
        BadValue{"/training/micro_batch_size", "0", "/training/micro_batch_size: got 0; "},
        BadValue{"/training/micro_batch_size", "3", "/training/global_batch_size: got 8; allowed: a multiple of 6"},
        BadValue{"/training/global_batch_size", "7", "/training/global_batch_size: got 7; allowed: a multiple of 2"},
        BadValue{"/training/global_batch_size", "0", "/training/global_batch_size: got 0; "},
        BadValue{"/training/precision", "\"fp4\"", "/training/precision: got \"fp4\"; allowed: \"fp32\", \"tf32\", "},
        BadValue{"/training/precision",
                 R"({"parameter": "fp32", "activation": "bf16", "gradient": "fp32", "master_weights": true})",
                 "/training/precision/master_weights: got true; "},
        BadValue{"/training/precision",
                 R"({"parameter": "int32", "activation": "bf16", "gradient": "fp32", "master_weights": false})",
                 "/training/precision/parameter: got \"int32\"; "},
        BadValue{"/training/precision",
                 R"({"parameter": "bf16", "activation": "bf16", "gradient": "fp32", "compute": "fp64",
                     "master_weights": false})",
                 "/training/precision/compute: got \"fp64\"; "},
        BadValue{"/parallelism/data_parallel", "\"zero4\"",
                 "/parallelism/data_parallel: got \"zero4\"; allowed: \"dp\", \"ddp\", \"zero1\", "},
        BadValue{"/parallelism/context_parallel", "\"zigzag\"", "/parallelism/context_parallel: got \"zigzag\"; "},
        BadValue{"/parallelism/order", "\"tp,pp\"",
                 "/parallelism/order: got \"tp,pp\"; allowed: tp, cp, ep, dp and pp"},
        BadValue{"/parallelism/order", R"(["tp", "cp", "ep", "dp", "dp"])",
                 "/parallelism/order: got \"tp,cp,ep,dp,dp\"; allowed: tp, cp, ep, dp and pp"},
        BadValue{"/parallelism/order", "5", "/parallelism/order: got 5; "},
        BadValue{"/parallelism/placement", "[0, 1]", "/parallelism/placement: got 2 devices; allowed: 8 devices"},
        BadValue{"/parallelism/chunks", "0", "/parallelism/chunks: got 0; "},
        BadValue{"/parallelism/cp", "1048576", "/parallelism: got dp 2 * tp 2 * pp 2 * cp 1048576 = 8388608; "},
        BadValue{"/training/optimizer", R"({"kind": "lion"})", "/training/optimizer/kind: got \"lion\"; "},
        BadValue{"/training/memory", R"({"recompute": "block"})", "/training/memory/recompute: got \"block\"; "},
        BadValue{"/training/memory", R"({"recompute_parts": [7]})", "/training/memory/recompute_parts/0: got 7; "},
        BadValue{"/training/memory", R"({"offload_layers": -1})", "/training/memory/offload_layers: got -1; "},
        BadValue{"/training/expert_load", R"({"imbalance": 0.5})", "/training/expert_load/imbalance: got 0.5; "},
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

TEST(CheckPlanRules, LearnedPositionsLimitTheSequence) {
    ordered_json json = with("/model", "tiny-gpt");
    json["training"]["sequence_length"] = 64;
    EXPECT_NO_THROW((void)parse(json));
    json["training"]["sequence_length"] = 65;
    EXPECT_EQ(error_of(json),
              "p.json: /training/sequence_length: got 65; allowed: at most 64, the model's learned "
              "positions");
    json["model"] = "tiny-llama";  // rotary positions have no limit
    EXPECT_NO_THROW((void)parse(json));
}

TEST(CheckPlanRules, SequenceParallelNeedsTensorParallelAndADivisibleSequence) {
    ordered_json json = with("/parallelism/sequence_parallel", true);
    EXPECT_NO_THROW((void)parse(json));
    json["training"]["sequence_length"] = 33;
    EXPECT_EQ(error_of(json).find("p.json: /training/sequence_length: got 33; allowed: a multiple of tp, 2"), 0U);
    json["training"]["sequence_length"] = 32;
    json["parallelism"]["tp"] = 1;
    EXPECT_EQ(error_of(json).find("p.json: /parallelism/sequence_parallel: got true; "), 0U);
}

TEST(CheckPlanRules, TheWorldSizeMustFillTheCluster) {
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

TEST(CheckPlanRules, AllNodesMustHoldOneKindOfDevice) {
    Plan plan = parse(written_by_hand());
    plan.cluster.other_devices = {{0, 1, topologies::load_device("h200-sxm-141gb")}};
    const std::string message = message_of<InputError>([&] { check_plan(plan, "flags"); });
    EXPECT_EQ(message.find("flags: /cluster/other_devices: got \"h100-sxm-80gb\" and \"h200-sxm-141gb\""), 0U)
        << message;
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
    for (double Optimizer::*field :
         {&Optimizer::learning_rate, &Optimizer::beta1, &Optimizer::beta2, &Optimizer::epsilon,
          &Optimizer::weight_decay, &Optimizer::momentum, &Optimizer::clip_norm}) {
        for (double value : {nan, infinity, -infinity}) {
            Plan plan = parse(written_by_hand());
            plan.training.optimizer.*field = value;
            EXPECT_THROW(check_plan(plan, "flags"), InputError);
        }
    }
    for (double ExpertLoad::*field : {&ExpertLoad::imbalance, &ExpertLoad::capacity_factor, &ExpertLoad::largest}) {
        for (double value : {nan, infinity, -infinity}) {
            Plan plan = parse(written_by_hand());
            plan.training.expert_load.*field = value;
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

TEST(ExpertLoad, SharesDetermineTheImbalanceOfTheBusiestRank) {
    ExpertLoad load{.shares = {3, 1, 1, 1, 1, 1, 0, 0}};
    EXPECT_DOUBLE_EQ(load.imbalance_over(1), 1);
    EXPECT_DOUBLE_EQ(load.imbalance_over(2), 6.0 / 4);
    EXPECT_DOUBLE_EQ(load.imbalance_over(4), 4.0 / 2);
    EXPECT_DOUBLE_EQ(load.imbalance_over(8), 3);
    EXPECT_DOUBLE_EQ(ExpertLoad{}.imbalance_over(4), 1);
}

TEST(ExpertLoad, IsReadFromSharesAndMustAgreeWithThem) {
    nlohmann::json json{{"schema", "orrery.plan/1"},
                        {"name", "experts"},
                        {"model", "mixtral-8x7b"},
                        {"cluster", "dgx-h100"},
                        {"parallelism", {{"dp", 8}, {"ep", 4}}},
                        {"training",
                         {{"sequence_length", 128},
                          {"global_batch_size", 8},
                          {"precision", "bf16"},
                          {"expert_load", {{"shares", {3, 1, 1, 1, 1, 1, 0, 0}}}}}}};
    const Plan plan = plan_from_json_text(json.dump(), "test");
    EXPECT_DOUBLE_EQ(plan.training.expert_load.imbalance, 2);
    EXPECT_EQ(plan_from_json_text(to_json_text(plan), "again").training.expert_load, plan.training.expert_load);
    const auto refused = [&](const std::string& pointer) {
        try {
            (void)plan_from_json_text(json.dump(), "test");
        } catch (const InputError& error) {
            return std::string(error.what()).find(pointer) != std::string::npos;
        }
        return false;
    };
    json["training"]["expert_load"]["imbalance"] = 1.5;
    EXPECT_TRUE(refused("/training/expert_load/imbalance"));
    json["training"]["expert_load"] = {{"shares", {1, 1}}};
    EXPECT_TRUE(refused("/training/expert_load/shares: got 2 shares"));
    json["training"]["expert_load"] = {{"shares", {0, 0, 0, 0, 0, 0, 0, 0}}};
    EXPECT_TRUE(refused("/training/expert_load/shares"));
}

}  // namespace
}  // namespace orrery::program
