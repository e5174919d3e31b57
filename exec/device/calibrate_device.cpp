#include "exec/device/calibrate_device.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <numeric>
#include <set>
#include <utility>
#include <variant>

#include "core/error.h"
#include "core/float16.h"
#include "core/units.h"
#include "exec/operator_samples.h"
#include "models/layer.h"
#include "models/model_spec.h"

namespace orrery::exec {
namespace {

using models::Operator;
using models::OpKind;
using program::Stream;

constexpr int kBatches = 5;  // of which the median counts
constexpr int kBatch = 4;    // calls
constexpr int kRepetitions = kBatches * kBatch;
constexpr int kMostCopies = 64;  // ahead of a timing
constexpr std::int64_t kAlignment = 256;
constexpr double kNanosecond = 1e-9;

double upper_median(std::vector<double> values) {
    std::sort(values.begin(), values.end());
    return values[values.size() / 2];
}

class DeviceMeter {
  public:
    DeviceMeter(Device& device, std::int64_t pool_bytes) : device_(device), pool_bytes_(pool_bytes) {
        result_.memory_bytes = static_cast<double>(device.used_bytes() + device.free_bytes());
        result_.context_bytes = static_cast<double>(device.used_bytes());
        pool_ = device.allocate(pool_bytes);
        if (pool_ == nullptr) throw JobError("the device has less than " + std::to_string(pool_bytes) + " bytes free");
    }

    /// Fills the pool with values around 1 of the type, because GPUs run faster on zeros than on the values of a
    /// training.
    void fill_pool(DType type) {
        constexpr std::int64_t kChunk = std::int64_t{16} << 20;
        std::vector<std::byte> chunk(static_cast<std::size_t>(kChunk));
        for (std::int64_t i = 0; i < kChunk / size_of(type); ++i) {
            const float value = 0.5F + static_cast<float>(i % 1024) / 1024.0F;
            const std::uint16_t narrow = to_bf16(value);
            const auto bytes = static_cast<std::size_t>(size_of(type));
            std::memcpy(chunk.data() + static_cast<std::size_t>(i) * bytes,
                        type == DType::bf16 ? static_cast<const void*>(&narrow) : &value, bytes);
        }
        for (std::int64_t at = 0; at < pool_bytes_; at += kChunk) {
            device_.copy(Stream::compute, pool_ + at, chunk.data(), std::min(kChunk, pool_bytes_ - at));
        }
        finish();
    }

    /// With weights, activations and their gradients of the type.
    void measure_model(const TimedModel& timed, DType type, const std::function<bool(OpKind)>& runs) {
        const models::ModelSpec model = models::load_model(timed.name);
        models::LayerContext context{.sequence = timed.sequence,
                                     .micro_batch = timed.micro_batch,
                                     .padded_vocab = model.vocab,
                                     .parameter_dtype = type,
                                     .activation_dtype = type,
                                     .compute_dtype = type};
        context.implementation.kernels.fused_attention = context.implementation.kernels.causal_skip = true;
        fill_tokens(timed.sequence * timed.micro_batch, model.vocab);
        for (const models::LayerKind kind :
             {models::LayerKind::embedding, models::LayerKind::block, models::LayerKind::head}) {
            const models::Layer layer = models::build_layer(model, kind, context);
            for (const auto* steps : {&layer.forward, &layer.backward}) {
                for (const models::Step& step : *steps) {
                    const auto* op = std::get_if<Operator>(&step);
                    const bool loads =
                        op != nullptr && (op->kind == OpKind::load_tokens || op->kind == OpKind::load_targets);
                    if (op != nullptr && !loads && runs(op->kind)) measure_once(model, layer, *op);
                }
            }
        }
    }

    void measure_adamw(std::int64_t elements) {
        Operator op{.kind = OpKind::adamw, .elements = elements};
        op.bytes_read = op.bytes_written = 16.0 * static_cast<double>(elements);
        op.flops = 16.0 * static_cast<double>(elements);
        const models::ModelSpec model;
        const std::array<UpdateRange, 1> ranges{{{.elements = elements, .decays = true}}};
        const OperatorContext context{
            .model = &model,
            .optimizer = {.learning_rate = 1e-4, .beta1 = 0.9, .beta2 = 0.95, .epsilon = 1e-8, .weight_decay = 0.1},
            .updates = ranges};
        samples_.add(op, time_of([&] {
                         BoundOperator bound{&op, {}};
                         for (std::size_t i = 0; i < 3; ++i) bound.at.out[i] = take(elements * 4);
                         bound.at.in[0] = bound.at.out[3] = take(elements * 4);
                         device_.run(Stream::compute, bound, context);
                     }));
    }

    void measure_copies() {
        const std::int64_t bytes = pool_bytes_ / 4;
        const double within = time_of([&] { device_.copy(Stream::compute, take(bytes), take(bytes), bytes); });
        result_.memory_bytes_per_s = 2.0 * static_cast<double>(bytes) / within;
        const std::int64_t host_bytes = std::min<std::int64_t>(bytes, std::int64_t{256} << 20);
        std::byte* host = device_.allocate_host(host_bytes);
        if (host == nullptr) throw JobError("no pinned host memory of " + std::to_string(host_bytes) + " bytes");
        const double out = time_of([&] { device_.copy(Stream::compute, host, take(host_bytes), host_bytes); });
        const double in = time_of([&] { device_.copy(Stream::compute, take(host_bytes), host, host_bytes); });
        result_.host_copy_bytes_per_s = static_cast<double>(host_bytes) / std::max(out, in);
        result_.host_copy_latency_s = time_of([&] { device_.copy(Stream::compute, take(1), host, 1); });
    }

    /// Host time to queue a small operator.
    void measure_launch() {
        const models::ModelSpec model;
        const OperatorContext context{.model = &model};
        const Operator op{.kind = OpKind::accumulate, .elements = 64};
        std::vector<double> seconds;
        for (int i = 0; i < kRepetitions; ++i) {
            BoundOperator bound{&op, {}};
            bound.at.in[0] = take(kAlignment);
            bound.at.out[0] = take(kAlignment);
            const std::int64_t begin = now_ns();
            device_.run(Stream::compute, bound, context);
            seconds.push_back(static_cast<double>(now_ns() - begin) * kNanosecond);
            finish();
        }
        result_.launch_s = upper_median(seconds);
    }

    [[nodiscard]] DeviceMeasurements take_result() {
        OperatorSamples::Samples samples = samples_.samples();
        result_.best_flops_per_s = samples.best_flops_per_s;
        result_.matmuls = std::move(samples.matmuls);
        result_.operators = std::move(samples.operators);
        return std::move(result_);
    }

  private:
    void fill_tokens(std::int64_t rows, std::int64_t vocab) {
        std::vector<std::int32_t> values(static_cast<std::size_t>(rows));
        for (std::size_t i = 0; i < values.size(); ++i) {
            values[i] = static_cast<std::int32_t>(static_cast<std::int64_t>(i) * 7919 % vocab);
        }
        const auto bytes = static_cast<std::int64_t>(values.size() * sizeof(std::int32_t));
        tokens_ = device_.allocate(bytes);
        if (tokens_ == nullptr) throw JobError("the device has no memory left for tokens");
        device_.copy(Stream::compute, tokens_, values.data(), bytes);
        finish();
    }

    /// Takes the next block of the pool, which is larger than the caches, so that operands come from memory as they do
    /// in training.
    [[nodiscard]] std::byte* take(std::int64_t bytes) {
        const std::int64_t room = (bytes + kAlignment - 1) / kAlignment * kAlignment;
        ORRERY_CHECK(room <= pool_bytes_, "an operand larger than the calibration pool");
        if (at_ + room > pool_bytes_) at_ = 0;
        std::byte* result = pool_ + at_;
        at_ += room;
        return result;
    }

    void measure_once(const models::ModelSpec& model, const models::Layer& layer, const Operator& op) {
        std::set<models::SlotIndex> used(op.in.begin(), op.in.end());
        used.insert(op.out.begin(), op.out.end());
        used.insert(op.scratch);
        used.erase(models::kNoSlot);
        const auto bytes_of = [&](models::SlotIndex slot) { return layer.slots[slot].bytes(); };
        const std::int64_t needed = std::accumulate(
            used.begin(), used.end(), std::int64_t{0},
            [&](std::int64_t sum, models::SlotIndex slot) { return sum + bytes_of(slot) + kAlignment; });
        if (needed > pool_bytes_ || samples_.has(op)) return;
        const OperatorContext context{.model = &model, .loss_scale = 1e-3};
        samples_.add(op, time_of([&] {
                         IndexedVector<models::SlotIndex, std::byte*> bound(layer.slots.size(), nullptr);
                         for (const models::SlotIndex slot : used) {
                             bound[slot] = layer.slots[slot].dtype == DType::int32 ? tokens_ : take(bytes_of(slot));
                         }
                         const OperatorPointers at = bind(
                             op, [&](models::SlotIndex slot) -> const auto& { return layer.slots[slot]; },
                             [&](models::SlotIndex slot) { return bound[slot]; });
                         device_.run(Stream::compute, {&op, at}, context);
                     }));
    }

    void finish() {
        const Device::Event done = device_.record(Stream::compute);
        device_.synchronize(done);
        device_.release(done);
    }

    /// The device's time for one call, the median over several batches of calls. The batches are queued behind long
    /// copies, so that the device finds the calls waiting, as in training where the host runs ahead. The time from an
    /// idle stream would contain the launch. More copies are tried until the host has queued everything before they
    /// end.
    double time_of(const std::function<void()>& queue) {
        queue();
        finish();
        for (int copies = 1;; copies *= 2) {
            const auto [seconds, waited] = time_behind(copies, queue);
            if (waited || copies >= kMostCopies) return seconds;
        }
    }

    struct Timed {
        double seconds = 0;   // of a call
        bool waited = false;  // the host had queued all calls before the device began the first
    };
    Timed time_behind(int copies, const std::function<void()>& queue) {
        const std::int64_t half = pool_bytes_ / 2;
        for (int i = 0; i < copies; ++i) device_.copy(Stream::compute, pool_ + half, pool_, half);
        std::vector<std::pair<Device::Event, Device::Event>> batches;
        for (int i = 0; i < kBatches; ++i) {
            const Device::Event begin = device_.record(Stream::compute);
            for (int call = 0; call < kBatch; ++call) queue();
            batches.emplace_back(begin, device_.record(Stream::compute));
        }
        const bool waited = !device_.is_complete(batches.front().first);
        device_.synchronize(batches.back().second);
        std::vector<double> seconds;
        for (const auto& [begin, end] : batches) {
            const std::int64_t ns = device_.time_ns(end) - device_.time_ns(begin);
            seconds.push_back(static_cast<double>(std::max<std::int64_t>(ns, 1)) * kNanosecond / kBatch);
            device_.release(begin);
            device_.release(end);
        }
        return {upper_median(seconds), waited};
    }

    Device& device_;
    std::int64_t pool_bytes_;
    std::byte* pool_ = nullptr;
    std::byte* tokens_ = nullptr;
    std::int64_t at_ = 0;
    OperatorSamples samples_;
    DeviceMeasurements result_;
};

}  // namespace

std::vector<TimedModel> timed_models() {
    return {{"tiny-gpt", 64, 8},    {"gpt2", 128, 1},      {"gpt2", 128, 8},     {"gpt2", 512, 4},
            {"gpt2", 1024, 1},      {"gpt2", 1024, 8},     {"gpt2-xl", 1024, 2}, {"llama3-8b", 128, 8},
            {"llama3-8b", 1024, 1}, {"llama3-8b", 4096, 1}};
}

DeviceMeasurements measure_device(Device& device, const std::vector<TimedModel>& models,
                                  const std::function<bool(models::OpKind)>& runs, std::int64_t pool_bytes) {
    DeviceMeter meter(device, pool_bytes);
    meter.fill_pool(DType::fp32);
    meter.measure_copies();
    meter.measure_launch();
    for (const DType type : {DType::bf16, DType::fp32}) {  // then the updates, whose states are in fp32
        meter.fill_pool(type);
        for (const TimedModel& model : models) meter.measure_model(model, type, runs);
    }
    for (std::int64_t elements = std::int64_t{1} << 14;
         16 * elements <= pool_bytes && elements <= std::int64_t{1} << 26; elements *= 16) {
        meter.measure_adamw(elements);
    }
    return meter.take_result();
}

topologies::ClusterSpec with_measured_device(topologies::ClusterSpec base, const std::string& name,
                                             const DeviceMeasurements& measured, const std::string& when) {
    ORRERY_CHECK(!measured.matmuls.empty(), "a profile needs measured GEMMs");
    const auto figure = [&](double value, const std::string& how) {
        return topologies::Figure{value, topologies::Provenance::measured,
                                  "orrery calibrate on " + name + ", " + when + ": " + how};
    };
    base.name = base.name + " as measured";
    base.nodes = 1;
    topologies::DeviceProfile& device = base.device;
    device.name = name;
    device.peaks.clear();
    for (const auto& [type, flops_per_s] : measured.best_flops_per_s) {
        device.peaks.push_back({type, figure(flops_per_s / 1e12, "the fastest matrix product")});
    }
    device.memory_bandwidth_gb_per_s =
        figure(measured.memory_bytes_per_s / kGigabyte, "copy within the device's memory");
    device.memory_capacity_gib =
        figure(measured.memory_bytes / kGibibyte, "all that its driver lets processes allocate");
    device.usable_memory_gib = device.memory_capacity_gib;
    device.context_gib = figure(measured.context_bytes / kGibibyte, "in use before the first tensor");
    device.matmul_efficiency = figure(1.0, "the peak is itself measured");
    device.memory_efficiency = figure(1.0, "the bandwidth is itself measured");
    device.launch_us = figure(measured.launch_s * 1e6, "host time to issue one operator");
    device.matmul_samples = measured.matmuls;
    device.operator_samples = measured.operators;
    base.host_memory_link.bandwidth_gb_per_s_per_direction =
        figure(measured.host_copy_bytes_per_s / kGigabyte, "copy to or from pinned host memory, the slower of the two");
    base.host_memory_link.name = "host copy";
    base.host_memory_link.latency_us = figure(measured.host_copy_latency_s * 1e6, "copy of one byte");
    base.host_memory_link.efficiency = figure(1.0, "the bandwidth is itself measured");
    return base;
}

}  // namespace orrery::exec
