#include "reports/explanation.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "core/error.h"
#include "tests/house/json_schema.h"
#include "tests/unit/reports/tiny_program.h"

namespace orrery::reports {
namespace {

using program::CommKind;
using program::GroupAxis;
using program::Space;
using program::Stream;
using tiny::compute;
using tiny::group;

constexpr std::int64_t kMebibyte = 1 << 20;

/// A step of 20 us: a forward of 10 us that leaves an activation of 3 MiB, a reduction of 4 us including 1 us of
/// waiting, and a backward of 5 us with a transient of 1 MiB.
tiny::Step sample_step() {
    const std::int64_t us = sample::kMicrosecond;
    tiny::Step step =
        tiny::step(20 * us, {compute(0, 10 * us),
                             {group(Stream::tp, GroupAxis::tp, CommKind::all_reduce, {0}), 10 * us, 11 * us, 14 * us},
                             compute(14 * us, 19 * us, {1})});
    program::Body forward = step.program.bodies[0], backward = forward;
    program::Slot saved{.decl = {.name = "attention.qkv"}, .space = Space::activation, .bytes = 3 * kMebibyte};
    program::Slot scratch{.decl = {.name = "dqkv"}, .space = Space::transient, .bytes = kMebibyte};
    forward.instructions.pop_back();
    forward.slots = {saved};
    forward.operators = {{.kind = models::OpKind::linear_forward, .out = {0}}};
    forward.instructions[0].operator_count = 1;
    backward.phase = program::Phase::backward;
    backward.slots = {saved, scratch};
    backward.operators = {{.kind = models::OpKind::attention_backward, .in = {0}, .out = {1}}};
    backward.instructions = {tiny::on(Stream::compute, "attention")};
    backward.instructions[0].operator_count = 1;
    program::count_streams(forward);
    program::count_streams(backward);
    step.program.bodies = {forward, backward};
    program::RankClass& ranks = step.program.classes[0];
    ranks.segment_lists = {{program::Segment{.body = 0}}, {program::Segment{.body = 1}}};
    ranks.actions = {
        program::Action{.kind = program::ActionKind::forward, .micro_batch = 0},
        program::Action{
            .kind = program::ActionKind::backward, .micro_batch = 0, .segments = 1, .first_wait = 0, .wait_count = 1}};
    ranks.waits = {{0, Stream::tp, 0}};
    ranks.memory.parameters = 8 * kMebibyte;
    ranks.memory.live_peak = 12 * kMebibyte;
    ranks.memory.arena = 13 * kMebibyte;
    ranks.memory.peak_action = 1;
    step.record.ranks[0].spans[2] = {1, 0, 0, 14 * us, 14 * us, 19 * us};
    step.record.notes = {"a note"};
    return step;
}

std::vector<PathElement> sample_path(const tiny::Step& step) {
    const std::int64_t us = sample::kMicrosecond;
    const auto& spans = step.record.ranks[0].spans;
    // Delayed for 2 us by the previous step, which is left out.
    return {{0, spans[0], TimePart::idle, -2 * us, 0, 10 * us},
            {0, spans[1], TimePart::host, 10 * us, 11 * us, 14 * us},
            {0, spans[2], TimePart::host, 14 * us, 14 * us, 19 * us}};
}

Explanation sample_explanation() {
    const tiny::Step step = sample_step();
    return explain(step.program, step.record, tiny::same_weight, sample_path(step));
}

TEST(Explanation, Text) {
    EXPECT_EQ(explanation_text(sample_explanation()), R"(sample (predicted): dp 1 x tp 2 x pp 1, a step of 20.0 us

Time of a rank's compute stream: computation by kind, idle time by cause
  part                  mean  of step
  -----------------  -------  -------
  attention          5.00 us    25.0%
  matrix products    10.0 us    50.0%
  exposed tp         4.00 us    20.0%
  idle, end of step  1.00 us     5.0%
  -----------------  -------  -------
  step               20.0 us   100.0%

Communication and copies, mean over the ranks; hidden: overlapped with computation
  group     busy  hidden  exposed  waiting for members
  -----  -------  ------  -------  -------------------
  tp     3.00 us     0 s  4.00 us              1.00 us

Critical path: 19.0 us from the step's first instruction to its last
  part             on the path  share
  ---------------  -----------  -----
  attention            5.00 us  26.3%
  matrix products      10.0 us  52.6%
  tp                   3.00 us  15.8%
  host                 1.00 us   5.3%

  Its stretches
     from     time  rank  stage    action           mainly
  -------  -------  ----  -------  ---------------  -------------------------------
      0 s  14.0 us     0  stage 0  forward c0 mb0   matrix products 71.4%, tp 21.4%
  14.0 us  5.00 us     0  stage 0  backward c0 mb0  attention 100.0%

Memory of a rank at its live peak, without the device's context
  stage    parameters  activations  transients  live peak
  -------  ----------  -----------  ----------  ---------
  stage 0    8.00 MiB     3.00 MiB    1.00 MiB   12.0 MiB

Live at the peak beyond what is always live: the largest slots (in brackets: their number)
  stage 0, in backward c0 mb0: 1 of 4 micro-batches
    activations 3.00 MiB: attention.qkv 3.00 MiB
    transients 1.00 MiB: dqkv 1.00 MiB

Notes
  - a note
)");
}

TEST(Explanation, MemoryAtThePeak) {
    const Explanation explanation = sample_explanation();
    ASSERT_EQ(explanation.memory.size(), 1U);
    const program::PeakContents& peak = explanation.memory[0].peak;
    EXPECT_EQ(explanation.memory[0].peak_action, "backward c0 mb0");
    EXPECT_EQ(peak.micro_batches, 1);
    EXPECT_EQ(peak.activation_bytes, 3 * kMebibyte);
    EXPECT_EQ(peak.transient_bytes, kMebibyte);
    ASSERT_EQ(peak.slots.size(), 2U);
    EXPECT_EQ(peak.slots[0].name, "attention.qkv");
    EXPECT_FALSE(peak.slots[0].transient);
    EXPECT_EQ(peak.slots[1].name, "dqkv");
    EXPECT_TRUE(peak.slots[1].transient);
}

TEST(Explanation, PathCountsFromItsFirstInstruction) {
    const CriticalPath path = sample_explanation().path;
    const std::int64_t us = sample::kMicrosecond;
    EXPECT_EQ(path.length_ps, 19 * us);
    ASSERT_EQ(path.stretches.size(), 2U);
    EXPECT_EQ(path.stretches[0].action, "forward c0 mb0");
    EXPECT_EQ(path.stretches[0].instructions, 2);
    EXPECT_EQ(path.stretches[0].parts[TimePart::host], us);
    EXPECT_EQ(path.stretches[0].parts[TimePart::tp], 3 * us);
    EXPECT_EQ(path.stretches[0].to_ps, 14 * us);
    EXPECT_EQ(path.stretches[1].parts[TimePart::attention], path.stretches[1].to_ps - path.stretches[1].from_ps);
    const tiny::Step step = sample_step();
    std::vector<PathElement> broken = sample_path(step);
    broken[1].from_ps += 1;
    EXPECT_THROW((void)explain(step.program, step.record, tiny::same_weight, broken), BugError);
}

TEST(Explanation, JsonConformsToItsSchema) {
    const auto schemas = house::repository_schemas(ORRERY_SOURCE_DIR);
    const std::string text = explanation_json(sample_explanation());
    EXPECT_EQ(schemas.check(text), "");
    const auto document = nlohmann::json::parse(text);
    EXPECT_EQ(document.at("step_ps"), 20 * sample::kMicrosecond);
    EXPECT_EQ(document.at("mean").at("parts_ps").at("tp"), 4 * sample::kMicrosecond);
    EXPECT_EQ(document.at("mean").at("parts_ps").size(), kTimePartCount);
    EXPECT_EQ(document.at("mean").at("communication").at(0).at("waiting_ps"), sample::kMicrosecond);
    EXPECT_EQ(document.at("memory").at(0).at("bytes").at("activations"), 3 * kMebibyte);
    const tiny::Step step = sample_step();
    EXPECT_EQ(schemas.check(explanation_json(explain(step.program, step.record, tiny::same_weight, {}))), "");
}

}  // namespace
}  // namespace orrery::reports
