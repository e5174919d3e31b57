// The emulated device of this process: streams whose operations a thread of its own executes, as late and in as odd an
// order as CUDA's rules allow. It is also the interface for the emulated cuBLAS and NCCL, which queue operations.
//
// Nothing runs when it is queued. The device works only if somebody waits for it: the host, or another rank whose
// collective this rank has queued. What it then chooses follows from a seed:
//   seed % 3 == 0   only what the awaited operation needs, in any order that the streams and events allow
//   seed % 3 == 1   any operation that may run
//   seed % 3 == 2   first whatever the awaited operation does not need
//
// Environment (all optional):
//   EMULATED_CUDA_SEED             seed of this order and of that of warps and blocks; default 0
//   EMULATED_CUDA_DEVICES          number of devices; default 8
//   EMULATED_CUDA_MEMORY_MIB       memory of a device; default 4096
//   EMULATED_CUDA_SHARED_KIB       shared memory that a block may have; default 163, as on an A100
//   EMULATED_CUDA_DRIVER           version of the driver, as 13000; 0: none. Default: that of the toolkit
//   EMULATED_CUDA_ONE_COLLECTIVE   1: a collective occupies the resources of its communicator, so that the next one of
//                                  a communicator that shares them waits until it has ended, as with NCCL
//   EMULATED_CUDA_FAULT            N: the N-th kernel fails
//   EMULATED_NCCL_FAULT            N: the N-th collective fails; its communicator reports a remote error
//   EMULATED_CUDA_COUNTS           a file to which the process appends its numbers of kernels and collectives at the
//                                  end
//   EMULATED_CUDA_PATIENCE_S       how long nothing may move while somebody waits, before it aborts; default 120
#pragma once

#include <cuda_runtime.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "tests/emulator/memory.h"
#include "tests/emulator/sanitizers.h"

namespace emulated {

/// An environment variable; `otherwise` if it is not set. Ends the process if it is not a number.
[[nodiscard]] std::int64_t setting(const char* name, std::int64_t otherwise);

/// What an operation does. A collective is called until its peers have arrived.
enum class Progress { done, waits };
using Step = std::function<Progress()>;

/// Collectives of one communicator, as the device sees them: how many of them peers have begun. Everything up to there
/// is awaited.
using Wanted = std::function<std::uint64_t()>;

struct Collective {
    const void* communicator = nullptr;
    const void* family = nullptr;  // the same for communicators that share resources
    std::uint64_t number = 0;      // among those of the communicator, from 1
    Wanted wanted;
};

class Device {
  public:
    [[nodiscard]] static Device& instance();

    [[nodiscard]] std::uint64_t random();

    // ---- memory -----------------------------------------------------------------------------------------------------

    [[nodiscard]] void* allocate(std::int64_t bytes);
    [[nodiscard]] void* allocate_pinned(std::int64_t bytes);
    /// Waits for everything that is queued, as cudaFree does.
    cudaError_t free(void* memory);
    cudaError_t free_pinned(void* memory);
    /// Accounts memory that a library takes; negative to give it back.
    void reserve(std::int64_t bytes);
    /// All and used bytes.
    [[nodiscard]] std::pair<std::int64_t, std::int64_t> memory_use();
    [[nodiscard]] Place place_of(const void* memory);
    [[nodiscard]] bool is_whole(const void* memory, std::size_t bytes);

    // ---- queueing, by the host; each returns the error that the process already has, if any -------------------------

    cudaError_t queue(cudaStream_t stream, Step step, std::optional<Collective> collective = {});
    cudaError_t queue_grid(cudaStream_t stream, Kernel kernel, const Extent& grid, const Extent& block);
    cudaError_t record(cudaStream_t stream, cudaEvent_t event);
    cudaError_t hold(cudaStream_t stream, cudaEvent_t event);

    // ---- waiting, by the host ---------------------------------------------------------------------------------------

    cudaError_t finish(cudaStream_t stream);
    cudaError_t finish(cudaEvent_t event);
    cudaError_t query(cudaEvent_t event);
    void finish_collectives(const void* communicator);
    /// Removes the operations of a communicator, which is aborted.
    void drop(const void* communicator);

    cudaError_t create(cudaStream_t* stream);
    cudaError_t destroy(cudaStream_t stream);
    cudaError_t create(cudaEvent_t* event);
    cudaError_t destroy(cudaEvent_t event);
    cudaError_t elapsed(float* milliseconds, cudaEvent_t begin, cudaEvent_t end);

    /// The error that every call returns from now on; the first one stays.
    void break_down(cudaError_t error);
    [[nodiscard]] cudaError_t broken() const { return broken_; }
    /// True for the collective that is to report an error.
    [[nodiscard]] bool collective_fails();
    /// From now on the order of execution follows from this seed.
    void set_seed(std::int64_t seed);
    /// From now on collectives begin in the order in which the host queued them.
    void begin_in_order();

  private:
    using Clock = std::chrono::steady_clock;

    /// The points of an event: its n-th recording is complete when `completed` is at least n.
    struct EventState {
        std::uint64_t recorded = 0, completed = 0;
        Clock::time_point time;
        std::map<std::uint64_t, std::pair<CUstream_st*, std::uint64_t>> pending;  // by recording: stream and operation
        int queries = 0;                                                          // since the last recording
        char order = 0;                                                           // ThreadSanitizer's
    };
    struct Operation {
        std::uint64_t number = 0;  // among those of all streams, in the order of queueing
        Step step;                 // none: a recording or a wait
        std::shared_ptr<EventState> event;
        std::uint64_t recording = 0;
        bool records = false;
        std::optional<Collective> collective;
        bool has_begun = false;
        std::unique_ptr<char> order;  // ThreadSanitizer's: from the host's call to the execution
    };
    friend struct ::CUstream_st;
    friend struct ::CUevent_st;
    using Demand = std::map<CUstream_st*, std::uint64_t>;  // operations of the stream up to this number

    Device();
    static void write_counts();
    void work();
    [[nodiscard]] bool step_once(std::unique_lock<std::mutex>& lock, const Demand& demand);
    [[nodiscard]] bool may_run(const Operation& operation) const;
    [[nodiscard]] bool may_begin(const Operation& collective) const;
    [[nodiscard]] bool run(std::unique_lock<std::mutex>& lock, CUstream_st& stream);
    void forget_done();
    void drop_all();
    void add(cudaStream_t stream, Operation operation);
    void need(Demand& demand, CUstream_st* stream, std::uint64_t number);
    [[nodiscard]] Demand wanted_by_peers();
    cudaError_t wait_for(std::unique_lock<std::mutex>& lock, CUstream_st* stream, std::uint64_t number);
    [[nodiscard]] bool is_done(CUstream_st* stream, std::uint64_t number) const;
    [[nodiscard]] std::string describe() const;

    std::mutex mutex_;
    std::condition_variable wake_, news_;
    Memory memory_;
    std::mt19937_64 random_;
    int policy_ = 0;
    bool one_collective_ = false;
    bool in_order_ = false;          // see begin_in_order()
    bool works_ = false;             // its thread runs operations
    bool closes_memory_ = false;     // when it has done so: the host knows of something that is complete
    const void* running_ = nullptr;  // the communicator of the collective that runs
    std::int64_t fault_ = 0, collective_fault_ = 0;
    std::atomic<std::int64_t> grids_ = 0, collectives_ = 0;  // run
    std::vector<CUstream_st*> streams_;
    std::uint64_t queued_ = 0;
    Demand demand_;                                                                     // the host's
    std::map<std::uint64_t, std::pair<CUstream_st*, Collective>> collectives_pending_;  // by operation number
    std::map<const void*, int> begun_;  // by family: collectives that wait for their peers
    std::atomic<cudaError_t> broken_ = cudaSuccess;
    Clock::time_point moved_ = Clock::now();
    std::thread thread_;
};

}  // namespace emulated

struct CUstream_st {
    std::deque<emulated::Device::Operation> queue;
    std::uint64_t last = 0;  // number of the last operation queued
    char order = 0;          // ThreadSanitizer's
    emulated::Flow flow{emulated::Flow::Kind::fresh};
};
struct CUevent_st {
    std::shared_ptr<emulated::Device::EventState> state;
};
