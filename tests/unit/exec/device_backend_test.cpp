// The ordering of DeviceBackend, tested on a fake device that executes work as late and in as random an order as
// allowed.
#include "exec/device/device_backend.h"

#include <gtest/gtest.h>

#include <cmath>

#include "core/error.h"
#include "exec/interpreter.h"
#include "tests/unit/exec/fake_device.h"
#include "tests/unit/program/sample_plans.h"

namespace orrery::exec {
namespace {

using program::Plan;
using program::Stream;
using program::samples::Sample;

constexpr std::int64_t kSteps = 3;

struct Outcome {
    std::vector<double> losses;
    std::vector<float> parameters;
    std::vector<StepTimes> steps;
    bool operator==(const Outcome& other) const { return losses == other.losses && parameters == other.parameters; }
};

Outcome train(const program::Program& program, const FakeDevice::Options& options) {
    FlightRecorder recorder;
    DeviceBackend backend(std::make_unique<FakeDevice>(options), recorder);
    recorder.follow(program, 0);
    Interpreter interpreter(program, 0, 1, backend, recorder);
    Outcome outcome;
    outcome.steps = interpreter.run(kSteps).steps;
    for (const StepTimes& step : outcome.steps) outcome.losses.push_back(step.loss_sum);
    const std::int64_t elements = program.classes.front().parameter_elements;
    outcome.parameters.resize(static_cast<std::size_t>(elements));
    const std::int64_t bytes = elements * static_cast<std::int64_t>(sizeof(float));
    backend.read(interpreter.arena().parameters(), bytes, [&](const std::byte* values) {
        std::memcpy(outcome.parameters.data(), values, static_cast<std::size_t>(bytes));
    });
    return outcome;
}

program::Program one_rank(const std::string& model, std::int64_t offload_layers, double clip_norm) {
    Plan plan = program::samples::make_plan({.model = model});
    plan.training.memory.offload_layers = offload_layers;
    plan.training.optimizer.clip_norm = clip_norm;
    return program::lower(plan);
}

TEST(DeviceBackend, ResultsDoNotDependOnTheOrderOfTheDevice) {
    for (const char* model : {"tiny-gpt", "tiny-llama"}) {
        for (const std::int64_t offload_layers : {0, 2}) {
            const program::Program program = one_rank(model, offload_layers, 0.5);
            const Outcome expected = train(program, {.in_order = true});
            ASSERT_TRUE(std::isfinite(expected.losses.back()));
            EXPECT_LT(expected.losses.back(), expected.losses.front());
            for (const std::uint64_t seed : {1, 2, 3}) {
                EXPECT_TRUE(train(program, {.seed = seed}) == expected) << model << ", seed " << seed;
            }
        }
    }
}

TEST(DeviceBackend, ResultsAreWrongWithoutEvents) {
    const program::Program program = one_rank("tiny-gpt", 2, 0);
    const Outcome expected = train(program, {.in_order = true});
    int wrong = 0;
    for (const std::uint64_t seed : {1, 2, 3}) {
        wrong += train(program, {.seed = seed, .ignores_events = true}) == expected ? 0 : 1;
    }
    EXPECT_EQ(wrong, 3);
}

TEST(DeviceBackend, TimesFollowTheDependencies) {
    const program::Program program = one_rank("tiny-gpt", 2, 0);
    const Outcome outcome = train(program, {.seed = 7});
    const program::RankClass& rank_class = program.classes.front();
    program::PerStream<std::int64_t> last_end{};
    std::size_t checked = 0;
    const std::vector<program::Span>& spans = outcome.steps.back().spans;
    for (std::size_t i = 0; i < spans.size(); ++i) {
        const program::Action& action = rank_class.actions[spans[i].action];
        const program::Segment& segment = rank_class.segment_lists[action.segments][spans[i].segment];
        const auto& instructions = program.bodies[segment.body].instructions;
        const program::Instruction& instruction = instructions[spans[i].instruction];
        EXPECT_LE(spans[i].begin_ps, spans[i].end_ps);
        std::int64_t& last = last_end[instruction.stream];
        EXPECT_LE(last, spans[i].begin_ps);
        last = spans[i].end_ps;
        for (const program::InstructionIndex earlier : instruction.after) {
            const std::size_t at = i - static_cast<std::size_t>(spans[i].instruction - earlier);
            EXPECT_LE(spans[at].end_ps, spans[i].begin_ps) << instruction.name;
            ++checked;
        }
    }
    EXPECT_GT(checked, 0U);
    EXPECT_LT(outcome.steps[0].end_ns, outcome.steps[1].end_ns);
}

/// Where a preempted host compares the clocks, the times of the device are wrong by some milliseconds.
TEST(DeviceBackend, WorkOfTheHostIsInOrderThoughTheClocksDisagree) {
    for (const std::int64_t ahead_ns : {-1'000'000'000, 1'000'000'000}) {
        FlightRecorder recorder;
        DeviceBackend backend(std::make_unique<FakeDevice>(FakeDevice::Options{.ahead_of_host_ns = ahead_ns}),
                              recorder);
        OperationTimes before, on_host, after;
        const models::ModelSpec model;
        const OperatorContext context{.model = &model};
        LocalWork work{.stream = Stream::compute, .operators = {}, .times = &before};
        const std::int64_t first = backend.run(work, context);
        work = {.stream = Stream::host, .operators = {}, .times = &on_host};
        work.after[Stream::compute] = first;
        static_cast<void>(backend.run(work, context));
        work = {.stream = Stream::compute, .operators = {}, .times = &after};
        static_cast<void>(backend.run(work, context));
        std::int64_t end_ns = 0;
        backend.stamp(&end_ns);
        backend.wait_all();
        EXPECT_LE(before.begin_ns, before.end_ns);
        EXPECT_LE(before.end_ns, on_host.ready_ns);
        EXPECT_LE(on_host.begin_ns, on_host.end_ns);
        EXPECT_LE(on_host.end_ns, after.ready_ns);
        EXPECT_LE(after.end_ns, end_ns);
    }
}

TEST(DeviceBackend, OutOfMemoryErrorHasTheBreakdown) {
    const program::Program program = one_rank("tiny-gpt", 0, 0);
    try {
        train(program, {.memory_bytes = 1 << 16});
        FAIL() << "a device of 64 KiB was enough";
    } catch (const JobError& error) {
        const std::string text = error.what();
        EXPECT_NE(text.find("optimizer states"), std::string::npos) << text;
        EXPECT_NE(text.find("the device has 0.000 GiB of free memory"), std::string::npos) << text;
    }
}

/// Its streams stand still while the host waits.
class SlowDevice : public FakeDevice {
  public:
    SlowDevice() : FakeDevice(FakeDevice::Options{}) {}
    void synchronize(Event event, const std::function<void()>& meanwhile) override {
        meanwhile();
        FakeDevice::synchronize(event, meanwhile);
    }
};

/// Otherwise a job whose GPUs hang would look as if it computed.
TEST(DeviceBackend, WaitsForTheDeviceAreVisible) {
    FlightRecorder recorder;
    DeviceBackend backend(std::make_unique<SlowDevice>(), recorder);
    auto* const memory = backend.reserve(64, 0, "a test needs").device;
    OperationTimes times;
    for (int i = 0; i < 2; ++i) {
        static_cast<void>(backend.run({.stream = Stream::side, .operators = {}, .times = &times}, {}));
    }
    backend.clear(memory, 64);
    EXPECT_FALSE(recorder.snapshot().waits());
    const std::uint64_t before = recorder.snapshot().messages;
    recorder.ask();
    backend.wait(Stream::side, 2);
    const RankSnapshot after = recorder.snapshot();
    EXPECT_EQ(after.pending, "side: instruction 1 waits on the device, 1 are queued behind it");
    EXPECT_EQ(after.messages, before + 2);
    EXPECT_FALSE(after.waits());
}

TEST(DeviceBackend, FetchAndStampBelongToTheInstructionBefore) {
    FlightRecorder recorder;
    DeviceBackend backend(std::make_unique<FakeDevice>(FakeDevice::Options{}), recorder);
    auto* memory = reinterpret_cast<double*>(backend.reserve(64, 0, "a test needs").device);
    const std::vector<double> values{3.5};
    backend.write(memory, sizeof(double), [&](std::byte* host) { std::memcpy(host, values.data(), sizeof(double)); });
    OperationTimes times;
    const models::Operator clear{.kind = models::OpKind::clear, .elements = 2};
    BoundOperator bound{.op = &clear, .at = {}};
    bound.at.out[0] = memory + 1;
    const models::ModelSpec model;
    const OperatorContext context{.model = &model};
    EXPECT_EQ(backend.run({.operators = std::span(&bound, 1), .times = &times}, context), 1);
    double value = 0;
    std::int64_t ns = 0;
    backend.fetch(memory, &value);
    backend.stamp(&ns);
    EXPECT_EQ(value, 0) << "the device has not executed anything yet";
    backend.wait(Stream::compute, 1);
    EXPECT_EQ(value, 3.5);
    EXPECT_LT(times.begin_ns, times.end_ns);
    EXPECT_LT(times.end_ns, ns);
    EXPECT_THROW(backend.wait(Stream::compute, 2), BugError);
}

}  // namespace
}  // namespace orrery::exec
