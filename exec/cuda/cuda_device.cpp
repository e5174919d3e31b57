#include "exec/cuda/cuda_device.h"

#include <cuda_runtime.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <deque>
#include <exception>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "core/error.h"
#include "exec/cuda/check.h"
#include "exec/cuda/communicators.h"
#include "exec/cuda/cuda_operators.h"
#include "exec/device/device_clock.h"
#include "exec/host_memory.h"

namespace orrery::exec {
namespace {

using program::Stream;

/// Events are timed relative to an anchor event, whose time on the host's clock is known. CUDA returns the difference
/// as a float of milliseconds, which is exact to 0.1 us up to this distance, and the two clocks drift apart by some
/// microseconds a second: a later event is timed from a new anchor.
constexpr double kLongestFromAnchorMs = 1000.0;
/// The clocks are compared if the host waits for the anchor no longer than this.
constexpr std::int64_t kExactAnchor_ns = 50'000;
constexpr int kAnchorTries = 5;

/// CUDA would map the streams of a rank to 8 queues of the hardware, so that one stream may wait for another that has
/// nothing to do with it. The variable is read when the process first uses the device.
void ask_for_queues() {
    static_assert(program::kStreamCount <= 32);
    setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", 0);
}

class CudaDevice : public Device {
  public:
    CudaDevice(int index, Transport& transport) : index_(index), transport_(transport) {
        ask_for_queues();
        check_cuda(cudaSetDevice(index), "cudaSetDevice");
        int least = 0;
        check_cuda(cudaDeviceGetStreamPriorityRange(&least, &highest_priority_), "cudaDeviceGetStreamPriorityRange");
        clock_stream_ = new_stream(highest_priority_);
        operators_ = std::make_unique<CudaOperators>([this](std::int64_t bytes) { return allocate(bytes); });
        clock_ = DeviceClock(first_anchor());
    }

    ~CudaDevice() override {
        communicators_.reset();
        // If the job fails, operations may still wait for other ranks, and so would everything below. The process ends.
        if (std::uncaught_exceptions() > exceptions_) return;
        for (cudaStream_t stream : streams_) {
            if (stream != nullptr) cudaStreamSynchronize(stream);
        }
        operators_.reset();
        for (cudaEvent_t event : events_) cudaEventDestroy(event);
        for (cudaEvent_t anchor : anchors_) cudaEventDestroy(anchor);
        for (cudaStream_t stream : streams_) {
            if (stream != nullptr) cudaStreamDestroy(stream);
        }
        cudaStreamDestroy(clock_stream_);
        for (void* memory : device_memory_) cudaFree(memory);
        for (void* memory : host_memory_) cudaFreeHost(memory);
    }

    std::byte* allocate(std::int64_t bytes) override {
        void* memory = nullptr;
        const auto wanted =
            static_cast<std::size_t>(std::max<std::int64_t>(bytes, 1));  // for 0 bytes CUDA returns null
        const cudaError_t status = cudaMalloc(&memory, wanted);
        if (status == cudaErrorMemoryAllocation) {
            static_cast<void>(cudaGetLastError());  // clears the error, which the next call would report again
            return nullptr;
        }
        check_cuda(status, "cudaMalloc");
        device_memory_.push_back(memory);
        check_cuda(cudaMemsetAsync(memory, 0, wanted, stream(Stream::compute)), "cudaMemsetAsync");
        check_cuda(cudaStreamSynchronize(stream(Stream::compute)), "cudaStreamSynchronize");
        return static_cast<std::byte*>(memory);
    }

    std::byte* allocate_host(std::int64_t bytes) override {
        void* memory = nullptr;
        const auto wanted = static_cast<std::size_t>(std::max<std::int64_t>(bytes, 1));
        const cudaError_t status = cudaMallocHost(&memory, wanted);
        if (status == cudaErrorMemoryAllocation) {
            static_cast<void>(cudaGetLastError());
            return nullptr;
        }
        check_cuda(status, "cudaMallocHost");
        host_memory_.push_back(memory);
        return static_cast<std::byte*>(memory);
    }

    void prepare(const program::KernelMemory& memory, const models::ModelSpec& model) override {
        const std::int64_t bytes = memory.bytes(operators_->compute_capability()), free = free_bytes();
        if (bytes - program::KernelMemory::kSmallBytes > free) {  // the small part is taken already
            throw JobError("kernels need " + gib_text(bytes) + " beside the tensors, and the device has " +
                           gib_text(free) + " of free memory");
        }
        operators_->prepare(memory, model, [this](Stream which) { return kernels::cuda::StreamHandle{stream(which)}; });
    }

    [[nodiscard]] std::int64_t free_bytes() const override { return memory_info().first; }
    [[nodiscard]] std::int64_t used_bytes() const override {
        const auto [free, total] = memory_info();
        return total - free;
    }

    void copy(Stream to_stream, void* to, const void* from, std::int64_t bytes) override {
        check_cuda(cudaMemcpyAsync(to, from, static_cast<std::size_t>(bytes), cudaMemcpyDefault, stream(to_stream)),
                   "cudaMemcpyAsync");
    }
    void clear(Stream on, void* memory, std::int64_t bytes) override {
        check_cuda(cudaMemsetAsync(memory, 0, static_cast<std::size_t>(bytes), stream(on)), "cudaMemsetAsync");
    }
    void run(Stream on, const BoundOperator& one, const OperatorContext& context) override {
        operators_->run({stream(on)}, *one.op, one.at, context);
    }
    std::int64_t communicate(Stream on, const Operation& operation) override {
        return communicators_->communicate({stream(on)}, on, operation);
    }

    Event record(Stream on) override {
        if (free_events_.empty()) {
            cudaEvent_t event = nullptr;
            check_cuda(cudaEventCreate(&event), "cudaEventCreate");
            free_events_.push_back(events_.add(event));
        }
        const Event event = free_events_.back();
        free_events_.pop_back();
        check_cuda(cudaEventRecord(events_[event], stream(on)), "cudaEventRecord");
        return event;
    }
    void hold(Stream on, Event event) override {
        check_cuda(cudaStreamWaitEvent(stream(on), events_[event], 0), "cudaStreamWaitEvent");
    }
    bool is_complete(Event event) override {
        const cudaError_t status = cudaEventQuery(events_[event]);
        if (status == cudaErrorNotReady) {
            static_cast<void>(cudaGetLastError());  // not a failure, but the next launch might report it
            return false;
        }
        check_cuda(status, "cudaEventQuery");
        return true;
    }
    void check_health() override {
        if (communicators_ != nullptr) communicators_->check_health();
    }
    /// The host looks at the events of one stream after those of another, when newer anchors are there already.
    std::int64_t time_ns(Event event) override {
        std::int64_t anchor = clock_.newest();
        double since_ms = since(anchors_.back(), events_[event]);
        while (since_ms < 0 && anchor > clock_.oldest()) {
            --anchor;
            since_ms = since(anchors_[static_cast<std::size_t>(anchor - clock_.oldest())], events_[event]);
        }
        return clock_.time_ns(anchor, since_ms);
    }
    void release(Event event) override {
        const double since_ms = since(anchors_.back(), events_[event]);
        if (since_ms > kLongestFromAnchorMs && !compare_clocks()) {  // then the released event becomes an anchor
            const cudaEvent_t anchor = std::exchange(events_[event], new_event());
            add_anchor(anchor, {});
        }
        free_events_.push_back(event);
    }

    AxisGroups connect(const Partners& partners) override {
        auto* const scratch = reinterpret_cast<float*>(operators_->partial_sums());
        communicators_ = std::make_unique<Communicators>(partners, transport_,
                                                         kernels::cuda::StreamHandle{stream(Stream::compute)}, scratch);
        return communicators_->groups();
    }

    [[nodiscard]] std::map<std::string, std::string> describe() const override {
        cudaDeviceProp properties{};
        check_cuda(cudaGetDeviceProperties(&properties, index_), "cudaGetDeviceProperties");
        int driver = 0;
        check_cuda(cudaDriverGetVersion(&driver), "cudaDriverGetVersion");
        return {{"backend", "cuda"}, {"device", properties.name}, {"cuda_driver", std::to_string(driver)}};
    }

  private:
    /// Communication goes before computation where both wait for the same part of the device. A stream is created when
    /// it is first used, since most plans use few.
    [[nodiscard]] cudaStream_t stream(Stream which) {
        cudaStream_t& stream = streams_[which];
        if (stream == nullptr) stream = new_stream(is_local(which) ? 0 : highest_priority_);
        return stream;
    }
    [[nodiscard]] static cudaStream_t new_stream(int priority) {
        cudaStream_t stream = nullptr;
        check_cuda(cudaStreamCreateWithPriority(&stream, cudaStreamNonBlocking, priority),
                   "cudaStreamCreateWithPriority");
        return stream;
    }
    /// Records an event on a stream of its own, where nothing is queued. Returns the host's time of it, and for how
    /// long the host waited, within which that time is exact.
    [[nodiscard]] std::pair<std::int64_t, std::int64_t> reach(cudaEvent_t event) const {
        const std::int64_t before = now_ns();
        check_cuda(cudaEventRecord(event, clock_stream_), "cudaEventRecord");
        check_cuda(cudaEventSynchronize(event), "cudaEventSynchronize");
        const std::int64_t waited = now_ns() - before;
        return {before + waited / 2, waited};
    }
    /// The host's time of the first anchor, by the most exact of some comparisons.
    [[nodiscard]] std::int64_t first_anchor() {
        anchors_.push_back(new_event());
        cudaEvent_t next = new_event();
        auto [anchor_ns, waited_ns] = reach(anchors_.back());
        for (int tries = 1; tries < kAnchorTries && waited_ns > kExactAnchor_ns; ++tries) {
            const auto [next_ns, next_waited_ns] = reach(next);
            if (next_waited_ns >= waited_ns) continue;
            std::swap(anchors_.back(), next);
            anchor_ns = next_ns;
            waited_ns = next_waited_ns;
        }
        cudaEventDestroy(next);
        return anchor_ns;
    }
    /// Makes an anchor now. False if the device is too slow to answer for an exact comparison.
    [[nodiscard]] bool compare_clocks() {
        cudaEvent_t next = new_event();
        for (int tries = 0; tries < kAnchorTries; ++tries) {
            const auto [time_ns, waited_ns] = reach(next);
            if (waited_ns > kExactAnchor_ns) continue;
            add_anchor(next, time_ns);
            return true;
        }
        cudaEventDestroy(next);
        return false;
    }
    void add_anchor(cudaEvent_t anchor, std::optional<std::int64_t> host_ns) {
        const std::int64_t oldest = clock_.oldest();
        clock_.advance(since(anchors_.back(), anchor), host_ns);
        anchors_.push_back(anchor);
        if (clock_.oldest() == oldest) return;
        cudaEventDestroy(anchors_.front());
        anchors_.pop_front();
    }
    [[nodiscard]] static cudaEvent_t new_event() {
        cudaEvent_t event = nullptr;
        check_cuda(cudaEventCreate(&event), "cudaEventCreate");
        return event;
    }
    /// Milliseconds from one event to another.
    [[nodiscard]] static double since(cudaEvent_t anchor, cudaEvent_t event) {
        float milliseconds = 0;
        check_cuda(cudaEventElapsedTime(&milliseconds, anchor, event), "cudaEventElapsedTime");
        return static_cast<double>(milliseconds);
    }
    [[nodiscard]] static std::pair<std::int64_t, std::int64_t> memory_info() {
        std::size_t free = 0;
        std::size_t total = 0;
        check_cuda(cudaMemGetInfo(&free, &total), "cudaMemGetInfo");
        return {static_cast<std::int64_t>(free), static_cast<std::int64_t>(total)};
    }

    int index_;
    Transport& transport_;
    int exceptions_ = std::uncaught_exceptions();
    int highest_priority_ = 0;
    program::PerStream<cudaStream_t> streams_{};  // null until first used
    cudaStream_t clock_stream_ = nullptr;         // of anchors
    IndexedVector<Event, cudaEvent_t> events_;
    std::vector<Event> free_events_;
    std::vector<void*> device_memory_, host_memory_;
    DeviceClock clock_;
    std::deque<cudaEvent_t> anchors_;  // of the clock, from its oldest on
    std::unique_ptr<CudaOperators> operators_;
    std::unique_ptr<Communicators> communicators_;
};

/// "13.0" of 13000.
std::string version_text(int version) {
    return std::to_string(version / 1000) + "." + std::to_string(version % 1000 / 10);
}

}  // namespace

GpuSearch find_gpus() {
    ask_for_queues();
    GpuSearch found;
    const cudaError_t status = cudaGetDeviceCount(&found.count);
    if (status == cudaSuccess) return found;
    static_cast<void>(cudaGetLastError());
    found.count = 0;
    int driver = 0;
    if (cudaDriverGetVersion(&driver) != cudaSuccess || driver == 0 || status == cudaErrorNoDevice) return found;
    int runtime = 0;
    static_cast<void>(cudaRuntimeGetVersion(&runtime));
    found.failure = std::string("cudaGetDeviceCount: ") + cudaGetErrorString(status) + " (the driver is for CUDA " +
                    version_text(driver) + ", this orrery was built with " + version_text(runtime) + ")";
    return found;
}

std::string gpu_address(int index) {
    std::array<char, 32> text{};
    check_cuda(cudaDeviceGetPCIBusId(text.data(), static_cast<int>(text.size()), index), "cudaDeviceGetPCIBusId");
    return text.data();
}

std::unique_ptr<Device> make_cuda_device(int index, Transport& transport) {
    return std::make_unique<CudaDevice>(index, transport);
}

}  // namespace orrery::exec
