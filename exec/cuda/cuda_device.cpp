#include "exec/cuda/cuda_device.h"

#include <cuda_runtime.h>

#include <chrono>
#include <string>
#include <thread>
#include <vector>

#include "core/error.h"
#include "exec/cuda/check.h"
#include "exec/cuda/communicators.h"
#include "exec/cuda/cuda_operators.h"

namespace orrery::exec {
namespace {

using program::Stream;

/// Events are timed relative to an anchor event. CUDA returns the difference as a float of milliseconds, which is exact
/// to 0.1 us up to this distance; beyond it a later event becomes the anchor.
constexpr double kLongestFromAnchorMs = 1000.0;
/// Between two polls of an event, so that a failure of another rank is noticed meanwhile.
constexpr std::chrono::microseconds kPollInterval{20};

class CudaDevice : public Device {
  public:
    CudaDevice(int index, Transport& transport) : index_(index), transport_(transport) {
        check_cuda(cudaSetDevice(index), "cudaSetDevice");
        for (cudaStream_t& stream : streams_) {
            check_cuda(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "cudaStreamCreateWithFlags");
        }
        operators_ = std::make_unique<CudaOperators>([this](std::int64_t bytes) { return allocate(bytes); });
        check_cuda(cudaEventCreate(&anchor_), "cudaEventCreate");
        check_cuda(cudaEventRecord(anchor_, stream(Stream::compute)), "cudaEventRecord");
        check_cuda(cudaEventSynchronize(anchor_), "cudaEventSynchronize");
        anchor_ns_ = now_ns();
    }

    ~CudaDevice() override {
        communicators_.reset();  // first, because it aborts operations that wait for other ranks
        for (cudaStream_t stream : streams_) cudaStreamSynchronize(stream);
        operators_.reset();
        for (cudaEvent_t event : events_) cudaEventDestroy(event);
        cudaEventDestroy(anchor_);
        for (cudaStream_t stream : streams_) cudaStreamDestroy(stream);
        for (void* memory : device_memory_) cudaFree(memory);
        for (void* memory : host_memory_) cudaFreeHost(memory);
    }

    std::byte* allocate(std::int64_t bytes) override {
        void* memory = nullptr;
        const cudaError_t status = cudaMalloc(&memory, static_cast<std::size_t>(bytes));
        if (status == cudaErrorMemoryAllocation) {
            static_cast<void>(cudaGetLastError());  // clears the error, which the next call would report again
            return nullptr;
        }
        check_cuda(status, "cudaMalloc");
        device_memory_.push_back(memory);
        check_cuda(cudaMemset(memory, 0, static_cast<std::size_t>(bytes)), "cudaMemset");
        check_cuda(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
        return static_cast<std::byte*>(memory);
    }

    std::byte* allocate_host(std::int64_t bytes) override {
        void* memory = nullptr;
        const cudaError_t status = cudaMallocHost(&memory, static_cast<std::size_t>(bytes));
        if (status == cudaErrorMemoryAllocation) {
            static_cast<void>(cudaGetLastError());
            return nullptr;
        }
        check_cuda(status, "cudaMallocHost");
        host_memory_.push_back(memory);
        return static_cast<std::byte*>(memory);
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
        return communicators_->communicate({stream(on)}, operation);
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
        if (status == cudaErrorNotReady) return false;
        check_cuda(status, "cudaEventQuery");
        return true;
    }
    void synchronize(Event event) override {
        if (transport_.world_size() == 1) {
            check_cuda(cudaEventSynchronize(events_[event]), "cudaEventSynchronize");
            return;
        }
        while (!is_complete(event)) {
            if (communicators_ != nullptr) communicators_->check_health();
            std::this_thread::sleep_for(kPollInterval);
        }
    }
    std::int64_t time_ns(Event event) override {
        constexpr double kNanosecondsPerMillisecond = 1e6;
        return anchor_ns_ + static_cast<std::int64_t>(since_anchor_ms(event) * kNanosecondsPerMillisecond);
    }
    void release(Event event) override {
        const double since_ms = since_anchor_ms(event);
        if (since_ms > kLongestFromAnchorMs) {  // the released event becomes the anchor
            anchor_ns_ = time_ns(event);
            std::swap(anchor_, events_[event]);
        }
        free_events_.push_back(event);
    }

    AxisGroups connect(const AxisMembers& members) override {
        communicators_ = std::make_unique<Communicators>(members, transport_);
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
    [[nodiscard]] cudaStream_t stream(Stream stream) const { return streams_[stream]; }
    [[nodiscard]] double since_anchor_ms(Event event) const {
        float milliseconds = 0;
        check_cuda(cudaEventElapsedTime(&milliseconds, anchor_, events_[event]), "cudaEventElapsedTime");
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
    program::PerStream<cudaStream_t> streams_{};
    IndexedVector<Event, cudaEvent_t> events_;
    std::vector<Event> free_events_;
    std::vector<void*> device_memory_, host_memory_;
    cudaEvent_t anchor_ = nullptr;
    std::int64_t anchor_ns_ = 0;
    std::unique_ptr<CudaOperators> operators_;
    std::unique_ptr<Communicators> communicators_;
};

}  // namespace

int gpu_count() {
    int count = 0;
    if (cudaGetDeviceCount(&count) != cudaSuccess) {
        static_cast<void>(cudaGetLastError());
        return 0;
    }
    return count;
}

std::unique_ptr<Device> make_cuda_device(int index, Transport& transport) {
    return std::make_unique<CudaDevice>(index, transport);
}

}  // namespace orrery::exec
