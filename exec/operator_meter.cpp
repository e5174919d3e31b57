#include "exec/operator_meter.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <string>

#include "core/error.h"
#include "exec/clock.h"
#include "exec/cpu/backend.h"
#include "exec/host_memory.h"
#include "exec/interpreter.h"
#include "models/implementation.h"
#include "sim/program/program.h"

namespace orrery::exec {
namespace {

constexpr std::int64_t kLayers = 3;  // enough that the backward pass finds little of the forward pass in the caches
constexpr std::int64_t kFewestSteps = 3, kMostSteps = 20;  // timed steps of a model, after one warm-up step
constexpr double kEnoughFlops = 2e10;                      // FLOPs of a model's timed steps, within these limits

/// One rank's shard of a model, and its micro-batch.
struct Shape {
    bool llama = false;
    std::int64_t hidden = 0, heads = 0, kv_heads = 0, head_dim = 0, ffn = 0, vocab = 0, sequence = 0, micro_batch = 0;
};

/// Widths, sequence lengths, vocabularies and shards of both model families, as small machines train them.
const std::array<Shape, 14> kShapes{{
    {false, 64, 4, 4, 16, 256, 128, 32, 1},
    {true, 64, 4, 2, 16, 176, 128, 64, 2},
    {false, 256, 4, 4, 64, 1024, 2048, 64, 2},
    {false, 256, 2, 2, 64, 512, 1024, 128, 4},
    {true, 256, 4, 2, 64, 704, 4096, 128, 2},
    {false, 512, 8, 8, 64, 2048, 8192, 128, 1},
    {false, 512, 4, 4, 64, 1024, 4096, 256, 2},
    {true, 512, 8, 4, 64, 1408, 8192, 256, 1},
    {false, 768, 12, 12, 64, 3072, 50304, 128, 1},
    {false, 768, 12, 12, 64, 3072, 16384, 128, 2},
    {false, 768, 6, 6, 64, 1536, 25216, 128, 2},
    {true, 1024, 16, 8, 64, 2816, 16384, 256, 1},
    {false, 1024, 8, 8, 128, 4096, 8192, 512, 1},
    {true, 2048, 16, 4, 128, 2816, 8192, 128, 1},
}};

models::ModelSpec model_of(const Shape& shape) {
    models::ModelSpec model;
    model.name = "calibration";
    model.family = shape.llama ? "llama" : "gpt2";
    model.layers = kLayers;
    model.hidden = shape.hidden;
    model.heads = shape.heads;
    model.kv_heads = shape.kv_heads;
    model.head_dim = shape.head_dim;
    model.ffn_hidden = shape.ffn;
    model.vocab = shape.vocab;
    model.max_positions = shape.sequence;
    model.norm = shape.llama ? models::NormKind::rms_norm : models::NormKind::layer_norm;
    model.position = shape.llama ? models::PositionKind::rotary : models::PositionKind::learned;
    model.mlp = shape.llama ? models::MlpKind::swiglu : models::MlpKind::gelu;
    model.qkv_bias = model.attention_output_bias = model.mlp_bias = !shape.llama;
    model.qk_norm = shape.llama && shape.hidden == 256;  // one shape with qk_norm suffices for its curve over bytes
    model.tied_embeddings = !shape.llama;
    return model;
}

program::Plan plan_of(const Shape& shape, const char* precision) {
    program::Plan plan;
    plan.name = "calibration";
    plan.model = model_of(shape);
    plan.cluster.name = "local";
    plan.cluster.device.host_runs_compute = true;
    plan.implementation = models::load_implementation("orrery");
    plan.parallelism.stage_layers = {kLayers};
    plan.training.sequence_length = shape.sequence;
    plan.training.micro_batch_size = plan.training.global_batch_size = shape.micro_batch;
    plan.training.precision = program::precision_named(precision, plan.implementation);
    return plan;
}

std::int64_t timed_steps(const program::Plan& plan) {
    const double flops = models::model_flops_per_sequence(plan.model, plan.training.sequence_length,
                                                          models::FlopsConvention::causal_half) *
                         static_cast<double>(plan.training.micro_batch_size);
    return std::clamp(static_cast<std::int64_t>(kEnoughFlops / flops), kFewestSteps, kMostSteps);
}

/// A CPU backend that records the time of each operator.
class TimingBackend final : public CpuBackend {
  public:
    TimingBackend(Transport& transport, OperatorSamples& samples) : CpuBackend(transport), samples_(samples) {}
    void start_timing() { is_timing_ = true; }

  protected:
    void run_operator(const BoundOperator& one, const OperatorContext& context) override {
        const std::int64_t begin = now_ns();
        CpuBackend::run_operator(one, context);
        const std::int64_t end = now_ns();
        if (is_timing_) samples_.add(*one.op, static_cast<double>(end - begin) * 1e-9);
    }

  private:
    OperatorSamples& samples_;
    bool is_timing_ = false;
};

void train(const program::Program& program, Transport& transport, OperatorSamples& samples) {
    TimingBackend backend(transport, samples);
    Interpreter interpreter(program, 0, 1, backend, transport.recorder());
    interpreter.run(1 + timed_steps(*program.plan), {.before_optimizer = {},
                                                     .after =
                                                         [&](std::int64_t) {
                                                             backend.start_timing();
                                                             return false;
                                                         },
                                                     .ends_before = {}});
}

}  // namespace

void measure_operators(Transport& transport, TimedOperators which, OperatorSamples& samples) {
    // All ranks read the free memory before any of them allocates.
    const std::int64_t share = available_memory_bytes() / std::max(1, transport.ranks_on_host());
    transport.barrier();
    bool fits = false;
    const auto measure = [&](const Shape& shape, const char* precision) {
        const program::Program program = program::lower(plan_of(shape, precision));
        if (program.classes.front().memory.allocated(true) > share) return;
        fits = true;
        train(program, transport, samples);
    };
    constexpr std::size_t kSmallest = 4;
    const std::size_t shapes = which == TimedOperators::of_all ? kShapes.size() : kSmallest;
    for (std::size_t i = 0; i < shapes; ++i) measure(kShapes.at(i), "fp32");
    // A bf16 GEMM is an fp32 GEMM between conversions, so every other shape suffices.
    for (std::size_t i = 0; i < shapes; i += 2) measure(kShapes.at(i), "bf16");
    if (!fits) throw JobError("too little memory to time operators: " + gib_text(share) + " is free for each rank");
}

}  // namespace orrery::exec
