#include "exec/calibrate.h"

#include <malloc.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <fstream>
#include <functional>
#include <memory>
#include <numeric>
#include <optional>
#include <string>

#include "core/error.h"
#include "core/units.h"
#include "exec/cpu/cpu_operators.h"
#include "exec/host_memory.h"
#include "exec/operator_samples.h"
#include "exec/transport/progress.h"
#include "models/layer.h"

namespace orrery::exec {
namespace {

using models::Operator;
using models::OpKind;
using program::CommKind;
using program::Stream;

/// Operands rotate through a pool larger than a core's private caches, as they do in training.
constexpr std::int64_t kPoolBytes = std::int64_t{384} << 20;
constexpr int kRepetitions = 5;
constexpr double kLongEnoughSeconds = 0.15;  // stop repeating an operator after this long, with two timings at least

double seconds_since(std::int64_t begin_ns) {
    return static_cast<double>(now_ns() - begin_ns) * 1e-9;
}

double median(std::vector<double> values) {
    std::sort(values.begin(), values.end());
    const std::size_t middle = values.size() / 2;
    return values.size() % 2 == 1 ? values[middle] : (values[middle - 1] + values[middle]) / 2;
}

/// A shape to draw operators from: what one rank holds of a model.
struct Shape {
    bool llama = false;
    std::int64_t hidden = 0, heads = 0, kv_heads = 0, head_dim = 0, ffn = 0, vocab = 0, sequence = 0, micro_batch = 0;
};

/// Spread over what small machines train: widths, sequence lengths, both families, shards of both.
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
    model.layers = 1;
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
    model.qk_norm = shape.llama && shape.hidden == 256;  // one shape with it is enough for a curve over bytes
    return model;
}

/// Hands out operand memory from the rotating pool, filled with harmless values.
class Pool {
  public:
    Pool() : memory_(static_cast<std::size_t>(kPoolBytes / 4)) {
        for (std::size_t i = 0; i < memory_.size(); ++i) memory_[i] = 0.5F + static_cast<float>(i % 1024) / 1024.0F;
    }
    [[nodiscard]] void* take(std::int64_t bytes) {
        const auto floats = static_cast<std::size_t>((bytes + 63) / 64 * 16);
        ORRERY_CHECK(floats <= memory_.size(), "an operand larger than the calibration pool");
        if (at_ + floats > memory_.size()) at_ = 0;
        void* result = memory_.data() + at_;
        at_ += floats;
        return result;
    }
    /// Undo what an operator left, so that values neither grow nor become denormal over repetitions.
    static void refill(void* memory, std::int64_t bytes) {
        auto* values = static_cast<float*>(memory);
        for (std::int64_t i = 0; i < bytes / 4; ++i) values[i] = 0.5F + static_cast<float>(i % 1024) / 1024.0F;
    }
    static void fill_tokens(void* memory, std::int64_t count, std::int64_t vocab) {
        auto* tokens = static_cast<std::int32_t*>(memory);
        for (std::int64_t i = 0; i < count; ++i) tokens[i] = static_cast<std::int32_t>((i * 7919) % vocab);
    }

  private:
    std::vector<float> memory_;
    std::size_t at_ = 0;
};

class ComputeMeter {
  public:
    explicit ComputeMeter(Measurements& result) : result_(result) {}

    void run() {
        for (const Shape& shape : kShapes) measure_layers(shape, DType::fp32);
        // Products in bf16 are those of fp32 between conversions: every other shape is enough of them.
        for (std::size_t i = 0; i < kShapes.size(); i += 2) measure_layers(kShapes[i], DType::bf16);
        for (std::int64_t elements :
             {std::int64_t{1} << 14, std::int64_t{1} << 18, std::int64_t{1} << 22, std::int64_t{1} << 24}) {
            measure_adamw(elements);
        }
        result_.best_flops_per_s = samples_.best_flops_per_s();
        result_.matmuls = samples_.take_matmuls();
        result_.operators = samples_.take_operators();
    }

    void measure_bandwidth() {
        const std::int64_t bytes = kPoolBytes / 4;
        void* from = pool_.take(bytes);
        void* to = pool_.take(bytes);
        std::vector<double> seconds;
        for (int i = 0; i < kRepetitions; ++i) {
            const std::int64_t begin = now_ns();
            std::memcpy(to, from, static_cast<std::size_t>(bytes));
            seconds.push_back(seconds_since(begin));
        }
        result_.memory_bytes_per_s = 2.0 * static_cast<double>(bytes) / median(seconds);
    }

  private:
    /// Parameters and activations in `dtype`, gradients of parameters in fp32.
    void measure_layers(const Shape& shape, DType dtype) {
        const models::ModelSpec model = model_of(shape);
        models::LayerContext context{.sequence = shape.sequence,
                                     .micro_batch = shape.micro_batch,
                                     .padded_vocab = shape.vocab,
                                     .parameter_dtype = dtype,
                                     .activation_dtype = dtype,
                                     .compute_dtype = dtype};
        context.implementation.kernels.fused_attention = context.implementation.kernels.causal_skip = true;
        const TokenSource data("synthetic", 1, shape.vocab, shape.sequence);
        for (models::LayerKind kind :
             {models::LayerKind::embedding, models::LayerKind::block, models::LayerKind::head}) {
            const models::Layer layer = models::build_layer(model, kind, context);
            for (const auto* steps : {&layer.forward, &layer.backward}) {
                for (const models::Step& step : *steps) {
                    if (const auto* op = std::get_if<Operator>(&step)) measure_once(model, data, layer, *op);
                }
            }
        }
    }

    void measure_once(const models::ModelSpec& model, const TokenSource& data, const models::Layer& layer,
                      const Operator& op) {
        if (!samples_.is_new(op)) return;
        std::vector<std::int64_t> samples(static_cast<std::size_t>(op.micro_batch));
        for (std::size_t i = 0; i < samples.size(); ++i) samples[i] = static_cast<std::int64_t>(i);
        const OperatorContext context{.model = &model, .loss_scale = 1e-3, .data = &data, .samples = samples};
        const auto take_operands = [&] {
            std::vector<void*> bound(layer.slots.size(), nullptr);
            const auto address = [&](models::SlotIndex slot) {
                void*& memory = bound[static_cast<std::size_t>(slot)];
                if (memory == nullptr) {
                    const models::SlotDecl& decl = layer.slots[static_cast<std::size_t>(slot)];
                    memory = pool_.take(decl.bytes());
                    if (decl.dtype == DType::int32) {
                        Pool::fill_tokens(memory, decl.elements(), model.vocab);
                        touched_.emplace_back(memory, decl.bytes());
                    }
                }
                return memory;
            };
            const OperatorPointers pointers = bind(
                op, [&](models::SlotIndex slot) -> const auto& { return layer.slots[static_cast<std::size_t>(slot)]; },
                address);
            for (std::size_t i = 0; i < pointers.out.size(); ++i) {
                if (op.out[i] == models::kNoSlot) continue;
                touched_.emplace_back(pointers.out[i], layer.slots[static_cast<std::size_t>(op.out[i])].bytes());
            }
            if (op.scratch != models::kNoSlot) touched_.emplace_back(pointers.scratch, pointers.scratch_bytes);
            return pointers;
        };
        samples_.add(op, time_of(take_operands,
                                 [&](const OperatorPointers& pointers) { operators_.run(op, pointers, context); }));
    }

    void measure_adamw(std::int64_t elements) {
        Operator op{.kind = OpKind::adamw, .elements = elements};
        // Parameters, gradients and both moments are read and written.
        op.bytes_read = op.bytes_written = 16.0 * static_cast<double>(elements);
        op.flops = 16.0 * static_cast<double>(elements);
        const models::ModelSpec model;
        const std::array<UpdateRange, 1> ranges{{{.elements = elements, .decays = true}}};
        const OperatorContext context{
            .model = &model,
            .optimizer = {.learning_rate = 1e-4, .beta1 = 0.9, .beta2 = 0.95, .epsilon = 1e-8, .weight_decay = 0.1},
            .updates = ranges};
        const auto take_operands = [&] {
            OperatorPointers pointers;
            for (std::size_t i = 0; i < 3; ++i) pointers.out[i] = pool_.take(elements * 4);
            pointers.in[0] = pointers.out[3] = pool_.take(elements * 4);
            for (std::size_t i = 0; i < 4; ++i) touched_.emplace_back(pointers.out[i], elements * 4);
            return pointers;
        };
        samples_.add(op, time_of(take_operands,
                                 [&](const OperatorPointers& pointers) { operators_.run(op, pointers, context); }));
    }

    double time_of(const std::function<OperatorPointers()>& take_operands,
                   const std::function<void(const OperatorPointers&)>& run) {
        std::vector<double> seconds;
        double total = 0;
        for (int i = 0; i <= kRepetitions; ++i) {
            const OperatorPointers pointers = take_operands();
            const std::int64_t begin = now_ns();
            run(pointers);
            const double one = seconds_since(begin);
            for (const auto& [memory, bytes] : touched_) Pool::refill(memory, bytes);
            touched_.clear();
            if (i > 0 || one > kLongEnoughSeconds) seconds.push_back(one);  // the first run warms code and tables
            total += one;
            if (total > kLongEnoughSeconds && seconds.size() >= 2) break;
        }
        return median(seconds);
    }

    Measurements& result_;
    Pool pool_;
    CpuOperators operators_;
    OperatorSamples samples_;
    std::vector<std::pair<void*, std::int64_t>> touched_;
};

class TransportMeter {
  public:
    TransportMeter(Transport& transport, Measurements& result)
        : transport_(transport), result_(result), world_(transport.world_size()) {
        std::vector<int> ranks(static_cast<std::size_t>(world_));
        std::iota(ranks.begin(), ranks.end(), 0);
        group_ = transport.create_group(ranks);
    }

    void run() {
        const std::int64_t largest = world_ > transport_.cores() ? std::int64_t{8} << 20 : std::int64_t{64} << 20;
        in_.assign(static_cast<std::size_t>(largest / 4), 1.0F);
        out_.assign(in_.size(), 0.0F);
        ProgressEngine engine(transport_);
        for (std::int64_t bytes = 64; bytes <= largest; bytes *= 8) {
            for (CommKind kind : {CommKind::all_reduce, CommKind::all_gather, CommKind::reduce_scatter}) {
                const double seconds = time_collective(engine, kind, bytes);
                result_.transfers.push_back({std::string(program::name_of(kind)), world_, bytes, seconds});
            }
            if (world_ == 2) result_.transfers.push_back({"send", 2, bytes, time_ping_pong(engine, bytes)});
        }
        result_.launch_s = time_launch(engine);
    }

    [[nodiscard]] GroupHandle group() const { return group_; }

  private:
    [[nodiscard]] static int repetitions(std::int64_t bytes) {
        return bytes <= (64 << 10) ? 60 : bytes <= (1 << 20) ? 15 : 4;
    }

    double time_collective(ProgressEngine& engine, CommKind kind, std::int64_t bytes) {
        const std::int64_t unit = static_cast<std::int64_t>(world_) * 4;
        const std::int64_t elements = (bytes + unit - 1) / unit * unit / 4;
        const int count = repetitions(bytes);
        std::vector<double> seconds;
        for (int i = 0; i < count + 2; ++i) {
            const std::int64_t begin = now_ns();
            engine.wait(Stream::dp,
                        engine.post(Stream::dp, {.kind = kind,
                                                 .elements = elements,
                                                 .in = in_.data(),
                                                 .out = kind == CommKind::all_reduce ? in_.data() : out_.data(),
                                                 .group = group_}));
            if (i >= 2) seconds.push_back(seconds_since(begin));
        }
        std::fill(in_.begin(), in_.end(), 1.0F);  // sums grew
        return median(seconds);
    }

    /// Half of a round trip: rank 0 sends and gets it back.
    double time_ping_pong(ProgressEngine& engine, std::int64_t bytes) {
        const std::int64_t elements = bytes / 4;
        const bool starts = transport_.rank() == 0;
        const int peer = starts ? 1 : 0;
        std::vector<double> seconds;
        for (int i = 0; i < repetitions(bytes) + 2; ++i) {
            const program::ReduceOp none{};
            const Operation send{
                .kind = CommKind::send, .reduce = none, .elements = elements, .in = in_.data(), .peer = peer};
            const Operation receive{
                .kind = CommKind::recv, .reduce = none, .elements = elements, .out = out_.data(), .peer = peer};
            const std::int64_t begin = now_ns();
            if (starts) {
                engine.wait(Stream::pp_send_forward, engine.post(Stream::pp_send_forward, send));
                engine.wait(Stream::pp_recv_backward, engine.post(Stream::pp_recv_backward, receive));
            } else {
                engine.wait(Stream::pp_recv_forward, engine.post(Stream::pp_recv_forward, receive));
                engine.wait(Stream::pp_send_backward, engine.post(Stream::pp_send_backward, send));
            }
            if (i >= 2) seconds.push_back(seconds_since(begin) / 2);
        }
        return median(seconds);
    }

    double time_launch(ProgressEngine& engine) {
        std::vector<double> seconds;
        for (int i = 0; i < 50; ++i) {
            const std::int64_t begin = now_ns();
            const std::int64_t sequence = engine.post(
                Stream::dp,
                {.kind = CommKind::all_reduce, .elements = 1, .in = in_.data(), .out = in_.data(), .group = group_});
            seconds.push_back(seconds_since(begin));
            engine.wait(Stream::dp, sequence);
        }
        return median(seconds);
    }

    Transport& transport_;
    Measurements& result_;
    int world_;
    GroupHandle group_;
    std::vector<float> in_, out_;
};

double memory_total_gib() {
    std::ifstream file("/proc/meminfo");
    std::string word;
    std::int64_t kilobytes = 0;
    if (!(file >> word >> kilobytes) || word != "MemTotal:") throw JobError("/proc/meminfo does not tell the memory");
    return static_cast<double>(kilobytes) * 1024 / kGibibyte;
}

/// Products as large as the BLAS is given them at once, and messages: libraries keep the buffers that they then make.
void use_libraries(Transport& transport, GroupHandle world) {
    std::vector<float> values(std::size_t{1} << 21, 1.0F), products(values.size(), 0.0F);
    kernels::set_blas_threads(1);
    kernels::linear_backward_weight({.rows = 1024, .n = 2048, .k = 1024}, {values.data(), 2048}, {values.data(), 1024},
                                    products.data(), nullptr);
    if (!world.valid()) return;
    ProgressEngine engine(transport);
    for (Stream stream : {Stream::tp, Stream::dp}) {
        engine.wait(stream, engine.post(stream, {.kind = CommKind::all_reduce,
                                                 .elements = static_cast<std::int64_t>(values.size()),
                                                 .in = values.data(),
                                                 .out = values.data(),
                                                 .group = world}));
    }
}

/// What a rank has resident beside its tensors: to be asked before anything else is measured, which leaves traces that
/// training does not.
double context_bytes(Transport& transport, GroupHandle world) {
    use_libraries(transport, world);
    malloc_trim(0);
    return static_cast<double>(resident_memory().now_bytes);
}

}  // namespace

Measurements measure(Transport& transport, bool compute) {
    Measurements result{.ranks = transport.world_size(), .cores = transport.cores()};
    std::optional<TransportMeter> transfers;
    if (transport.world_size() > 1) transfers.emplace(transport, result);
    result.context_bytes = context_bytes(transport, transfers ? transfers->group() : GroupHandle{});
    if (transfers) transfers->run();
    if (compute) {
        transport.barrier();
        ComputeMeter meter(result);
        transport.barrier();
        meter.measure_bandwidth();
        meter.run();
        transport.barrier();
    }
    return result;
}

topologies::ClusterSpec make_local_cluster(const std::vector<Measurements>& jobs, const std::string& when) {
    ORRERY_CHECK(!jobs.empty() && !jobs.front().matmuls.empty(), "a profile needs a job that measured compute");
    const Measurements& main = jobs.front();
    using topologies::Figure;
    using topologies::Provenance;
    const auto measured = [&](double value, const std::string& how) {
        return Figure{value, Provenance::measured, "orrery calibrate, " + when + ": " + how};
    };
    topologies::ClusterSpec cluster;
    cluster.name = "local";
    cluster.source = "orrery calibrate, " + when;
    cluster.nodes = 1;
    cluster.devices_per_node = main.cores;
    topologies::DeviceProfile& device = cluster.device;
    device.name = "cpu-core";
    const double tflops = main.best_flops_per_s / 1e12;
    device.peaks = {{DType::fp32, measured(tflops, "the fastest matrix product, all cores busy")},
                    {DType::bf16, measured(tflops, "that of fp32, in which products of bf16 are computed here")}};
    device.memory_bandwidth_gb_per_s = measured(main.memory_bytes_per_s / kGigabyte, "copy, all cores copying");
    device.memory_capacity_gib = measured(memory_total_gib(), "MemTotal");
    device.context_gib = measured(main.context_bytes / kGibibyte, "resident set of a rank beside its tensors");
    device.matmul_efficiency = measured(1.0, "the peak is itself measured");
    device.memory_efficiency = measured(1.0, "the bandwidth is itself measured");
    device.launch_us = measured(main.launch_s * 1e6, "handing one transfer to the progress thread");
    device.host_runs_compute = true;
    device.cores_per_node = main.cores;
    device.matmul_samples = main.matmuls;
    device.operator_samples = main.operators;

    double bandwidth = 0, latency = 0;
    for (const Measurements& job : jobs) {
        for (const topologies::TransportSample& sample : job.transfers) {
            if (sample.op == "all_reduce") {
                bandwidth = std::max(bandwidth, static_cast<double>(sample.bytes) / sample.seconds);
                latency = latency == 0 ? sample.seconds : std::min(latency, sample.seconds);
            }
            cluster.transport_samples.push_back(sample);
        }
    }
    cluster.intra_node.name = "shared-memory";
    cluster.intra_node.bandwidth_gb_per_s_per_direction = measured(bandwidth / kGigabyte, "largest all-reduce");
    cluster.intra_node.latency_us = measured(latency * 1e6, "smallest all-reduce");
    cluster.intra_node.efficiency = measured(1.0, "the bandwidth is itself measured");
    // Host memory is the memory that ranks compute in: a copy reads and writes it.
    cluster.host_memory_link.name = "memory";
    cluster.host_memory_link.bandwidth_gb_per_s_per_direction =
        measured(main.memory_bytes_per_s / 2 / kGigabyte, "half of the copy rate, since a copy reads and writes");
    cluster.host_memory_link.latency_us = measured(0.0, "a call of memcpy");
    cluster.host_memory_link.efficiency = measured(1.0, "the bandwidth is itself measured");
    return cluster;
}

}  // namespace orrery::exec
