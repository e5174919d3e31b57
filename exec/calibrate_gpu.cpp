#include "exec/calibrate_gpu.h"

#include <algorithm>

#include "core/error.h"
#ifdef ORRERY_HAS_CUDA
#include "exec/cuda/cuda_device.h"
#include "exec/cuda/cuda_operators.h"
#include "exec/device/calibrate_device.h"
#include "models/operator_table.h"
#endif

namespace orrery::exec {

void check_gpu_calibration(const topologies::ClusterSpec& base) {
    if (base.device.host_runs_compute) {
        throw InputError("command line", "--gpu", base.name, "a cluster of GPUs, such as dgx-h100");
    }
#ifdef ORRERY_HAS_CUDA
    const GpuSearch found = find_gpus();
    if (!found.failure.empty()) throw JobError(found.failure);
    if (found.count > 0) return;
    throw InputError("command line", "--gpu", base.name,
                     "no --gpu, because this machine has no NVIDIA GPU or no driver for it");
#else
    throw InputError("command line", "--gpu", base.name, "no --gpu, because this orrery was built without CUDA");
#endif
}

topologies::ClusterSpec measure_gpu_cluster([[maybe_unused]] const topologies::ClusterSpec& base,
                                            [[maybe_unused]] Transport& transport,
                                            [[maybe_unused]] const std::string& when) {
#ifdef ORRERY_HAS_CUDA
    const std::unique_ptr<Device> device = make_cuda_device(0, transport);
    // Large enough that operands do not stay in a cache of tens of MB and that the logits of a large vocabulary fit.
    constexpr std::int64_t kLargestPool = std::int64_t{8} << 30;
    const std::int64_t pool = std::min(kLargestPool, device->free_bytes() / 2);
    const DeviceMeasurements measured = measure_device(*device, timed_models(), models::has_kernels, pool);
    return with_measured_device(base, device->describe().at("device"), measured, when);
#else
    throw_bug(__FILE__, __LINE__, "GPU", "GPU calibration in a build without CUDA; call check_gpu_calibration() first");
#endif
}

}  // namespace orrery::exec
