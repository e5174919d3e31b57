// A rank that computes and moves nothing but takes its time: each instruction lasts as long as a record says, with the
// threads, events, order and transport of a real run. What is left to differ from a simulation fed with the same
// durations is what interpreter and simulator make of the Program.
//
// Moments are reckoned, not met: an instruction is due to begin when the last of what it waited for was due to end, and
// threads sleep until what is due. So what the operating system wakes them late by does not add up. Members of a group
// tell each other when they were ready, in a message in place of the data.
#pragma once

#include <memory>
#include <vector>

#include "exec/backend.h"
#include "exec/transport/progress.h"
#include "exec/transport/transport.h"
#include "sim/program/durations.h"
#include "sim/program/issue_order.h"

namespace orrery::exec {

/// Where the plan's host runs the computation, local streams are the calling thread, as on the CPU; otherwise they work
/// by themselves, as on a GPU, and the calling thread is the host stream.
class PacedBackend : public Backend {
  public:
    /// All three outlive the backend. Takes the rank's instructions to be run in issue order, step after step.
    /// Collective over all ranks.
    PacedBackend(const program::Program& program, const program::Durations& durations, Transport& transport);
    ~PacedBackend() override;

    /// Addresses, without memory: whoever reads or writes there ends with a segmentation fault.
    ArenaMemory reserve(std::int64_t device_bytes, std::int64_t host_bytes, const std::string& needs) override;
    /// Does nothing, and does not call: there is no memory.
    void write(void* device, std::int64_t bytes, const std::function<void(std::byte*)>& fill) override;
    void read(const void* device, std::int64_t bytes, const std::function<void(const std::byte*)>& use) override;
    [[nodiscard]] std::int64_t peak_memory_bytes() const override;

    AxisGroups connect(const AxisMembers& members) override;
    std::int64_t run(const LocalWork& work, const OperatorContext& context) override;
    [[nodiscard]] bool is_synchronous() const override { return false; }  // there are no results to look at
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
    /// Goes on to the next instruction, which must be one of the stream, and returns how long it takes.
    std::int64_t next_duration_ns(program::Stream stream);
    /// What the calling thread itself does, from run() to run().
    std::int64_t run_here(const LocalWork& work, std::int64_t duration_ns);
    [[nodiscard]] bool is_here(program::Stream stream) const {
        return program::runs_on_host(stream, host_runs_compute_);
    }
    /// Takes the streams of the calling thread out of what is waited for, since it has done what it was given.
    [[nodiscard]] Dependencies elsewhere(const Dependencies& after) const;
    void start_clock();
    void write_stamps(std::int64_t completed);

    Transport& transport_;
    const program::Program& program_;
    const program::IssueOrder order_;
    const std::vector<std::int64_t>& durations_ps_;
    const bool host_runs_compute_;
    const std::int64_t launch_ns_;
    std::int64_t next_ = 0;         // in issue order
    std::int64_t host_due_ns_ = 0;  // what the calling thread has come to; 0: it has not begun
    EnumArray<program::Stream, std::int64_t, program::kLocalStreams> done_here_{};
    std::vector<Stamp> stamps_;
    program::PerStream<GroupHandle> meetings_{};  // of pairs; of one, for local streams
    std::byte* memory_ = nullptr;
    std::int64_t bytes_ = 0;
    std::unique_ptr<ProgressEngine> progress_;  // last: its thread stops before what it uses goes
};

}  // namespace orrery::exec
