#include "exec/cuda/tables.h"

#include <cuda_runtime.h>

#include "core/error.h"
#include "exec/cuda/check.h"
#include "exec/operator_shapes.h"
#include "kernels/rotary.h"

namespace orrery::exec {
namespace {

/// Waits until the values are on the device, so that all streams may read them.
const float* put(kernels::cuda::StreamHandle stream, const std::vector<float>& values, std::byte* memory) {
    if (memory == nullptr) throw JobError("cudaMalloc: no device memory for a table of positions");
    // A copy from pageable memory may land after the call, and streams that do not block do not wait for it by
    // themselves.
    auto* const handle = static_cast<cudaStream_t>(stream.stream);
    check_cuda(cudaMemcpyAsync(memory, values.data(), values.size() * sizeof(float), cudaMemcpyDefault, handle),
               "cudaMemcpyAsync");
    check_cuda(cudaStreamSynchronize(handle), "cudaStreamSynchronize");
    return reinterpret_cast<const float*>(memory);
}

std::int64_t bytes_of(const std::vector<float>& values) {
    return std::ssize(values) * static_cast<std::int64_t>(sizeof(float));
}

}  // namespace

DeviceTables::DeviceTables(Allocate allocate, Allocate small)
    : allocate_(std::move(allocate)), small_(std::move(small)) {}

DeviceTables::Rotary DeviceTables::rotary(kernels::cuda::StreamHandle stream, const models::ModelSpec& model,
                                          std::int64_t positions, std::int64_t width) {
    Rotary& table = rotary_[{positions, width}];
    if (table.cosines != nullptr) return table;
    const auto elements = static_cast<std::size_t>(positions * (width / 2));
    std::vector<float> values(2 * elements);
    kernels::rotary_table(rotary_frequencies(model), positions, width, values.data(), values.data() + elements);
    table.cosines = put(stream, values, allocate_(bytes_of(values)));
    table.sines = table.cosines + elements;
    return table;
}

const float* DeviceTables::copy_of(kernels::cuda::StreamHandle stream, const std::vector<float>& values) {
    if (values.empty()) return nullptr;
    const float*& copy = copies_[values];
    if (copy == nullptr) copy = put(stream, values, small_(bytes_of(values)));
    return copy;
}

}  // namespace orrery::exec
