#include "exec/calibrate.h"

#include <malloc.h>

#include <algorithm>
#include <cstring>
#include <fstream>
#include <numeric>
#include <optional>
#include <string>

#include "core/error.h"
#include "core/units.h"
#include "exec/host_memory.h"
#include "exec/operator_meter.h"
#include "exec/operator_samples.h"
#include "exec/transport/progress.h"
#include "kernels/kernels.h"

namespace orrery::exec {
namespace {

using program::CommKind;
using program::Stream;

constexpr std::int64_t kCopyBytes = std::int64_t{96} << 20;  // more than a core's share of the caches
constexpr int kCopies = 5;
constexpr std::int64_t kMessagesInMemory = 6;  // buffer size in largest messages, to exceed the caches

double seconds_since_ns(std::int64_t begin_ns) {
    return static_cast<double>(now_ns() - begin_ns) * 1e-9;
}

double median(std::vector<double> values) {
    std::sort(values.begin(), values.end());
    const std::size_t middle = values.size() / 2;
    return values.size() % 2 == 1 ? values[middle] : (values[middle - 1] + values[middle]) / 2;
}

double copy_bytes_per_s() {
    const std::int64_t bytes = kCopyBytes;
    std::vector<float> from(static_cast<std::size_t>(bytes / 4), 1.0F), to(from.size(), 0.0F);
    std::vector<double> seconds;
    for (int i = 0; i < kCopies; ++i) {
        const std::int64_t begin = now_ns();
        std::memcpy(to.data(), from.data(), static_cast<std::size_t>(bytes));
        seconds.push_back(seconds_since_ns(begin));
    }
    return 2.0 * static_cast<double>(bytes) / median(seconds);
}

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
        const std::int64_t share = available_memory_bytes() / std::max(1, transport_.ranks_on_host());
        const std::int64_t room = std::clamp(share / 8, largest, kMessagesInMemory * largest);
        in_.assign(static_cast<std::size_t>(room / 4), 1.0F);
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
            const std::size_t place = next_place(elements);
            float* const in = in_.data() + place;
            const std::int64_t begin = now_ns();
            engine.wait(Stream::dp,
                        engine.post(Stream::dp, {.kind = kind,
                                                 .elements = elements,
                                                 .in = in,
                                                 .out = kind == CommKind::all_reduce ? in : out_.data() + place,
                                                 .group = group_}));
            if (i >= 2) seconds.push_back(seconds_since_ns(begin));
        }
        std::fill(in_.begin(), in_.end(), 1.0F);  // in-place sums have grown
        return median(seconds);
    }

    /// The next place in the buffers: messages of training are rarely in the caches, so each repetition uses other
    /// memory.
    [[nodiscard]] std::size_t next_place(std::int64_t elements) {
        const auto size = static_cast<std::size_t>(elements);
        if (next_ + size > in_.size()) next_ = 0;
        const std::size_t place = next_;
        next_ += size;
        return place;
    }

    /// Half of the round-trip time of a message from rank 0 to rank 1 and back.
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
            if (i >= 2) seconds.push_back(seconds_since_ns(begin) / 2);
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
            seconds.push_back(seconds_since_ns(begin));
            engine.wait(Stream::dp, sequence);
        }
        return median(seconds);
    }

    Transport& transport_;
    Measurements& result_;
    int world_;
    GroupHandle group_;
    std::vector<float> in_, out_;
    std::size_t next_ = 0;
};

double memory_total_gib() {
    std::ifstream file("/proc/meminfo");
    std::string word;
    std::int64_t kilobytes = 0;
    if (!(file >> word >> kilobytes) || word != "MemTotal:") throw JobError("/proc/meminfo has no MemTotal line");
    return static_cast<double>(kilobytes) * 1024 / kGibibyte;
}

/// Runs a large GEMM and all-reduces, after which BLAS and MPI hold the buffers that they keep for good.
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

/// Resident memory of a rank without tensors. Call it first: the other measurements leave memory behind that training
/// does not.
double context_bytes(Transport& transport, GroupHandle world) {
    use_libraries(transport, world);
    malloc_trim(0);
    return static_cast<double>(resident_memory().now_bytes);
}

}  // namespace

Measurements measure(Transport& transport, TimedOperators operators) {
    Measurements result{.ranks = transport.world_size(), .cores = transport.cores()};
    std::optional<TransportMeter> transfers;
    if (transport.world_size() > 1) transfers.emplace(transport, result);
    result.context_bytes = context_bytes(transport, transfers ? transfers->group() : GroupHandle{});
    if (transfers) transfers->run();
    if (operators != TimedOperators::none) {
        transport.barrier();
        result.memory_bytes_per_s = copy_bytes_per_s();
        transport.barrier();
        OperatorSamples samples;
        measure_operators(transport, operators, samples);
        OperatorSamples::Samples timed = samples.samples();
        result.best_flops_per_s = timed.best_flops_per_s[DType::fp32];
        result.matmuls = std::move(timed.matmuls);
        result.operators = std::move(timed.operators);
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
    cluster.intra_node.kind = topologies::LinkMedium::shared_memory;
    cluster.intra_node.bandwidth_gb_per_s_per_direction = measured(bandwidth / kGigabyte, "largest all-reduce");
    cluster.intra_node.latency_us = measured(latency * 1e6, "smallest all-reduce");
    cluster.intra_node.efficiency = measured(1.0, "the bandwidth is itself measured");
    // Host memory is the memory that ranks compute in: a copy reads and writes it.
    cluster.host_memory_link.name = "memory";
    cluster.host_memory_link.kind = topologies::LinkMedium::shared_memory;
    cluster.host_memory_link.bandwidth_gb_per_s_per_direction =
        measured(main.memory_bytes_per_s / 2 / kGigabyte, "half of the copy rate, since a copy reads and writes");
    cluster.host_memory_link.latency_us = measured(0.0, "a call of memcpy");
    cluster.host_memory_link.efficiency = measured(1.0, "the bandwidth is itself measured");
    return cluster;
}

}  // namespace orrery::exec
