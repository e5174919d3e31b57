#include "models/implementation.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "core/error.h"
#include "core/file.h"
#include "tests/unit/core/test_folder.h"
#include "tests/unit/models/layer_samples.h"

namespace orrery::models {
namespace {

TEST(Implementations, AreEmbeddedAndRoundTrip) {
    const std::vector<std::string> names = implementation_names();
    EXPECT_TRUE(std::is_sorted(names.begin(), names.end()));
    EXPECT_GE(names.size(), 19U);
    for (const std::string& name : names) {
        const Implementation implementation = load_implementation(name);
        EXPECT_EQ(implementation.name, name);
        EXPECT_FALSE(implementation.source.empty());
        EXPECT_EQ(implementation_from_json_text(to_json_text(implementation), name), implementation);
        EXPECT_EQ(implementation.executable, name == "orrery");
    }
    EXPECT_EQ(load_implementation("megatron-lm-2022").default_dropout, 0.1);
    const std::string message = message_of<InputError>([] { (void)load_implementation("orery"); });
    EXPECT_NE(message.find("did you mean \"orrery\"? allowed: aa-scaling, bigscience-megatron-deepspeed, "),
              std::string::npos)
        << message;
}

// Values in which the implementations differ.
TEST(Implementations, DescribeTheirFrameworks) {
    const auto at = [](const char* name) { return load_implementation(name); };
    EXPECT_FALSE(at("megatron-lm-2020").kernels.fused_softmax);
    EXPECT_TRUE(at("megatron-lm-2021").kernels.fused_softmax);
    EXPECT_TRUE(at("megatron-lm-2021").pipeline.scatters_transfers);
    EXPECT_FALSE(at("megatron-lm-2021").tensor_parallel.overlaps_input_gradient);
    EXPECT_TRUE(at("megatron-deepspeed").pipeline.scatters_transfers);
    EXPECT_FALSE(at("aa-scaling").pipeline.scatters_transfers);
    EXPECT_EQ(at("megatron-core").data_parallel.bucket_elements_per_rank, 1000000);
    EXPECT_TRUE(at("nemo").tensor_parallel.pipelined_gather);
    EXPECT_EQ(at("nemo").data_parallel.bucket_bytes, 4 * 40000000);  // from megatron-core
    EXPECT_FALSE(at("nanotron").kernels.fused_activation);
    EXPECT_TRUE(at("nanotron").kernels.fused_norm);
    EXPECT_FALSE(at("torch-ddp").kernels.fused_norm);
    EXPECT_TRUE(at("torch-fsdp1-compile").kernels.fused_norm);
    EXPECT_FALSE(at("torch-fsdp1").data_parallel.pads_each_parameter);
    EXPECT_TRUE(at("torchtitan").data_parallel.pads_each_parameter);
    EXPECT_TRUE(at("torchtitan").data_parallel.buckets_by_layer);
    EXPECT_TRUE(at("horovod").data_parallel.fusion_buffer);
    EXPECT_FALSE(at("torch-dp").data_parallel.overlaps_backward);
    EXPECT_TRUE(at("megatron-lm-zero-bubble").kernels.masks_without_dropout);
    EXPECT_TRUE(at("aa-scaling").memory.keeps_previous_logits);
    EXPECT_TRUE(at("paxml").memory.windows_hold_tensors);
    EXPECT_TRUE(at("deepspeed").memory.windows_hold_tensors);
}

TEST(Implementations, MemoryFiguresHaveSources) {
    const auto read = [](const std::string& memory) {
        return implementation_from_json_text(
            R"({"schema": "orrery.implementation/1", "name": "mine", "version": "1", "source": "me", "memory": )" +
                memory + "}",
            "mine.json");
    };
    const Implementation mine = read(R"({"cached_share": {"value": 0.1, "kind": "fitted", "source": "rows"}})");
    EXPECT_EQ(mine.memory.cached_share, (MemoryFigure{.value = 0.1, .kind = "fitted", .source = "rows"}));
    EXPECT_EQ(implementation_from_json_text(to_json_text(mine), "again"), mine);
    const auto refused = [&](const std::string& memory) { return message_of<InputError>([&] { (void)read(memory); }); };
    EXPECT_NE(refused(R"({"cached_share": {"value": 2, "kind": "fitted", "source": "rows"}})").find("cached_share"),
              std::string::npos);
    EXPECT_NE(refused(R"({"cached_share": {"value": 0.1, "kind": "guessed", "source": "x"}})").find("fallback"),
              std::string::npos);
    EXPECT_NE(refused(R"({"cached_share": 0.1})").find("cached_share"), std::string::npos);
    EXPECT_NE(refused(R"({"runtime_gib": {"value": 1, "kind": "fitted"}})").find("source"), std::string::npos);
    EXPECT_TRUE(load_implementation("megatron-core").memory.keeps_weight_gradient_stand_ins);
    EXPECT_TRUE(load_implementation("orrery").memory.lays_out_ahead);
    EXPECT_FALSE(load_implementation("aa-scaling").gradients_in_fp32);
}

TEST(Implementations, InheritAbsentValuesFromTheirBase) {
    const auto read = [](const std::string& rest) {
        return implementation_from_json_text(
            R"({"schema": "orrery.implementation/1", "name": "mine", "version": "1", "source": "me")" + rest + "}",
            "mine.json");
    };
    const Implementation plain = read("");
    EXPECT_EQ(plain.kernels, KernelChoices{});
    const Implementation based =
        read(R"(, "based_on": "torch-ddp", "kernels": {"fused_norm": true}, "host": {"launch_factor": 2.5})");
    Implementation expected = load_implementation("torch-ddp");
    expected.name = "mine";
    expected.version = "1";
    expected.source = "me";
    expected.kernels.fused_norm = true;
    expected.host.launch_factor = 2.5;
    EXPECT_EQ(based, expected);
    EXPECT_FALSE(read(R"(, "based_on": "orrery")").executable);  // `executable` is not inherited
    EXPECT_THROW((void)read(R"(, "based_on": "nobody")"), InputError);
    EXPECT_THROW((void)read(R"(, "based_on": "mine")"), InputError);
    EXPECT_EQ(read(R"(, "based_on": "torch-ddp", "shares_rates": true)").kernels,
              load_implementation("torch-ddp").kernels);
    EXPECT_EQ(
        message_of<InputError>([&] { (void)read(R"(, "shares_rates": true)"); }),
        "mine.json: /shares_rates: got true; allowed: false, or \"based_on\" with the implementation that has the "
        "rates");
}

TEST(Implementations, RefuseBadValues) {
    const std::string good = to_json_text(load_implementation("orrery"));
    const auto error_with = [&](const std::string& from, const std::string& to) {
        std::string text = good;
        const std::size_t at = text.find(from);
        EXPECT_NE(at, std::string::npos) << from;
        text.replace(at, from.size(), to);
        return message_of<InputError>([&] { (void)implementation_from_json_text(text, "i.json"); });
    };
    EXPECT_EQ(error_with("\"vocab_multiple\": 128", "\"vocab_multiple\": 0").find("i.json: /vocab_multiple: got 0; "),
              0U);
    EXPECT_EQ(error_with("\"default_dropout\": 0.0", "\"default_dropout\": 1.0").find("i.json: /default_dropout: "),
              0U);
    EXPECT_EQ(error_with("\"fused_norm\": true", "\"fused_norm\": 1").find("i.json: /kernels/fused_norm: got 1; "), 0U);
    EXPECT_EQ(error_with("\"fused_norm\"", "\"fusednorm\"").find("i.json: /kernels/fusednorm: unknown key"), 0U);
    EXPECT_EQ(
        error_with("\"bucket_bytes\": 26214400", "\"bucket_bytes\": 0").find("i.json: /data_parallel/bucket_bytes: "),
        0U);
    EXPECT_EQ(
        error_with("\"launch_factor\": 1.0", "\"launch_factor\": -1").find("i.json: /host/launch_factor: got -1; "),
        0U);
}

TEST(Implementations, SchemaHasTheSameKeys) {
    const auto schema = nlohmann::json::parse(
        read_text_file(std::string(ORRERY_SOURCE_DIR) + "/docs/schema/orrery.implementation.1.schema.json"));
    nlohmann::json written = nlohmann::json::parse(to_json_text(load_implementation("orrery")));
    for (const char* key : {"based_on", "shares_rates"}) written[key] = "";  // read, not written
    const auto keys = [](const nlohmann::json& object) {
        std::vector<std::string> result;
        for (const auto& [key, value] : object.items()) result.push_back(key);
        return result;
    };
    EXPECT_EQ(keys(written), keys(schema.at("properties")));
    EXPECT_EQ(schema.at("additionalProperties"), false);
    for (const char* section : {"kernels", "tensor_parallel", "pipeline", "data_parallel", "host", "supports"}) {
        const auto& sub = schema.at("properties").at(section);
        EXPECT_EQ(sub.at("additionalProperties"), false);
        EXPECT_EQ(keys(written.at(section)), keys(sub.at("properties"))) << section;
    }
}

// Every implementation builds every family, unsharded and sharded.
TEST(Implementations, BuildEveryFamily) {
    for (const std::string& name : implementation_names()) {
        const Implementation implementation = load_implementation(name);
        for (const ModelSpec& model : samples::families()) {
            for (const std::int64_t tp : {1, 2}) {
                const LayerContext context =
                    samples::context(model, implementation, 64, 2, {.tp = tp, .sequence_parallel = tp > 1});
                for (const LayerKind kind : samples::kinds_of(model)) {
                    EXPECT_FALSE(build_layer(model, kind, context).backward.empty()) << name << " " << model.name;
                }
            }
        }
    }
}

}  // namespace
}  // namespace orrery::models
