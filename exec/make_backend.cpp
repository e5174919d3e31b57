#include "exec/make_backend.h"

#include <unistd.h>

#include <array>
#include <charconv>
#include <climits>
#include <cstdlib>
#include <map>
#include <string_view>
#include <utility>
#include <vector>

#include "core/error.h"
#include "exec/cpu/backend.h"
#ifdef ORRERY_HAS_CUDA
#include "exec/cuda/cuda_device.h"
#include "exec/device/device_backend.h"
#include "exec/device/gpu_limits.h"
#include "exec/launch.h"
#endif

namespace orrery::exec {
namespace {

using program::Program;

bool needs_gpus(const Program& program, bool on_cpu) {
    return !on_cpu && !program.plan->cluster.device.host_runs_compute;
}

#ifdef ORRERY_HAS_CUDA

/// This rank's index on its machine. Open MPI's variable can come from an mpirun in which torchrun was started.
int local_rank(const Transport& transport) {
    std::vector<const char*> names{"OMPI_COMM_WORLD_LOCAL_RANK", "LOCAL_RANK", "SLURM_LOCALID"};
    if (std::getenv("TORCHELASTIC_RUN_ID") != nullptr) std::swap(names[0], names[1]);
    for (const char* name : names) {
        const char* text = std::getenv(name);
        if (text == nullptr) continue;
        int index = 0;
        const std::string_view digits(text);
        const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), index);
        if (error != std::errc() || end != digits.data() + digits.size() || index < 0) {
            throw JobError(std::string(name) + ": got '" + text + "'; allowed: this rank's number on its machine");
        }
        return index;
    }
    return transport.rank() % transport.ranks_on_host();  // a guess: a machine's ranks are usually consecutive
}

/// The index of this rank's GPU among those that it can see: all of its machine's, or one that its launcher has chosen.
int gpu_of_rank(const Transport& transport) {
    const int gpus = find_gpus().count;
    const int index = gpus == 1 ? 0 : local_rank(transport);
    if (index >= gpus) {
        throw JobError("its number on this machine is " + std::to_string(index) + ", and the machine has " +
                       std::to_string(gpus) + " GPUs, from 0");
    }
    return index;
}

/// Throws JobError if two ranks have the same GPU: NCCL would refuse it without naming them.
void check_distinct(Transport& transport, const std::string& gpu) {
    std::array<char, HOST_NAME_MAX + 1> host{};
    gethostname(host.data(), HOST_NAME_MAX);
    const std::vector<std::string> all = transport.gather(std::string(host.data()) + " " + gpu);
    std::map<std::string, std::size_t> ranks;
    std::string shared;
    for (std::size_t rank = 0; rank < all.size() && shared.empty(); ++rank) {
        const auto [first, is_new] = ranks.emplace(all[rank], rank);
        if (!is_new) {
            shared = "ranks " + std::to_string(first->second) + " and " + std::to_string(rank) +
                     " have the same GPU, " + gpu + "; allowed: a GPU for each rank";
        }
    }
    shared = transport.broadcast(shared);
    if (!shared.empty()) throw JobError(shared);
}

/// NCCL may choose another algorithm in each run. cuBLAS does not, since every stream has a workspace of its own.
void fix_order_of_sums() {
    for (const auto& [name, value] :
         {std::pair{"NCCL_ALGO", "Ring"}, {"NCCL_PROTO", "Simple"}, {"NCCL_NVLS_ENABLE", "0"}}) {
        setenv(name, value, 0);
    }
}

void check_gpus(const Program& program, int ranks_here, const std::string& source) {
    const GpuSearch found = find_gpus();
    if (!found.failure.empty()) throw JobError(found.failure);
    if (found.count == 0) {
        throw InputError(source, "/cluster", program.plan->cluster.name,
                         "a cluster of CPUs, because this machine has no NVIDIA GPU or no driver for it; orrery "
                         "run --on-cpu runs the plan on CPU cores, and --emulated on emulated GPUs");
    }
    const bool may_have_one_each = found.count == 1 && under_launcher();  // srun --gpus-per-task=1
    if (found.count < ranks_here && !may_have_one_each) {
        throw InputError(source, "/parallelism", std::to_string(ranks_here) + " ranks on this machine",
                         "at most one for each of its " + std::to_string(found.count) + " GPUs");
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
                     "--on-cpu runs the plan on CPU cores, and --emulated on emulated GPUs");
#endif
}

bool gpus_are_emulated() {
#ifdef ORRERY_EMULATES_GPUS
    return true;
#else
    return false;
#endif
}

std::unique_ptr<Backend> make_backend(const Program& program, bool on_cpu, [[maybe_unused]] bool deterministic,
                                      Transport& transport) {
#ifdef ORRERY_HAS_CUDA
    if (needs_gpus(program, on_cpu)) {
        if (deterministic) fix_order_of_sums();
        const int gpu = gpu_of_rank(transport);
        check_distinct(transport, gpu_address(gpu));
        return std::make_unique<DeviceBackend>(make_cuda_device(gpu, transport), transport.recorder());
    }
#endif
    ORRERY_CHECK(!needs_gpus(program, on_cpu), "make_backend() in a build without CUDA got a plan for GPUs");
    return std::make_unique<CpuBackend>(transport);
}

}  // namespace orrery::exec
