// Internal state of the progress engine: the state of its thread, and the state shared with the compute thread.
#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <exception>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "exec/transport/collective.h"
#include "exec/transport/mpi_state.h"
#include "exec/transport/progress.h"
#include "exec/transport/staging.h"

namespace orrery::exec {

/// Processes columns of the operation at the head of a stream: lane l takes the columns l, l + kLanes, … one after the
/// other. Each lane has its own message tag, so that both ends know which message belongs to which column.
struct Lane {
    program::Stream stream{};
    int tag = 0;
    std::int64_t column = 0;
    int step = 0;
    int outstanding = 0;
    std::byte* scratch = nullptr;
    Staging staging;
};

struct Posted {
    Operation operation;
    Collective collective;
    program::Stream stream{};
    std::int64_t sequence = 0;
    std::int64_t posted_ns = 0;
};

struct StreamState {
    std::deque<Posted> queue;  // the head has been started if `active`
    bool active = false;
    bool begun = false;          // times.begin_ns has been set
    bool held = false;           // the paced head only waits for times.end_ns
    std::int64_t ready_all = 0;  // paced: the agreed time at which the last member was ready
    MPI_Comm comm = MPI_COMM_NULL;
    int lanes_left = 0;
    OperationTimes times;
    std::array<Lane, kLanes> lanes;
};

struct ProgressEngine::Impl {
    Transport& transport;
    Transport::Impl& mpi;
    const ProgressTuning tuning;
    const std::optional<Pacing> pacing;
    Moments moments;      // of paced operations
    const bool crowded;   // more ranks than cores
    const bool may_spin;  // at least two cores per rank, for the compute thread and this thread
    const int exceptions = std::uncaught_exceptions();

    // Shared with the compute thread.
    program::PerStream<std::int64_t> posted{};  // compute thread only
    program::PerStream<std::atomic<std::int64_t>> completed{};
    program::PerStream<EnumArray<program::CommKind, std::atomic<std::int64_t>, program::kCommKinds>> sent{};
    program::PerStream<std::atomic<std::int64_t>> received{};
    std::mutex mutex;  // protects inbox, asleep, stopping, waited_stream, waited_sequence
    std::vector<Posted> inbox;
    std::atomic<bool> has_inbox = false;
    bool asleep = false;
    std::atomic<bool> stopping = false;  // stop when everything queued is done
    std::atomic<bool> cancelled = false;
    std::atomic<bool> waiting = false;  // the compute thread is blocked in wait()
    program::Stream waited_stream{};
    std::int64_t waited_sequence = 0;
    std::condition_variable wake;  // wakes the progress thread
    std::condition_variable done;  // wakes the compute thread

    // Changed only by the progress thread, and only under the MPI lock. Other threads read it under that lock.
    program::PerStream<StreamState> streams;
    std::vector<MPI_Request> requests;
    std::vector<Lane*> owners;
    std::vector<std::int64_t> incoming;  // per request: bytes to receive; 0: a send
    std::vector<int> finished;
    std::vector<MPI_Status> statuses;
    std::vector<Lane*> advanced;
    int quiet_polls = 0;
    int sleep_us = 0;
    std::thread thread;

    Impl(Transport& of, const ProgressTuning& with, const std::optional<Pacing>& at_pace);
    [[nodiscard]] Posted prepare(program::Stream stream, const Operation& operation);
    [[nodiscard]] CollectiveArguments arguments_of(const Operation& operation) const;
    [[nodiscard]] CollectiveArguments meeting_on(program::Stream stream, const Operation& operation);
    [[nodiscard]] bool wait_until(program::Stream stream, std::int64_t sequence,
                                  std::chrono::steady_clock::time_point deadline);
    [[nodiscard]] std::string describe(const Posted& head) const;
    [[nodiscard]] std::string describe_state(const Posted& head, bool active) const;
    [[nodiscard]] std::string describe_messages(const Posted& head) const;
    [[nodiscard]] int world_rank(const Operation& operation, int index) const;
    void run();
    void loop();
    void take_inbox();
    [[nodiscard]] bool queued() const;
    bool start_ready();
    [[nodiscard]] bool dependencies_met(const Operation& operation) const;
    void start(StreamState& stream);
    [[nodiscard]] std::int64_t ready_time(const Posted& head, const StreamState& stream) const;
    void finish_messages(StreamState& stream);
    bool end_held();
    void sleep_until_due();
    void launch_from(Lane& lane);
    bool launch_step(Lane& lane, const Posted& head);
    void check_size(int request, const MPI_Status& status) const;
    bool poll();
    void complete(StreamState& stream);
    void back_off();
    void sleep(int microseconds);
};

}  // namespace orrery::exec
