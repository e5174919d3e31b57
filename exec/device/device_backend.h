// The backend of a rank with an accelerator. Each stream of the Program is a stream of the device, each dependency
// between streams is an event, and the host runs ahead and queues work. The order of operations is decided here, so a
// Device has no scheduling logic.
#pragma once

#include <deque>
#include <map>
#include <memory>
#include <vector>

#include "exec/backend.h"
#include "exec/cpu/cpu_operators.h"
#include "exec/device/device.h"
#include "exec/faults/recorder.h"

namespace orrery::exec {

class DeviceBackend : public Backend {
  public:
    /// Waits for the device are recorded with `recorder`, which must outlive the backend.
    DeviceBackend(std::unique_ptr<Device> device, FlightRecorder& recorder);

    void prepare(const program::Program& program, const program::RankClass& rank_class) override;
    ArenaMemory reserve(std::int64_t device_bytes, std::int64_t host_bytes, const std::string& needs) override;
    void write(void* device, std::int64_t bytes, const std::function<void(std::byte*)>& fill) override;
    void read(const void* device, std::int64_t bytes, const std::function<void(const std::byte*)>& use) override;
    [[nodiscard]] std::int64_t peak_memory_bytes() const override;

    AxisGroups connect(const Partners& partners) override;
    std::int64_t run(const LocalWork& work, const OperatorContext& context) override;
    [[nodiscard]] bool is_synchronous() const override { return false; }
    std::int64_t post(program::Stream stream, const Operation& operation) override;
    void clear(void* device, std::int64_t bytes) override;
    void fetch(const double* device, double* host) override;
    void stamp(std::int64_t* ns) override;

    void wait(program::Stream stream, std::int64_t sequence) override;
    void wait_all() override;
    [[nodiscard]] std::int64_t bytes_sent(program::Stream stream) const override;
    [[nodiscard]] std::map<std::string, std::string> describe() const override;

  private:
    /// A pinned staging buffer for asynchronous copies.
    struct Block {
        std::byte* memory = nullptr;
        std::int64_t bytes = 0;
    };
    /// An instruction, stamp() or fetch() on a stream whose completion the host has not processed yet.
    struct Entry {
        std::int64_t sequence = 0;   // of the instruction; for stamp() and fetch(): of the instruction before them
        std::int64_t queued_ns = 0;  // when the host began to queue it; not for fetch()
        Device::Event begin = -1;    // instructions only
        Device::Event end = -1;
        OperationTimes* times = nullptr;  // instructions only
        std::int64_t* stamp = nullptr;    // stamp() only
        double* value = nullptr;          // fetch() only; the value is copied to blocks.front() first
        std::vector<Block> blocks;        // freed on completion
    };
    struct Queue {
        std::int64_t issued = 0;
        std::deque<Entry> entries;  // in the order of their completion
        std::size_t complete = 0;   // of the entries, seen to be complete while the host waited
    };

    void hold(program::Stream stream, const Dependencies& after);
    [[nodiscard]] Operation with_counts_on_host(program::Stream stream, const Operation& operation, Entry& entry);
    std::int64_t run_on_host(const LocalWork& work, const OperatorContext& context);
    void load(program::Stream stream, const BoundOperator& one, const OperatorContext& context, Entry& entry);
    void finish_oldest(program::Stream stream);
    /// `sequence`: of the instruction on the stream that the host waits for.
    void wait_for(program::Stream stream, std::int64_t sequence, Device::Event event);
    void look_around();
    [[nodiscard]] std::string describe_pending();
    [[nodiscard]] std::int64_t host_time_ns() const;
    [[nodiscard]] std::int64_t time_ns(const Entry& entry, Device::Event event);
    void copy_now(program::Stream stream, void* to, const void* from, std::int64_t bytes);
    [[nodiscard]] Block take_block(std::int64_t bytes);

    std::unique_ptr<Device> device_;
    FlightRecorder& recorder_;
    CpuOperators on_host_;                                 // for operators whose operands are in host memory
    std::map<GroupIndex, std::int64_t> members_of_group_;  // their number
    program::PerStream<Queue> queues_;
    program::PerStream<std::int64_t> bytes_sent_{};
    std::int64_t latest_end_ns_ = 0;  // of the events that the host has seen to be complete
    bool reserved_ = false;
    std::vector<Block> free_blocks_;  // all of size block_bytes_, the largest size requested so far
    std::int64_t block_bytes_ = 0;
};

}  // namespace orrery::exec
