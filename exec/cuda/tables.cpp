#include "exec/cuda/tables.h"

#include <cuda_runtime.h>

#include "core/error.h"
#include "exec/cuda/check.h"
#include "exec/operator_shapes.h"
#include "kernels/rotary.h"

namespace orrery::exec {

DeviceTables::DeviceTables(std::function<std::byte*(std::int64_t)> allocate) : allocate_(std::move(allocate)) {}

DeviceTables::Rotary DeviceTables::rotary(kernels::cuda::StreamHandle stream, const models::ModelSpec& model,
                                          std::int64_t positions, std::int64_t width) {
    Rotary& table = rotary_[{positions, width}];
    if (table.cosines != nullptr) return table;
    const auto elements = static_cast<std::size_t>(positions * (width / 2));
    std::vector<float> values(2 * elements);
    kernels::rotary_table(rotary_frequencies(model), positions, width, values.data(), values.data() + elements);
    table.cosines = put(stream, values);
    table.sines = table.cosines + elements;
    return table;
}

const float* DeviceTables::copy_of(kernels::cuda::StreamHandle stream, const std::vector<float>& values) {
    if (values.empty()) return nullptr;
    const float*& copy = copies_[values];
    if (copy == nullptr) copy = put(stream, values);
    return copy;
}

const float* DeviceTables::put(kernels::cuda::StreamHandle stream, const std::vector<float>& values) {
    const std::size_t bytes = values.size() * sizeof(float);
    std::byte* const memory = allocate_(static_cast<std::int64_t>(bytes));
    if (memory == nullptr) throw JobError("cudaMalloc: no device memory for a table of positions");
    // A copy from pageable memory may land after the call, and streams that do not block do not wait for it by
    // themselves.
    auto* const handle = static_cast<cudaStream_t>(stream.stream);
    check_cuda(cudaMemcpyAsync(memory, values.data(), bytes, cudaMemcpyDefault, handle), "cudaMemcpyAsync");
    check_cuda(cudaStreamSynchronize(handle), "cudaStreamSynchronize");
    return reinterpret_cast<const float*>(memory);
}

}  // namespace orrery::exec
