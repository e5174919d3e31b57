// The part of the CUDA runtime's interface that Orrery uses, for the emulated device (tests/emulator/README.md). The
// names, values and signatures are NVIDIA's; tests/emulator/interface.cpp holds them against the real headers where
// these are installed. Device code is plain C++ here: a thread of a kernel is a fiber, and the keywords mean nothing or
// name a place in memory.
#pragma once

#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "tests/emulator/grid.h"

#define CUDART_VERSION 13000

#define __global__
#define __device__
#define __host__
#define __forceinline__ inline
#define __grid_constant__
#define __launch_bounds__(...)
/// Shared memory of a block: only one block runs at a time, so that a static variable will do. They lie in a section of
/// their own, which is filled with NaN before each block. Kernels and the functions with such variables must have
/// internal linkage.
#define __shared__ __attribute__((section("emulated_shared"))) static

/// Of the running thread, for device code.
extern ::emulated::Extent threadIdx, blockIdx, blockDim, gridDim;

inline void __syncthreads() {
    static_cast<void>(::emulated::meet_block(0));
}
inline int __syncthreads_or(int predicate) {
    return ::emulated::meet_block(predicate);
}
template <typename T>
T __shfl_xor_sync(unsigned mask, T value, int lanes) {
    static_assert(sizeof(T) <= sizeof(std::uint64_t) && std::is_trivially_copyable_v<T>);
    std::uint64_t bits = 0;
    std::memcpy(&bits, &value, sizeof value);
    bits = ::emulated::exchange(mask, bits, static_cast<unsigned>(lanes));
    std::memcpy(&value, &bits, sizeof value);
    return value;
}
/// A shuffle of nothing, which every lane reaches.
inline void __syncwarp(unsigned mask = 0xffffffffU) {
    static_cast<void>(::emulated::exchange(mask, 0, 0));
}
inline unsigned __ballot_sync(unsigned mask, int predicate) {
    const unsigned thread = threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z);
    std::uint64_t lanes = predicate != 0 ? std::uint64_t{1} << thread % 32 : 0;
    for (unsigned distance = 16; distance > 0; distance /= 2) lanes |= ::emulated::exchange(mask, lanes, distance);
    return static_cast<unsigned>(lanes);
}
inline int __popc(unsigned bits) {
    return std::popcount(bits);
}
using std::isfinite;
using std::isnan;

extern "C" {

enum cudaError_t {
    cudaSuccess = 0,
    cudaErrorInvalidValue = 1,
    cudaErrorMemoryAllocation = 2,
    cudaErrorInvalidConfiguration = 9,
    cudaErrorInsufficientDriver = 35,
    cudaErrorNoDevice = 100,
    cudaErrorInvalidDevice = 101,
    cudaErrorInvalidResourceHandle = 400,
    cudaErrorNotReady = 600,
    cudaErrorIllegalAddress = 700,
    cudaErrorLaunchFailure = 719,
};
enum cudaMemcpyKind { cudaMemcpyDeviceToDevice = 3, cudaMemcpyDefault = 4 };
#define cudaStreamNonBlocking 0x01

struct CUstream_st;
struct CUevent_st;
using cudaStream_t = CUstream_st*;
using cudaEvent_t = CUevent_st*;
using dim3 = ::emulated::Extent;

/// Of NVIDIA's structures only the members that Orrery uses.
enum cudaDeviceAttr {
    cudaDevAttrComputeCapabilityMajor = 75,
    cudaDevAttrComputeCapabilityMinor = 76,
    cudaDevAttrMaxSharedMemoryPerBlockOptin = 97,
};
enum cudaFuncAttribute { cudaFuncAttributeMaxDynamicSharedMemorySize = 8 };
struct cudaDeviceProp {
    char name[256];
};
struct cudaLaunchConfig_t {
    dim3 gridDim, blockDim;
    std::size_t dynamicSmemBytes;
    cudaStream_t stream;
};

cudaError_t cudaFuncSetAttribute(const void* kernel, cudaFuncAttribute attribute, int value);
cudaError_t cudaGetDeviceCount(int* count);
cudaError_t cudaSetDevice(int device);
cudaError_t cudaGetDevice(int* device);
cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int device);
cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int device);
cudaError_t cudaDeviceGetPCIBusId(char* text, int length, int device);
cudaError_t cudaDriverGetVersion(int* version);
cudaError_t cudaRuntimeGetVersion(int* version);
cudaError_t cudaGetLastError();
const char* cudaGetErrorString(cudaError_t error);

cudaError_t cudaMalloc(void** memory, std::size_t bytes);
cudaError_t cudaFree(void* memory);
cudaError_t cudaMallocHost(void** memory, std::size_t bytes);
cudaError_t cudaFreeHost(void* memory);
cudaError_t cudaMemGetInfo(std::size_t* free, std::size_t* total);
cudaError_t cudaMemsetAsync(void* memory, int value, std::size_t bytes, cudaStream_t stream);
cudaError_t cudaMemcpyAsync(void* to, const void* from, std::size_t bytes, cudaMemcpyKind kind, cudaStream_t stream);

cudaError_t cudaDeviceGetStreamPriorityRange(int* least, int* greatest);
cudaError_t cudaStreamCreateWithPriority(cudaStream_t* stream, unsigned flags, int priority);
cudaError_t cudaStreamDestroy(cudaStream_t stream);
cudaError_t cudaStreamSynchronize(cudaStream_t stream);
cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned flags);

cudaError_t cudaEventCreate(cudaEvent_t* event);
cudaError_t cudaEventDestroy(cudaEvent_t event);
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream);
cudaError_t cudaEventQuery(cudaEvent_t event);
cudaError_t cudaEventSynchronize(cudaEvent_t event);
cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t begin, cudaEvent_t end);

}  // extern "C"

namespace emulated {

/// Queues a grid.
cudaError_t queue_grid(const cudaLaunchConfig_t& config, Kernel kernel);
/// Whether a kernel may be given this pointer: null, or in device or pinned memory.
[[nodiscard]] bool is_for_kernels(const void* pointer);

template <typename T>
bool is_for_kernels_if_pointer([[maybe_unused]] const T& argument) {
    if constexpr (std::is_pointer_v<T>) return is_for_kernels(argument);
    if constexpr (requires { argument.data; }) return is_for_kernels_if_pointer(argument.data);
    return true;
}

}  // namespace emulated

/// The arguments are copied when the kernel is queued, as CUDA does.
template <typename... Parameters, typename... Arguments>
cudaError_t cudaLaunchKernelEx(const cudaLaunchConfig_t* config, void (*kernel)(Parameters...),
                               Arguments&&... arguments) {
    return [&](Parameters... copies) {
        ::emulated::Kernel call{.run = [=] { kernel(copies...); },
                                .address = reinterpret_cast<const void*>(kernel),
                                .shared_begin = __start_emulated_shared,
                                .shared_end = __stop_emulated_shared,
                                .has_bad_pointer = !(::emulated::is_for_kernels_if_pointer(copies) && ...)};
        return ::emulated::queue_grid(*config, std::move(call));
    }(arguments...);
}
