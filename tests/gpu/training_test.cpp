// Trains whole plans on the GPU and compares their losses with those on the CPU.
#include <cmath>
#include <cstring>
#include <vector>

#include "exec/cpu/backend.h"
#include "exec/device/device_backend.h"
#include "exec/interpreter.h"
#include "tests/gpu/gpu.h"
#include "tests/unit/program/sample_plans.h"

namespace orrery::exec {
namespace {

constexpr std::int64_t kSteps = 3;

RunTimes train(const program::Program& program, Backend& backend) {
    FlightRecorder recorder;
    recorder.follow(program, 0);
    Interpreter interpreter(program, 0, 1, backend, recorder);
    return interpreter.run(kSteps);
}

class TrainingOnGpu : public OnGpu {
  protected:
    static void compare(const std::string& model, std::int64_t offload_layers, double clip_norm) {
        program::Plan plan = program::samples::make_plan({.model = model});
        plan.training.memory.offload_layers = offload_layers;
        plan.training.optimizer.clip_norm = clip_norm;
        const program::Program program = program::lower(plan);
        CpuBackend cpu(world_of_one());
        DeviceBackend gpu(make_cuda_device(0, world_of_one()), world_of_one().recorder());
        const RunTimes expected = train(program, cpu);
        const RunTimes got = train(program, gpu);
        ASSERT_EQ(got.steps.size(), expected.steps.size());
        for (std::size_t step = 0; step < got.steps.size(); ++step) {
            const double loss = expected.steps[step].loss_sum;
            EXPECT_NEAR(got.steps[step].loss_sum, loss, 1e-4 * std::abs(loss)) << model << ", step " << step;
            EXPECT_LT(got.steps[step].begin_ns, got.steps[step].end_ns);
            for (const program::Span& span : got.steps[step].spans) EXPECT_LE(span.begin_ps, span.end_ps);
        }
    }
};

TEST_F(TrainingOnGpu, Gpt2) {
    compare("tiny-gpt", 0, 0);
}
TEST_F(TrainingOnGpu, Gpt2ClippedAndOffloaded) {
    compare("tiny-gpt", 2, 0.5);
}
TEST_F(TrainingOnGpu, Llama) {
    compare("tiny-llama", 0, 0);
}
TEST_F(TrainingOnGpu, LlamaClippedAndOffloaded) {
    compare("tiny-llama", 2, 0.5);
}

}  // namespace
}  // namespace orrery::exec
