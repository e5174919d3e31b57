#include "exec/transport/progress.h"

#include <sys/prctl.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <exception>
#include <functional>
#include <new>
#include <string>
#include <thread>
#include <vector>

#include "core/error.h"
#include "exec/transport/collective.h"
#include "exec/transport/mpi_state.h"

namespace orrery::exec {

using program::CommKind;
using program::kStreamCount;
using program::Stream;

namespace {

constexpr std::size_t index_of(Stream stream) {
    return static_cast<std::size_t>(stream);
}

// The two ends of a pipeline transfer issue it on different streams; both name the channel by the receiving one.
constexpr int channel_of(Stream stream) {
    switch (stream) {
        case Stream::pp_send_forward:
            return static_cast<int>(Stream::pp_recv_forward);
        case Stream::pp_send_backward:
            return static_cast<int>(Stream::pp_recv_backward);
        case Stream::pp_up_send_forward:
            return static_cast<int>(Stream::pp_up_recv_forward);
        case Stream::pp_up_send_backward:
            return static_cast<int>(Stream::pp_up_recv_backward);
        default:
            return static_cast<int>(stream);
    }
}

/// Scratch for one column, aligned for vector loads. Grows, never shrinks: a stream's operations repeat every step.
class Staging {
  public:
    std::byte* at_least(std::int64_t bytes) {
        if (bytes > capacity_) {
            memory_.reset(static_cast<std::byte*>(::operator new(static_cast<std::size_t>(bytes), kAlignment)));
            capacity_ = bytes;
        }
        return memory_.get();
    }

  private:
    static constexpr std::align_val_t kAlignment{64};
    struct Release {
        void operator()(std::byte* memory) const { ::operator delete(memory, kAlignment); }
    };
    std::unique_ptr<std::byte, Release> memory_;
    std::int64_t capacity_ = 0;
};

/// One column of the operation at the head of a stream. Columns lane, lane + kLanes, … pass through it one by one, with
/// a message tag of its own, so both ends agree on which message belongs to which column without saying so.
struct Lane {
    std::size_t stream = 0;
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
    std::size_t stream = 0;
    std::int64_t posted_ns = 0;
};

struct StreamState {
    std::deque<Posted> queue;  // the head is under way when `active`
    bool active = false;
    bool begun = false;
    MPI_Comm comm = MPI_COMM_NULL;
    int lanes_left = 0;
    OperationTimes times;
    std::array<Lane, kLanes> lanes;
};

}  // namespace

std::int64_t now_ns() {
    return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now().time_since_epoch())
        .count();
}

struct ProgressEngine::Impl {
    Transport& transport;
    Transport::Impl& mpi;
    const ProgressTuning tuning;
    const bool crowded;   // more ranks than cores
    const bool may_spin;  // a core for the compute thread and one for this thread
    const int exceptions = std::uncaught_exceptions();

    // Shared with the compute thread.
    std::array<std::int64_t, kStreamCount> posted{};  // compute thread only
    std::array<std::atomic<std::int64_t>, kStreamCount> completed{};
    std::array<std::atomic<std::int64_t>, kStreamCount> sent{};
    std::array<std::atomic<std::int64_t>, kStreamCount> received{};
    std::mutex mutex;  // inbox, asleep, stopping, waited
    std::vector<Posted> inbox;
    std::atomic<bool> has_inbox = false;
    bool asleep = false;
    std::atomic<bool> stopping = false;  // once what is queued is done
    std::atomic<bool> cancelled = false;
    std::atomic<bool> waiting = false;  // the compute thread is blocked in wait()
    Stream waited_stream{};
    std::int64_t waited_sequence = 0;
    std::condition_variable wake;  // the progress thread
    std::condition_variable done;  // the compute thread

    // Progress thread only.
    std::array<StreamState, kStreamCount> streams;
    std::vector<MPI_Request> requests;
    std::vector<Lane*> owners;
    std::vector<std::int64_t> incoming;  // per request: bytes to receive; 0: a send
    std::vector<int> finished;
    std::vector<MPI_Status> statuses;
    std::vector<Lane*> advanced;
    int quiet_polls = 0;
    int sleep_us = 0;
    std::thread thread;

    Impl(Transport& of, const ProgressTuning& with)
        : transport(of),
          mpi(of.impl()),
          tuning(with),
          crowded(of.ranks_on_host() > of.cores()),
          may_spin(of.cores() >= 2 * of.ranks_on_host()) {
        for (std::size_t s = 0; s < streams.size(); ++s) {
            for (std::size_t l = 0; l < streams[s].lanes.size(); ++l) {
                streams[s].lanes[l].stream = s;
                streams[s].lanes[l].tag = channel_of(static_cast<Stream>(s)) * kLanes + static_cast<int>(l);
            }
        }
    }

    [[nodiscard]] Posted prepare(Stream stream, const Operation& operation) const;
    void run();
    void loop();
    void take_inbox();
    [[nodiscard]] bool queued() const;
    bool start_ready();
    [[nodiscard]] bool dependencies_met(const Operation& operation) const;
    void start(StreamState& stream);
    void launch_from(Lane& lane);
    bool launch_step(Lane& lane, const Posted& head);
    void check_size(int request, const MPI_Status& status) const;
    bool poll();
    void complete(StreamState& stream);
    void back_off();
    void sleep(int microseconds);
};

Posted ProgressEngine::Impl::prepare(Stream stream, const Operation& operation) const {
    ORRERY_CHECK(!is_local(stream) && index_of(stream) < completed.size(), "not a communication stream");
    for (std::size_t s = 0; s < posted.size(); ++s) {
        ORRERY_CHECK(operation.after[s] <= posted[s],
                     "operation on " + std::string(program::name_of(stream)) + " depends on one that is not posted");
    }
    CollectiveArguments arguments{.kind = operation.kind,
                                  .reduce = operation.reduce,
                                  .dtype = operation.dtype,
                                  .elements = operation.elements,
                                  .in = operation.in,
                                  .out = operation.out};
    if (operation.kind == CommKind::send || operation.kind == CommKind::recv) {
        arguments.members = mpi.world_size;
        arguments.me = mpi.rank;
        arguments.peer = operation.peer;
    } else {
        arguments.members = static_cast<int>(transport.members(operation.group).size());
        arguments.me = mpi.groups[static_cast<std::size_t>(operation.group.index)].me;
    }
    return {operation, Collective(arguments), index_of(stream), now_ns()};
}

void ProgressEngine::Impl::run() {
    // Sleeps of tens of microseconds would be stretched by the default slack of 50.
    prctl(PR_SET_TIMERSLACK, 1000UL, 0UL, 0UL, 0UL);
    try {
        loop();
    } catch (const std::exception& error) {
        transport.abort(kExitJobFailed, error.what());
    }
}

void ProgressEngine::Impl::loop() {
    while (!cancelled) {
        if (has_inbox.load(std::memory_order_acquire)) take_inbox();
        bool news = start_ready();
        if (!requests.empty()) news = poll() || news;
        if (news) {
            quiet_polls = 0;
            sleep_us = 0;
            continue;
        }
        if (!queued()) {
            std::unique_lock lock(mutex);
            asleep = true;
            wake.wait(lock, [&] { return !inbox.empty() || stopping; });
            asleep = false;
            if (inbox.empty()) return;
        } else {
            back_off();
        }
    }
}

void ProgressEngine::Impl::take_inbox() {
    std::vector<Posted> taken;
    {
        const std::lock_guard lock(mutex);
        taken.swap(inbox);
        has_inbox.store(false, std::memory_order_relaxed);
    }
    for (Posted& posted_operation : taken) streams[posted_operation.stream].queue.push_back(posted_operation);
}

bool ProgressEngine::Impl::queued() const {
    return std::any_of(streams.begin(), streams.end(), [](const StreamState& stream) { return !stream.queue.empty(); });
}

bool ProgressEngine::Impl::dependencies_met(const Operation& operation) const {
    for (std::size_t s = 0; s < completed.size(); ++s) {
        if (completed[s].load(std::memory_order_relaxed) < operation.after[s]) return false;
    }
    return true;
}

bool ProgressEngine::Impl::start_ready() {
    bool any = false;
    for (StreamState& stream : streams) {
        if (stream.active || stream.queue.empty() || !dependencies_met(stream.queue.front().operation)) continue;
        start(stream);
        any = true;
    }
    return any;
}

void ProgressEngine::Impl::start(StreamState& stream) {
    const Posted& head = stream.queue.front();
    const bool collective = head.operation.group.valid();
    stream.active = true;
    stream.begun = false;
    stream.comm =
        collective ? mpi.groups[static_cast<std::size_t>(head.operation.group.index)].comm : mpi.point_to_point;
    // It became ready when it was posted, or when the last of what it waits for ended.
    std::int64_t ready = std::max(head.posted_ns, stream.times.end_ns);
    for (std::size_t s = 0; s < streams.size(); ++s) {
        if (head.operation.after[s] > 0) ready = std::max(ready, streams[s].times.end_ns);
    }
    stream.times = {ready, ready, ready};
    const std::int64_t lanes = std::min<std::int64_t>(kLanes, head.collective.columns());
    stream.lanes_left = static_cast<int>(lanes);
    if (lanes == 0) {
        complete(stream);
        return;
    }
    const std::lock_guard lock(mpi.mpi);
    for (std::size_t l = 0; l < static_cast<std::size_t>(lanes); ++l) {
        Lane& lane = stream.lanes[l];
        lane.column = static_cast<std::int64_t>(l);
        lane.step = 0;
        lane.scratch = lane.staging.at_least(head.collective.staging_bytes());
    }
    for (std::size_t l = 0; l < static_cast<std::size_t>(lanes); ++l) launch_from(stream.lanes[l]);
}

// Hands the messages of the lane's step to MPI. Returns false when the step has none.
bool ProgressEngine::Impl::launch_step(Lane& lane, const Posted& head) {
    const Step step = head.collective.step(lane.column, lane.step, lane.scratch);
    StreamState& stream = streams[lane.stream];
    const auto add = [&](MPI_Request request, std::int64_t receive_bytes) {
        requests.push_back(request);
        owners.push_back(&lane);
        incoming.push_back(receive_bytes);
        ++lane.outstanding;
    };
    MPI_Request request = MPI_REQUEST_NULL;
    if (step.receive_bytes > 0) {
        mpi.check(MPI_Irecv(step.receive, static_cast<int>(step.receive_bytes), MPI_BYTE, step.receive_from, lane.tag,
                            stream.comm, &request),
                  "MPI_Irecv");
        add(request, step.receive_bytes);
        received[lane.stream].fetch_add(step.receive_bytes, std::memory_order_relaxed);
    }
    if (step.send_bytes > 0) {
        // A send of a Program is a rendezvous whatever its size: it completes when the peer has taken it.
        const auto send = head.operation.kind == CommKind::send ? MPI_Issend : MPI_Isend;
        mpi.check(
            send(step.send, static_cast<int>(step.send_bytes), MPI_BYTE, step.send_to, lane.tag, stream.comm, &request),
            "MPI_Isend");
        add(request, 0);
        sent[lane.stream].fetch_add(step.send_bytes, std::memory_order_relaxed);
    }
    return lane.outstanding > 0;
}

// Moves the lane on from the beginning of its current step until messages are under way or its columns are done.
void ProgressEngine::Impl::launch_from(Lane& lane) {
    StreamState& stream = streams[lane.stream];
    const Posted& head = stream.queue.front();
    while (!launch_step(lane, head)) {
        head.collective.finish_step(lane.column, lane.step, lane.scratch);
        if (++lane.step < head.collective.steps()) continue;
        lane.step = 0;
        lane.column += kLanes;
        if (lane.column < head.collective.columns()) continue;
        if (--stream.lanes_left == 0) complete(stream);
        return;
    }
}

// A longer message than expected is MPI's error; a shorter one would pass unseen.
void ProgressEngine::Impl::check_size(int request, const MPI_Status& status) const {
    const std::int64_t expected = incoming[static_cast<std::size_t>(request)];
    if (expected == 0) return;
    int bytes = 0;
    MPI_Get_count(&status, MPI_BYTE, &bytes);
    ORRERY_CHECK(bytes == expected, "rank " + std::to_string(mpi.rank) + ": message of " + std::to_string(bytes) +
                                        " bytes where " + std::to_string(expected) + " were due");
}

bool ProgressEngine::Impl::poll() {
    const std::lock_guard lock(mpi.mpi);
    finished.resize(requests.size());
    statuses.resize(requests.size());
    int count = 0;
    const int code =
        MPI_Testsome(static_cast<int>(requests.size()), requests.data(), &count, finished.data(), statuses.data());
    if (code == MPI_ERR_IN_STATUS) {
        for (int i = 0; i < count; ++i) mpi.check(statuses[static_cast<std::size_t>(i)].MPI_ERROR, "message");
    }
    mpi.check(code, "MPI_Testsome");
    if (count == MPI_UNDEFINED || count == 0) return false;
    advanced.clear();
    for (int i = 0; i < count; ++i)
        check_size(finished[static_cast<std::size_t>(i)], statuses[static_cast<std::size_t>(i)]);
    finished.resize(static_cast<std::size_t>(count));
    std::sort(finished.begin(), finished.end(), std::greater<>());  // so that filling a gap from the back is safe
    for (const int at : finished) {
        const auto i = static_cast<std::size_t>(at);
        Lane& lane = *owners[i];
        StreamState& stream = streams[lane.stream];
        if (!stream.begun && (incoming[i] > 0 || stream.queue.front().operation.kind == CommKind::send)) {
            stream.begun = true;
            stream.times.begin_ns = now_ns();
        }
        if (--lane.outstanding == 0) advanced.push_back(&lane);
        requests[i] = requests.back();
        owners[i] = owners.back();
        incoming[i] = incoming.back();
        requests.pop_back();
        owners.pop_back();
        incoming.pop_back();
    }
    for (Lane* lane : advanced) {
        const Collective& collective = streams[lane->stream].queue.front().collective;
        collective.finish_step(lane->column, lane->step, lane->scratch);
        if (++lane->step == collective.steps()) {
            lane->step = 0;
            lane->column += kLanes;
        }
        if (lane->column < collective.columns()) {
            launch_from(*lane);
        } else if (--streams[lane->stream].lanes_left == 0) {
            complete(streams[lane->stream]);
        }
    }
    return true;
}

void ProgressEngine::Impl::complete(StreamState& stream) {
    const Posted head = stream.queue.front();
    stream.queue.pop_front();
    stream.active = false;
    stream.times.end_ns = now_ns();
    if (head.operation.times != nullptr) *head.operation.times = stream.times;
    // Sequentially consistent, as is `waiting`: either wait() sees this count or this thread sees that it waits.
    completed[head.stream].fetch_add(1);
    if (waiting.load()) {
        const std::lock_guard lock(mutex);
        if (completed[index_of(waited_stream)].load() >= waited_sequence) done.notify_one();
    }
}

void ProgressEngine::Impl::back_off() {
    ++quiet_polls;
    if (!waiting.load(std::memory_order_relaxed)) {
        if (quiet_polls < tuning.polls_before_sleep) return;
        sleep_us = std::clamp(2 * sleep_us, tuning.shortest_sleep_us, tuning.longest_sleep_us);
        sleep(sleep_us);
    } else if (crowded) {
        if (quiet_polls % (tuning.crowded_yields_before_sleep + 1) < tuning.crowded_yields_before_sleep) {
            std::this_thread::yield();
        } else {
            sleep(tuning.crowded_sleep_us);
        }
    } else if (quiet_polls % tuning.polls_per_yield == 0) {
        std::this_thread::yield();
    }
}

// Ends early when something is posted, or when the compute thread begins to wait.
void ProgressEngine::Impl::sleep(int microseconds) {
    std::unique_lock lock(mutex);
    const bool was_waiting = waiting.load();
    asleep = true;
    wake.wait_for(lock, std::chrono::microseconds(microseconds),
                  [&] { return !inbox.empty() || stopping || (!was_waiting && waiting.load()); });
    asleep = false;
}

ProgressEngine::ProgressEngine(Transport& transport, const ProgressTuning& tuning)
    : impl_(std::make_unique<Impl>(transport, tuning)) {
    impl_->thread = std::thread([this] { impl_->run(); });
}

ProgressEngine::~ProgressEngine() {
    Impl& impl = *impl_;
    if (std::uncaught_exceptions() > impl.exceptions) {
        for (std::size_t s = 0; s < impl.posted.size(); ++s) {
            if (impl.completed[s].load() < impl.posted[s]) impl.mpi.broken = true;
        }
        impl.cancelled = impl.mpi.broken.load();
    }
    {
        const std::lock_guard lock(impl.mutex);
        impl.stopping = true;
    }
    impl.wake.notify_one();
    impl.thread.join();
}

std::int64_t ProgressEngine::post(Stream stream, const Operation& operation) {
    Impl& impl = *impl_;
    Posted prepared = impl.prepare(stream, operation);
    bool asleep = false;
    {
        const std::lock_guard lock(impl.mutex);
        impl.inbox.push_back(prepared);
        impl.has_inbox.store(true, std::memory_order_release);
        asleep = impl.asleep;
    }
    if (asleep) impl.wake.notify_one();
    return ++impl.posted[index_of(stream)];
}

std::int64_t ProgressEngine::posted(Stream stream) const {
    return impl_->posted[index_of(stream)];
}

std::int64_t ProgressEngine::completed(Stream stream) const {
    return impl_->completed[index_of(stream)].load(std::memory_order_acquire);
}

void ProgressEngine::wait(Stream stream, std::int64_t sequence) {
    Impl& impl = *impl_;
    ORRERY_CHECK(sequence <= impl.posted[index_of(stream)], "waiting for operation " + std::to_string(sequence) +
                                                                " on " + std::string(program::name_of(stream)) +
                                                                ", which was not posted");
    std::atomic<std::int64_t>& counter = impl.completed[index_of(stream)];
    if (counter.load(std::memory_order_acquire) >= sequence) return;
    if (impl.may_spin) {
        const std::int64_t give_up = now_ns() + std::int64_t{impl.tuning.wait_spin_us} * 1000;
        while (now_ns() < give_up) {
            if (counter.load(std::memory_order_acquire) >= sequence) return;
        }
    }
    std::unique_lock lock(impl.mutex);
    impl.waited_stream = stream;
    impl.waited_sequence = sequence;
    impl.waiting.store(true);
    if (impl.asleep) impl.wake.notify_one();
    impl.done.wait(lock, [&] { return counter.load() >= sequence; });
    impl.waiting.store(false);
}

void ProgressEngine::wait_all() {
    for (std::size_t s = 0; s < impl_->posted.size(); ++s) wait(static_cast<Stream>(s), impl_->posted[s]);
}

std::int64_t ProgressEngine::bytes_sent(Stream stream) const {
    return impl_->sent[index_of(stream)].load(std::memory_order_relaxed);
}

std::int64_t ProgressEngine::bytes_received(Stream stream) const {
    return impl_->received[index_of(stream)].load(std::memory_order_relaxed);
}

}  // namespace orrery::exec
