// A paced backend: it computes and transfers nothing, but each instruction takes a given duration, with the threads,
// events, order and transport of a real run. A simulation with the same durations can then differ only where
// interpreter and simulator execute the Program differently.
//
// Times are computed, not measured: an instruction begins at the computed end of the last operation that it waits for,
// and threads sleep until then. So late wake-ups by the operating system do not add up. Members of a group exchange the
// times at which they were ready, in a message that takes the place of the data.
#pragma once

#include <memory>
#include <vector>

#include "exec/backend.h"
#include "exec/transport/progress.h"
#include "exec/transport/transport.h"
#include "sim/program/durations.h"
#include "sim/program/issue_order.h"

namespace orrery::exec {

/// If the plan's devices are CPU cores (host_runs_compute), local streams run in the calling thread, as in CpuBackend.
/// Otherwise they are asynchronous, as on a GPU, and the calling thread runs only the host stream.
class PacedBackend : public Backend {
  public:
    /// The arguments must outlive the backend. The rank's instructions must then be run in issue order, step after
    /// step.
    PacedBackend(const program::Program& program, const program::Durations& durations, Transport& transport);
    ~PacedBackend() override;

    /// Reserves addresses without memory: any access is a segmentation fault.
    ArenaMemory reserve(std::int64_t device_bytes, std::int64_t host_bytes, const std::string& needs) override;
    /// write() and read() do nothing and do not call their argument, because there is no memory.
    void write(void* device, std::int64_t bytes, const std::function<void(std::byte*)>& fill) override;
    void read(const void* device, std::int64_t bytes, const std::function<void(const std::byte*)>& use) override;
    [[nodiscard]] std::int64_t peak_memory_bytes() const override;

    AxisGroups connect(const Partners& partners) override;
    std::int64_t run(const LocalWork& work, const OperatorContext& context) override;
    [[nodiscard]] bool is_synchronous() const override { return false; }  // there are no results to read
    std::int64_t post(program::Stream stream, const Operation& operation) override;
    void clear(void* device, std::int64_t bytes) override;
    void fetch(const double* device, double* host) override;
    void stamp(std::int64_t* ns) override;

    void wait(program::Stream stream, std::int64_t sequence) override;
    void wait_all() override;
    [[nodiscard]] std::int64_t bytes_sent(program::Stream stream) const override;
    [[nodiscard]] std::int64_t resident_bytes(const void*, std::int64_t) const override { return 0; }
    [[nodiscard]] std::map<std::string, std::string> describe() const override;

  private:
    struct Stamp {
        std::int64_t sequence = 0;  // on the compute stream
        std::int64_t* ns = nullptr;
    };
    /// Advances to the next instruction, which must be on this stream, and returns its duration.
    std::int64_t next_duration_ns(program::Stream stream);
    /// Runs an instruction of a stream of the calling thread.
    std::int64_t run_here(const LocalWork& work, std::int64_t duration_ns);
    [[nodiscard]] bool is_here(program::Stream stream) const {
        return program::runs_on_host(stream, host_runs_compute_);
    }
    /// Removes dependencies on streams of the calling thread, which has already completed their instructions.
    [[nodiscard]] Dependencies elsewhere(const Dependencies& after) const;
    void start_clock();
    void write_stamps(std::int64_t completed);

    Transport& transport_;
    const program::Program& program_;
    const program::IssueOrder order_;
    const std::vector<std::int64_t>& durations_ps_;
    const bool host_runs_compute_;
    const std::int64_t launch_ns_;
    std::int64_t next_ = 0;         // index of the next instruction in issue order
    std::int64_t host_due_ns_ = 0;  // computed time of the calling thread; 0: it has not started
    EnumArray<program::Stream, std::int64_t, program::kLocalStreams> done_here_{};
    std::vector<Stamp> stamps_;
    program::PerStream<GroupHandle> meetings_{};  // pipeline pairs; this rank if local
    std::byte* memory_ = nullptr;
    std::int64_t bytes_ = 0;
    std::unique_ptr<ProgressEngine> progress_;  // last member: its thread stops before anything it uses is destroyed
};

}  // namespace orrery::exec
