#include "exec/make_backend.h"

#include <cstdlib>
#include <utility>

#include "core/error.h"
#include "exec/cpu/backend.h"
#ifdef ORRERY_HAS_CUDA
#include "exec/cuda/cuda_device.h"
#include "exec/cuda/gpu_limits.h"
#include "exec/device/device_backend.h"
#endif

namespace orrery::exec {
namespace {

using program::Program;

bool needs_gpus(const Program& program, bool on_cpu) {
    return !on_cpu && !program.plan->cluster.device.host_runs_compute;
}

#ifdef ORRERY_HAS_CUDA

/// This rank's index on its machine, which is also the index of its GPU.
int local_rank(const Transport& transport) {
    for (const char* name : {"OMPI_COMM_WORLD_LOCAL_RANK", "LOCAL_RANK", "SLURM_LOCALID"}) {
        if (const char* text = std::getenv(name); text != nullptr)
            return static_cast<int>(std::strtol(text, nullptr, 10));
    }
    return transport.rank() % transport.ranks_on_host();  // a guess: a machine's ranks are usually consecutive
}

/// NCCL may choose another algorithm in each run. The split of a cuBLAS GEMM may depend on how streams share its
/// workspace.
void fix_order_of_sums() {
    for (const auto& [name, value] : {std::pair{"NCCL_ALGO", "Ring"},
                                      {"NCCL_PROTO", "Simple"},
                                      {"NCCL_NVLS_ENABLE", "0"},
                                      {"CUBLAS_WORKSPACE_CONFIG", ":4096:8"}}) {
        setenv(name, value, 0);
    }
}

void check_gpus(const Program& program, int ranks_here, const std::string& source) {
    const int gpus = gpu_count();
    if (gpus == 0) {
        throw InputError(source, "/cluster", program.plan->cluster.name,
                         "a cluster of CPUs, because this machine has no NVIDIA GPU or no driver for it; orrery "
                         "run --on-cpu runs the plan on CPU cores");
    }
    if (gpus < ranks_here) {
        throw InputError(source, "/parallelism", std::to_string(ranks_here) + " ranks on this machine",
                         "at most one for each of its " + std::to_string(gpus) + " GPUs");
    }
    check_runs_on_gpu(program, source);
}

#endif

}  // namespace

void check_backend(const Program& program, bool on_cpu, [[maybe_unused]] int ranks_here, const std::string& source) {
    if (!needs_gpus(program, on_cpu)) {
#ifndef ORRERY_HAS_MPI
        if (program.world_size() > 1) {
            throw InputError(source, "/cluster", program.plan->cluster.name,
                             "one rank, or GPUs, because this orrery was built without MPI");
        }
#endif
        return;
    }
#ifdef ORRERY_HAS_CUDA
    check_gpus(program, ranks_here, source);
#else
    throw InputError(source, "/cluster", program.plan->cluster.name,
                     "a cluster of CPUs, because this orrery was built without CUDA; orrery run "
                     "--on-cpu runs the plan on CPU cores");
#endif
}

std::unique_ptr<Backend> make_backend(const Program& program, bool on_cpu, [[maybe_unused]] bool deterministic,
                                      Transport& transport) {
#ifdef ORRERY_HAS_CUDA
    if (needs_gpus(program, on_cpu)) {
        if (deterministic) fix_order_of_sums();
        return std::make_unique<DeviceBackend>(make_cuda_device(local_rank(transport), transport));
    }
#endif
    ORRERY_CHECK(!needs_gpus(program, on_cpu), "make_backend() in a build without CUDA got a plan for GPUs");
    return std::make_unique<CpuBackend>(transport);
}

}  // namespace orrery::exec
