#include "sim/program/run_record.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <nlohmann/json.hpp>
#include <set>

#include "core/error.h"
#include "core/file.h"
#include "tests/unit/program/random_plans.h"
#include "tests/unit/program/sample_plans.h"

namespace orrery::program {
namespace {

using Json = nlohmann::json;
using samples::make_program;

/// Keys of every instruction of a step of the class.
std::vector<std::string> all_keys(const Program& program, ClassIndex rank_class) {
    const RankClass& ranks = program.classes.at(rank_class);
    std::vector<std::string> keys;
    for (const ActionIndex a : ranks.actions.indices()) {
        const SegmentList& list = ranks.segment_lists.at(ranks.actions[a].segments);
        for (const SegmentIndex s : list.indices()) {
            for (const InstructionIndex i : program.bodies.at(list[s].body).instructions.indices()) {
                keys.push_back(key_of(program, rank_class, {.action = a, .segment = s, .instruction = i}));
            }
        }
    }
    return keys;
}

TEST(RunRecordKeys, AreUnique) {
    for (const bool sequence_parallel : {false, true}) {
        const Program program =
            make_program({.dp = 2, .tp = 2, .pp = 2, .sequence_parallel = sequence_parallel, .tied = true});
        for (const ClassIndex c : program.classes.indices()) {
            const std::vector<std::string> keys = all_keys(program, c);
            EXPECT_GT(keys.size(), 100U);
            EXPECT_EQ(std::set<std::string>(keys.begin(), keys.end()).size(), keys.size());
        }
    }
}

TEST(RunRecordKeys, AreUniqueInRandomPlans) {
    samples::RandomPlans maker(31);
    for (int round = 0; round < 300; ++round) {
        const Plan plan = maker.make_legal();
        const Program program = lower(plan);
        for (const ClassIndex c : program.classes.indices()) {
            std::set<std::string> keys;
            for (const std::string& key : all_keys(program, c)) {
                ASSERT_TRUE(keys.insert(key).second) << key << " in plan " << round << ": " << to_json_text(plan);
            }
        }
    }
}

TEST(RunRecordKeys, NameLayerPassAndMicroBatch) {
    const Program program = make_program({.dp = 2, .pp = 2, .tied = true});
    const std::vector<std::string> first = all_keys(program, 0);
    const std::vector<std::string> last = all_keys(program, 1);
    const auto some = [](const std::vector<std::string>& keys, const std::string& start) {
        return std::any_of(keys.begin(), keys.end(), [&](const std::string& key) { return key.starts_with(start); });
    };
    EXPECT_TRUE(some(first, "embedding/forward/c0/mb0/"));
    EXPECT_TRUE(some(first, "layers.1/backward/c0/mb3/"));
    EXPECT_FALSE(some(first, "layers.2/"));
    EXPECT_TRUE(some(last, "layers.2/forward/c0/mb2/"));
    EXPECT_TRUE(some(last, "head/backward/c0/mb1/"));
    for (const char* key : {"transfer/c0/mb2/send_forward", "transfer/c0/mb0/recv_backward", "step/optimizer",
                            "step/gradient_sync/embedding.gradient"}) {
        EXPECT_EQ(std::count(first.begin(), first.end(), key), 1) << key;
    }
}

TEST(RunRecordKeys, DoNotDependOnTheSchedule) {
    const std::vector<std::string> a = all_keys(make_program({.pp = 2, .schedule = Schedule::gpipe}), 0);
    const std::vector<std::string> b = all_keys(make_program({.pp = 2, .schedule = Schedule::one_f_one_b}), 0);
    EXPECT_NE(a, b);  // the order differs
    EXPECT_EQ(std::set<std::string>(a.begin(), a.end()), std::set<std::string>(b.begin(), b.end()));
}

TEST(RunRecordKeys, RefuseSpansOfOtherPrograms) {
    const Program program = make_program({});
    EXPECT_THROW((void)key_of(program, 1, {}), BugError);
    EXPECT_THROW((void)key_of(program, 0, {.action = 10'000}), BugError);
    EXPECT_THROW((void)key_of(program, 0, {.segment = -1}), BugError);
    EXPECT_THROW((void)key_of(program, 0, {.instruction = 10'000}), BugError);
}

RunRecord sample_record() {
    RunRecord record;
    record.maker = Maker::executed;
    record.plan_name = "sample";
    record.step_seconds = {0.5, 0.25, 0.75};
    record.step_time_s = 0.5;
    record.idle_fraction = 0.125;
    record.losses = {4.0, 3.5};
    record.first_step = 20;
    record.checkpoint_bytes = 5000;
    record.checkpoint_seconds = {0.5, 0.75};
    record.environment = {{"host", "here"}};
    record.notes = {"a note"};
    RankRecord rank{.rank = 1, .multiplicity = 2, .rank_class = 0, .memory_peak_bytes = 1000};
    rank.memory_live_peak_bytes = 900;
    rank.streams[Stream::dp] = {.busy_ps = 1'500'000'000'000, .exposed_ps = 500'000'000'000};
    rank.bytes_sent[Stream::dp] = 77;
    rank.spans.push_back(
        {.action = 0, .segment = 0, .instruction = 0, .ready_ps = 1, .begin_ps = 2'000'000, .end_ps = 2'500'000});
    record.ranks.push_back(rank);
    return record;
}

TEST(RunRecordJson, HoldsTheRecordWithUnits) {
    const Program program = make_program({.dp = 2});
    const std::string text = to_json_text(sample_record(), program);
    EXPECT_TRUE(text.starts_with("{\n  \"schema\": \"orrery.run_record/1\""));
    const Json record = Json::parse(text);
    EXPECT_EQ(record.at("maker"), "executed");
    EXPECT_EQ(record.at("plan"), "sample");
    EXPECT_EQ(record.at("step_time_s"), 0.5);
    EXPECT_EQ(record.at("step_seconds"), Json({0.5, 0.25, 0.75}));
    EXPECT_EQ(record.at("losses"), Json({4.0, 3.5}));
    EXPECT_EQ(record.at("first_step"), 20);
    EXPECT_EQ(record.at("checkpoints"), Json({{"bytes", 5000}, {"seconds", {0.5, 0.75}}}));
    EXPECT_EQ(record.at("environment").at("host"), "here");
    EXPECT_EQ(record.at("notes"), Json({"a note"}));
    const Json& rank = record.at("ranks").at(0);
    EXPECT_EQ(rank.at("rank"), 1);
    EXPECT_EQ(rank.at("multiplicity"), 2);
    EXPECT_EQ(rank.at("class"), "stage 0");
    EXPECT_EQ(rank.at("streams").at("dp").at("busy_s"), 1.5);
    EXPECT_EQ(rank.at("streams").at("dp").at("exposed_s"), 0.5);
    EXPECT_EQ(rank.at("streams").at("dp").at("bytes_sent"), 77);
    EXPECT_EQ(rank.at("streams").size(), static_cast<std::size_t>(kStreamCount));
    EXPECT_EQ(rank.at("memory_peak_bytes"), 1000);
    EXPECT_EQ(rank.at("memory_live_peak_bytes"), 900);
    const Json& span = rank.at("spans").at(0);
    EXPECT_EQ(span.at("key"), key_of(program, 0, {}));
    EXPECT_EQ(span.at("stream"), "compute");
    EXPECT_EQ(span.at("ready_us"), 1e-6);
    EXPECT_EQ(span.at("begin_us"), 2.0);
    EXPECT_EQ(span.at("end_us"), 2.5);
}

TEST(RunRecordJson, IsReadBack) {
    const Program program = make_program({.dp = 2});
    RunRecord record = sample_record();
    record.plan_name = program.plan->name;
    const std::string text = to_json_text(record, program);
    EXPECT_EQ(to_json_text(run_record_from_json_text(text, "r.json", program), program), text);
    record.first_step = 0;
    record.checkpoint_seconds.clear();
    const std::string short_text = to_json_text(record, program);
    EXPECT_FALSE(Json::parse(short_text).contains("first_step"));
    EXPECT_FALSE(Json::parse(short_text).contains("checkpoints"));
    EXPECT_EQ(to_json_text(run_record_from_json_text(short_text, "r.json", program), program), short_text);
}

TEST(RunRecordJson, LeavesSpansOutWhenThereAreNone) {
    RunRecord record = sample_record();
    record.ranks[0].spans.clear();
    EXPECT_FALSE(Json::parse(to_json_text(record, make_program({}))).at("ranks").at(0).contains("spans"));
}

TEST(RunRecordJson, RefusesValuesThatAreNotFinite) {
    const Program program = make_program({});
    RunRecord record = sample_record();
    record.losses[1] = std::numeric_limits<double>::quiet_NaN();
    EXPECT_THROW((void)to_json_text(record, program), BugError);
    record = sample_record();
    record.step_time_s = std::numeric_limits<double>::infinity();
    EXPECT_THROW((void)to_json_text(record, program), BugError);
}

TEST(RunRecordJson, RefusesTimesThatOverflowPicoseconds) {
    const Program program = make_program({.dp = 2});
    RunRecord record = sample_record();
    record.plan_name = program.plan->name;
    const std::string text = to_json_text(record, program);
    for (const char* key : {"begin_us", "ready_us", "end_us", "busy_s"}) {
        Json document = Json::parse(text);
        Json& rank = document["ranks"][0];
        (std::string(key) == "busy_s" ? rank["streams"]["compute"] : rank["spans"][0])[key] = 1e24;
        try {
            (void)run_record_from_json_text(document.dump(), "r", program);
            FAIL() << key;
        } catch (const InputError& error) {
            EXPECT_NE(std::string(error.what()).find(std::string(key) + ": got 1e+24; allowed: a number of at least 0"),
                      std::string::npos)
                << error.what();
        }
    }
}

/// The schema names exactly the keys that are written, so that they must change together.
void expect_keys(const Json& object, const Json& schema, const std::string& where) {
    for (const auto& [key, value] : object.items()) EXPECT_TRUE(schema.at("properties").contains(key)) << where << key;
    for (const Json& key : schema.at("required")) EXPECT_TRUE(object.contains(key.get<std::string>())) << where << key;
    for (const auto& [key, value] : schema.at("properties").items()) EXPECT_TRUE(object.contains(key)) << where << key;
    EXPECT_EQ(schema.at("additionalProperties"), false) << where;
}

TEST(RunRecordJson, HasExactlyTheKeysOfItsSchema) {
    const Json schema = Json::parse(read_text_file(ORRERY_SOURCE_DIR "/docs/schema/orrery.run_record.1.schema.json"));
    RunRecord sample = sample_record();
    sample.ranks[0].spreads.resize(sample.ranks[0].spans.size());
    sample.ranks[0].collectives = {{Stream::dp, CommKind::all_reduce, 70}};
    sample.ranks[0].device_memory.tensors = 7;
    sample.step_time_low_s = 1;
    sample.step_time_high_s = 3;
    sample.memory_needed_bytes = 7;
    sample.memory_allowed_bytes = 8;
    Plan plan = samples::make_plan({.dp = 2});
    plan.cluster.device.memory_capacity_gib.value = 80;
    const Json record = Json::parse(to_json_text(sample, lower(plan)));
    const Json& definitions = schema.at("$defs");
    expect_keys(record, schema, "/");
    expect_keys(record.at("checkpoints"), schema.at("properties").at("checkpoints"), "checkpoints/");
    const Json& rank = record.at("ranks").at(0);
    expect_keys(rank, definitions.at("rank"), "rank/");
    expect_keys(rank.at("spans").at(0), definitions.at("span"), "span/");
    expect_keys(rank.at("collectives").at(0), definitions.at("collective"), "collective/");
    const Json& streams = definitions.at("rank").at("properties").at("streams");
    expect_keys(rank.at("streams"), streams, "streams/");
    for (const auto& [name, stream] : rank.at("streams").items()) {
        expect_keys(stream, definitions.at("stream"), name + "/");
    }
    EXPECT_EQ(schema.at("properties").at("schema").at("const"), record.at("schema"));
}

TEST(RunRecordJson, RoundTrips) {
    const Program program = make_program({.dp = 2});
    RunRecord record = sample_record();
    record.step_seconds = {0.5, 0.25, 0.75};
    summarise_steps(record);
    RankRecord& rank = record.ranks[0];
    rank.collectives = {{Stream::dp, CommKind::all_reduce, 70}, {Stream::dp, CommKind::all_gather, 7}};
    rank.memory = memory_parts(program.classes[0].memory);
    rank.spreads.assign(rank.spans.size(), {1'000'000, 2'000'000, 4'000'000, 500'000});
    const RunRecord back = run_record_from_json_text(to_json_text(record, program), "record.json", program);
    EXPECT_EQ(back.step_time_p5_s, 0.275);
    EXPECT_EQ(back.step_time_p95_s, 0.725);
    ASSERT_EQ(back.ranks.size(), record.ranks.size());
    EXPECT_EQ(back.ranks[0].collectives, rank.collectives);
    ASSERT_EQ(back.ranks[0].memory.size(), rank.memory.size());
    EXPECT_EQ(back.ranks[0].memory[0].part, "parameters");
    EXPECT_EQ(back.ranks[0].memory[0].bytes, program.classes[0].memory.parameters);
    ASSERT_EQ(back.ranks[0].spreads.size(), rank.spans.size());
    EXPECT_EQ(back.ranks[0].spreads[0].p5_ps, 1'000'000);
    EXPECT_EQ(back.ranks[0].spreads[0].median_ps, 2'000'000);
    EXPECT_EQ(back.ranks[0].spreads[0].p95_ps, 4'000'000);
    EXPECT_EQ(back.ranks[0].spreads[0].median_wait_ps, 500'000);
}

TEST(RunRecordJson, RefusesSpansThatEndBeforeTheyBegin) {
    const Program program = make_program({.dp = 2});
    Json record = Json::parse(to_json_text(sample_record(), program));
    record["ranks"][0]["spans"][0]["end_us"] = 1.5;
    try {
        (void)run_record_from_json_text(record.dump(), "r.json", program);
        FAIL();
    } catch (const InputError& error) {
        EXPECT_EQ(std::string(error.what()), "r.json: /ranks/0/spans/0/end_us: got 1.5; allowed: at least begin_us");
    }
}

TEST(MemoryParts, SumToTheArenaAndTheHost) {
    for (const DataParallel kind : {DataParallel::ddp, DataParallel::zero1, DataParallel::zero3}) {
        const Program program = make_program({.dp = 2, .pp = 2, .data_parallel = kind});
        for (const RankClass& rank_class : program.classes) {
            std::int64_t sum = 0;
            for (const MemoryPart& part : memory_parts(rank_class.memory)) sum += part.bytes;
            EXPECT_EQ(sum, rank_class.memory.arena + rank_class.memory.host);
        }
    }
}

TEST(MemoryParts, IncludeFp32CopiesOf16BitOperandsOnCpus) {
    const auto footprint = [](bool bf16, bool on_host) {
        Plan plan = samples::make_plan({.bf16 = bf16});
        plan.cluster.device.host_runs_compute = on_host;
        return lower(plan).classes[0].memory;
    };
    EXPECT_EQ(footprint(false, true).conversions, 0);
    EXPECT_EQ(footprint(true, false).conversions, 0);
    // The head's GEMM: x[T,h], weight[V,h] and logits[T,V], which are fp32 if the loss is fused with it.
    const Plan plan = samples::make_plan({.bf16 = true});
    const std::int64_t tokens = plan.training.sequence_length * plan.training.micro_batch_size;
    const MemoryFootprint memory = footprint(true, true);
    EXPECT_GE(memory.conversions, 4 * (tokens + plan.model.vocab) * plan.model.hidden);
    EXPECT_LE(memory.conversions, 4 * (tokens + plan.model.vocab) * 4 * plan.model.hidden);
    EXPECT_EQ(memory.allocated(true), memory.arena + memory.host + memory.conversions);
    EXPECT_EQ(memory_parts(memory).back().part, "conversions");
}

TEST(Percentile, IsInterpolatedLinearly) {
    EXPECT_EQ(percentile({3}, 0.95), 3);
    EXPECT_EQ(percentile({4, 1, 2}, 0.5), 2);
    EXPECT_EQ(percentile({4, 1, 2, 3}, 0.5), 2.5);
    EXPECT_EQ(percentile({0, 10}, 0.05), 0.5);
    EXPECT_EQ(percentile({0, 10}, 1), 10);
    EXPECT_THROW((void)percentile({}, 0.5), BugError);
}

}  // namespace
}  // namespace orrery::program
