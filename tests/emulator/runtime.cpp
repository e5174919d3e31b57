// The emulated CUDA runtime: the functions of cuda_runtime.h on top of the device.
#include <cuda_runtime.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "tests/emulator/device.h"
#include "tests/emulator/emulated_memory.h"
#include "tests/emulator/fatal.h"

namespace emulated {
namespace {

/// What cudaGetLastError reports and clears. Sticky errors are the device's.
thread_local cudaError_t last_error = cudaSuccess;

cudaError_t said(cudaError_t error) {
    if (error != cudaSuccess) last_error = error;
    return error;
}

Device& device() {
    return Device::instance();
}

/// The version of the driver; 0 without one.
int driver() {
    static const auto version = static_cast<int>(setting("EMULATED_CUDA_DRIVER", CUDART_VERSION));
    return version;
}

/// The physical numbers of the devices that this process may use.
std::vector<int> visible() {
    const auto all = static_cast<int>(setting("EMULATED_CUDA_DEVICES", 8));
    std::vector<int> devices;
    const char* const list = std::getenv("CUDA_VISIBLE_DEVICES");
    if (list == nullptr) {
        for (int i = 0; i < all; ++i) devices.push_back(i);
        return devices;
    }
    for (const char* at = list; *at != '\0';) {
        char* end = nullptr;
        const long number = std::strtol(at, &end, 10);
        if (end == at || number < 0 || number >= all) break;  // as CUDA does: the list ends at the first that is wrong
        devices.push_back(static_cast<int>(number));
        at = *end == ',' ? end + 1 : end;
    }
    return devices;
}

cudaError_t ready() {
    if (driver() < CUDART_VERSION) return cudaErrorInsufficientDriver;
    if (visible().empty()) return cudaErrorNoDevice;
    return device().broken();
}

int selected = 0;

/// Bytes of shared memory of a block: without being asked for, and at most; an A100 has these.
constexpr std::size_t kSharedBytesOfBlock = std::size_t{48} << 10U;
std::size_t most_shared_bytes_of_block() {
    constexpr std::int64_t kKib = 163;
    return static_cast<std::size_t>(setting("EMULATED_CUDA_SHARED_KIB", kKib)) << 10U;
}

/// What kernels may use that asked for another size.
std::map<const void*, std::size_t>& shared_limits() {
    static std::map<const void*, std::size_t> limits;
    return limits;
}

}  // namespace

cudaError_t queue_grid(const cudaLaunchConfig_t& config, Kernel kernel) {
    constexpr std::uint64_t kMostThreads = 1024;
    constexpr unsigned kMostBlocksX = 0x7fffffffU, kMostBlocks = 0xffffU;
    const Extent &grid = config.gridDim, &block = config.blockDim;
    const bool fits = grid.volume() > 0 && grid.x <= kMostBlocksX && grid.y <= kMostBlocks && grid.z <= kMostBlocks &&
                      block.volume() > 0 && block.volume() <= kMostThreads && block.z <= 64;
    if (!fits) return said(cudaErrorInvalidConfiguration);
    const auto limit = shared_limits().find(kernel.address);
    if (config.dynamicSmemBytes > (limit == shared_limits().end() ? kSharedBytesOfBlock : limit->second)) {
        return said(cudaErrorInvalidValue);
    }
    kernel.dynamic_shared_bytes = config.dynamicSmemBytes;
    if (const cudaError_t error = ready(); error != cudaSuccess) return said(error);
    return said(device().queue_grid(config.stream, std::move(kernel), grid, block));
}

bool is_for_kernels(const void* pointer) {
    return pointer == nullptr || device().place_of(pointer) != Place::pageable;
}

}  // namespace emulated

using namespace emulated;

extern "C" {

cudaError_t cudaFuncSetAttribute(const void* kernel, cudaFuncAttribute attribute, int value) {
    const bool fits = value >= 0 && static_cast<std::size_t>(value) <= most_shared_bytes_of_block();
    if (attribute != cudaFuncAttributeMaxDynamicSharedMemorySize || !fits) return said(cudaErrorInvalidValue);
    shared_limits()[kernel] = static_cast<std::size_t>(value);
    return cudaSuccess;
}

cudaError_t cudaGetDeviceCount(int* count) {
    *count = 0;
    if (const cudaError_t error = ready(); error != cudaSuccess) return said(error);
    *count = static_cast<int>(visible().size());
    return cudaSuccess;
}

cudaError_t cudaSetDevice(int index) {
    if (const cudaError_t error = ready(); error != cudaSuccess) return said(error);
    if (index < 0 || index >= static_cast<int>(visible().size())) return said(cudaErrorInvalidDevice);
    selected = index;
    return cudaSuccess;
}

cudaError_t cudaGetDevice(int* index) {
    if (const cudaError_t error = ready(); error != cudaSuccess) return said(error);
    *index = selected;
    return cudaSuccess;
}

cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int index) {
    if (const cudaError_t error = ready(); error != cudaSuccess) return said(error);
    if (index < 0 || index >= static_cast<int>(visible().size())) return said(cudaErrorInvalidDevice);
    switch (attribute) {
        case cudaDevAttrComputeCapabilityMajor:
            *value = emulated::kComputeCapability / 10;
            break;
        case cudaDevAttrComputeCapabilityMinor:
            *value = emulated::kComputeCapability % 10;
            break;
        case cudaDevAttrMaxSharedMemoryPerBlockOptin:
            *value = static_cast<int>(most_shared_bytes_of_block());
    }
    return cudaSuccess;
}

cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int index) {
    if (const cudaError_t error = ready(); error != cudaSuccess) return said(error);
    if (index < 0 || index >= static_cast<int>(visible().size())) return said(cudaErrorInvalidDevice);
    *properties = {};
    std::snprintf(properties->name, sizeof properties->name, "emulated CUDA device");
    return cudaSuccess;
}

cudaError_t cudaDeviceGetPCIBusId(char* text, int length, int index) {
    if (const cudaError_t error = ready(); error != cudaSuccess) return said(error);
    if (index < 0 || index >= static_cast<int>(visible().size())) return said(cudaErrorInvalidDevice);
    std::snprintf(text, static_cast<std::size_t>(length), "0000:%02x:00.0",
                  static_cast<unsigned>(visible()[static_cast<std::size_t>(index)]));
    return cudaSuccess;
}

cudaError_t cudaDriverGetVersion(int* version) {
    *version = driver();
    return cudaSuccess;
}

cudaError_t cudaRuntimeGetVersion(int* version) {
    *version = CUDART_VERSION;
    return cudaSuccess;
}

cudaError_t cudaGetLastError() {
    if (driver() >= CUDART_VERSION && device().broken() != cudaSuccess) return device().broken();
    return std::exchange(last_error, cudaSuccess);
}

const char* cudaGetErrorString(cudaError_t error) {
    switch (error) {
        case cudaSuccess:
            return "no error";
        case cudaErrorInvalidValue:
            return "invalid argument";
        case cudaErrorMemoryAllocation:
            return "out of memory";
        case cudaErrorInvalidConfiguration:
            return "invalid configuration argument";
        case cudaErrorInsufficientDriver:
            return "CUDA driver version is insufficient for CUDA runtime version";
        case cudaErrorNoDevice:
            return "no CUDA-capable device is detected";
        case cudaErrorInvalidDevice:
            return "invalid device ordinal";
        case cudaErrorInvalidResourceHandle:
            return "invalid resource handle";
        case cudaErrorNotReady:
            return "device not ready";
        case cudaErrorIllegalAddress:
            return "an illegal memory access was encountered";
        case cudaErrorLaunchFailure:
            return "unspecified launch failure";
    }
    return "unrecognized error code";
}

cudaError_t cudaMalloc(void** memory, std::size_t bytes) {
    *memory = nullptr;
    if (const cudaError_t error = ready(); error != cudaSuccess) return said(error);
    *memory = device().allocate(static_cast<std::int64_t>(bytes));
    return *memory == nullptr && bytes > 0 ? said(cudaErrorMemoryAllocation) : cudaSuccess;
}

cudaError_t cudaFree(void* memory) {
    if (const cudaError_t error = ready(); error != cudaSuccess) return said(error);
    if (memory == nullptr) return cudaSuccess;
    return said(device().free(memory));
}

cudaError_t cudaMallocHost(void** memory, std::size_t bytes) {
    *memory = nullptr;
    if (const cudaError_t error = ready(); error != cudaSuccess) return said(error);
    *memory = device().allocate_pinned(static_cast<std::int64_t>(bytes));
    return *memory == nullptr && bytes > 0 ? said(cudaErrorMemoryAllocation) : cudaSuccess;
}

cudaError_t cudaFreeHost(void* memory) {
    if (const cudaError_t error = ready(); error != cudaSuccess) return said(error);
    if (memory == nullptr) return cudaSuccess;
    return said(device().free_pinned(memory));
}

cudaError_t cudaMemGetInfo(std::size_t* free, std::size_t* total) {
    if (const cudaError_t error = ready(); error != cudaSuccess) return said(error);
    const auto [all, used] = device().memory_use();
    *total = static_cast<std::size_t>(all);
    *free = static_cast<std::size_t>(all - used);
    return cudaSuccess;
}

cudaError_t cudaMemsetAsync(void* memory, int value, std::size_t bytes, cudaStream_t stream) {
    if (const cudaError_t error = ready(); error != cudaSuccess) return said(error);
    if (bytes == 0) return cudaSuccess;
    if (device().place_of(memory) == Place::pageable || !device().is_whole(memory, bytes)) {
        return said(cudaErrorInvalidValue);
    }
    return said(device().queue(stream, [=] {
        std::memset(memory, value, bytes);
        return Progress::done;
    }));
}

cudaError_t cudaMemcpyAsync(void* to, const void* from, std::size_t bytes, cudaMemcpyKind kind, cudaStream_t stream) {
    if (const cudaError_t error = ready(); error != cudaSuccess) return said(error);
    if (bytes == 0) return cudaSuccess;
    const Place source = device().place_of(from), target = device().place_of(to);
    const bool within = source == Place::device && target == Place::device;
    if (!device().is_whole(from, bytes) || !device().is_whole(to, bytes) ||
        (kind == cudaMemcpyDeviceToDevice && !within)) {
        return said(cudaErrorInvalidValue);
    }
    if (source == Place::pageable) {  // the driver has a copy when the call returns; it lands later
        const auto* const bytes_of = static_cast<const std::byte*>(from);
        return said(device().queue(stream, [to, copy = std::vector<std::byte>(bytes_of, bytes_of + bytes)] {
            std::memcpy(to, copy.data(), copy.size());
            return Progress::done;
        }));
    }
    const cudaError_t error = device().queue(stream, [=] {
        std::memmove(to, from, bytes);
        return Progress::done;
    });
    if (error != cudaSuccess || target != Place::pageable) return said(error);
    return said(device().finish(stream));  // into pageable memory the call copies before it returns
}

cudaError_t cudaDeviceGetStreamPriorityRange(int* least, int* greatest) {
    *least = 0;
    *greatest = -5;
    return said(ready());
}

cudaError_t cudaStreamCreateWithPriority(cudaStream_t* stream, unsigned flags, int /*priority*/) {
    if (const cudaError_t error = ready(); error != cudaSuccess) return said(error);
    if (flags != cudaStreamNonBlocking) return said(cudaErrorInvalidValue);  // the others wait for the default stream
    return said(device().create(stream));
}

cudaError_t cudaStreamDestroy(cudaStream_t stream) {
    return said(device().destroy(stream));
}
cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
    return said(device().finish(stream));
}
cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned /*flags*/) {
    return said(device().hold(stream, event));
}

cudaError_t cudaEventCreate(cudaEvent_t* event) {
    if (const cudaError_t error = ready(); error != cudaSuccess) return said(error);
    return said(device().create(event));
}
cudaError_t cudaEventDestroy(cudaEvent_t event) {
    return said(device().destroy(event));
}
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
    return said(device().record(stream, event));
}
cudaError_t cudaEventQuery(cudaEvent_t event) {
    return said(device().query(event));
}
cudaError_t cudaEventSynchronize(cudaEvent_t event) {
    return said(device().finish(event));
}
cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t begin, cudaEvent_t end) {
    return said(device().elapsed(milliseconds, begin, end));
}

}  // extern "C"
