#include "exec/transport/heartbeat.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <exception>
#include <string>

#include "core/error.h"
#include "exec/faults/diagnosis.h"
#include "exec/faults/place.h"
#include "exec/faults/rank_watch.h"
#include "exec/transport/mpi_state.h"

namespace orrery::exec {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::chrono::milliseconds kInterval{1000};
/// How long this rank's waiting thread has to describe its pending operations; it looks for requests twice a second.
constexpr std::chrono::milliseconds kAnswerTime{1500};

/// A heartbeat message: the fields of a RankSnapshot that describe_place() needs, and whether it is the last one.
using Beat = std::array<std::int64_t, 6>;
enum Field : std::size_t { stage_field, step_field, finished_field, next_field, awaited_field, last_field };

Beat beat_of(const RankSnapshot& page, bool is_last) {
    return {static_cast<std::int64_t>(page.stage),
            page.step,
            static_cast<std::int64_t>(packed(page.finished)),
            static_cast<std::int64_t>(packed(page.next)),
            static_cast<std::int64_t>(packed(page.awaited)),
            is_last ? 1 : 0};
}

RankSnapshot snapshot_of(const Beat& beat) {
    RankSnapshot page;
    page.stage = static_cast<RankStage>(beat[stage_field]);
    page.step = beat[step_field];
    page.finished = unpacked(static_cast<std::uint64_t>(beat[finished_field]));
    page.next = unpacked(static_cast<std::uint64_t>(beat[next_field]));
    page.awaited = unpacked_operation(static_cast<std::uint64_t>(beat[awaited_field]));
    return page;
}

double seconds_between(Clock::time_point earlier, Clock::time_point later) {
    return std::chrono::duration<double>(later - earlier).count();
}

std::string short_number(double value) {
    return std::to_string(std::lround(value));
}

}  // namespace

struct Heartbeat::Ring {
    const program::Program& program;
    Transport& transport;
    Transport::Impl& mpi;
    const int left, right;
    MPI_Comm comm = MPI_COMM_NULL;
    MPI_Request sending = MPI_REQUEST_NULL, receiving = MPI_REQUEST_NULL;
    Beat sent{}, received{};
    Beat heard{};  // the left neighbour's latest
    Clock::time_point heard_at = Clock::now();
    RankWatch self;
    Clock::time_point woken = Clock::now();

    Ring(const program::Program& of, Transport& over)
        : program(of),
          transport(over),
          mpi(over.impl()),
          left((mpi.rank + mpi.world_size - 1) % mpi.world_size),
          right((mpi.rank + 1) % mpi.world_size) {
        const std::lock_guard lock(mpi.mpi);
        mpi.check(MPI_Comm_dup(mpi.host_exchange, &comm), "MPI_Comm_dup");
    }
    [[nodiscard]] bool exchange(bool is_last);
    void look_at_self(double timeout_s);
    void check_left(double timeout_s);
    void forgive_lost_time();
    void finish();
};

/// Sends and receives heartbeats. True if the left neighbour has sent its last one.
bool Heartbeat::Ring::exchange(bool is_last) {
    const std::lock_guard lock(mpi.mpi);
    int done = 0;
    mpi.check(MPI_Test(&sending, &done, MPI_STATUS_IGNORE), "MPI_Test");
    if (done != 0 && sent[last_field] == 0) {  // send the next one only after the right neighbour has taken the last
        sent = beat_of(transport.recorder().snapshot(), is_last);
        mpi.check(MPI_Isend(sent.data(), static_cast<int>(sent.size()), MPI_INT64_T, right, 0, comm, &sending),
                  "MPI_Isend");
    }
    while (heard[last_field] == 0) {
        if (receiving == MPI_REQUEST_NULL) {
            mpi.check(
                MPI_Irecv(received.data(), static_cast<int>(received.size()), MPI_INT64_T, left, 0, comm, &receiving),
                "MPI_Irecv");
        }
        mpi.check(MPI_Test(&receiving, &done, MPI_STATUS_IGNORE), "MPI_Test");
        if (done == 0) return false;
        heard = received;
        heard_at = Clock::now();
    }
    return true;
}

void Heartbeat::Ring::check_left(double timeout_s) {
    const bool is_silent = seconds_between(heard_at, Clock::now()) >= timeout_s;
    if (!is_silent || heard[last_field] != 0) return;
    transport.abort(kExitJobFailed, "rank " + std::to_string(left) + " does not respond for " +
                                        short_number(timeout_s) +
                                        " s, when last heard of: " + describe_place(program, left, snapshot_of(heard)) +
                                        "; reported by rank " + std::to_string(mpi.rank));
}

void Heartbeat::Ring::look_at_self(double timeout_s) {
    const RankSnapshot page = transport.recorder().snapshot();
    self.observe(Clock::now(), page);
    const bool is_patient = page.waits() && page.stage != RankStage::connecting;  // find_trouble() is patient with these
    const double patience_s = is_patient ? kBusyTimeouts * timeout_s : timeout_s;
    const auto verdict = find_trouble({&self.view(), 1}, patience_s);
    if (!verdict.has_value() || page.has_ended()) return;
    std::string message = "rank " + std::to_string(mpi.rank) + " ";
    if (verdict->trouble == Trouble::deadlock) {
        transport.recorder().ask();
        std::this_thread::sleep_for(kAnswerTime);
        message += "has waited without progress for " + short_number(patience_s) +
                   " s: " + transport.recorder().snapshot().pending;
        std::replace(message.begin(), message.end(), '\n', ' ');
    } else {
        message += describe_trouble(verdict->trouble, timeout_s);
    }
    transport.abort(kExitJobFailed, message);
}

/// If this thread wakes up much too late, its process was stopped, and the time must not be blamed on other ranks.
void Heartbeat::Ring::forgive_lost_time() {
    const Clock::time_point now = Clock::now();
    if (now - woken > kLostTime) {
        heard_at += now - woken;
        self.forgive(now - woken);
    }
    woken = now;
}

/// Returns when both neighbours have exchanged their last heartbeats, so that no message stays pending.
void Heartbeat::Ring::finish() {
    while (!exchange(true)) std::this_thread::sleep_for(std::chrono::microseconds(200));
    mpi.wait_politely(sending, "MPI_Isend");
    const std::lock_guard lock(mpi.mpi);
    MPI_Comm_free(&comm);
}

Heartbeat::Heartbeat(const program::Program& program, Transport& transport, double timeout_s)
    : timeout_s_(timeout_s), exceptions_(std::uncaught_exceptions()) {
    if (timeout_s <= 0 || transport.world_size() == 1 || transport.recorder().is_watched()) return;
    ring_ = std::make_unique<Ring>(program, transport);
    thread_ = std::thread([this] { run(); });
}

void Heartbeat::run() {
    const auto interval = std::min<Clock::duration>(
        kInterval, std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(timeout_s_ / 4)));
    try {
        std::unique_lock lock(mutex_);
        while (!stopping_) {
            lock.unlock();
            ring_->forgive_lost_time();
            (void)ring_->exchange(false);
            ring_->check_left(timeout_s_);
            ring_->look_at_self(timeout_s_);
            lock.lock();
            wake_.wait_for(lock, interval, [&] { return stopping_; });
        }
    } catch (const std::exception& error) {
        ring_->transport.abort(kExitJobFailed, error.what());
    }
}

Heartbeat::~Heartbeat() {
    if (ring_ == nullptr) return;
    {
        const std::lock_guard lock(mutex_);
        stopping_ = true;
    }
    wake_.notify_one();
    thread_.join();
    if (std::uncaught_exceptions() > exceptions_) return;  // the job is being ended
    try {
        ring_->finish();
    } catch (const std::exception& error) {
        ring_->transport.abort(kExitJobFailed, error.what());
    }
}

}  // namespace orrery::exec
