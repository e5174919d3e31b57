#include "exec/transport/progress.h"

#include <sys/prctl.h>

#include <algorithm>
#include <exception>
#include <functional>
#include <limits>

#include "core/error.h"
#include "exec/transport/progress_state.h"

namespace orrery::exec {

using program::CommKind;
using program::Stream;

namespace {

// How often a waiting rank checks whether its launcher has asked for the pending operations.
constexpr std::chrono::milliseconds kLookInterval{500};

// The two ends of a pipeline transfer use different streams; both derive the message tag from the receiving stream.
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

}  // namespace

std::int64_t now_ns() {
    return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now().time_since_epoch())
        .count();
}

ProgressEngine::Impl::Impl(Transport& of, const ProgressTuning& with, const std::optional<Pacing>& at_pace)
    : transport(of),
      mpi(of.impl()),
      tuning(with),
      pacing(at_pace),
      moments(at_pace ? at_pace->kept_moments : 0),
      crowded(of.ranks_on_host() > of.cores()),
      may_spin(!at_pace && of.cores() >= 2 * of.ranks_on_host()) {
    for (const Stream stream : program::kStreams) {
        int tag = channel_of(stream) * kLanes;
        for (Lane& lane : streams[stream].lanes) {
            lane.stream = stream;
            lane.tag = tag++;
        }
    }
}

Posted ProgressEngine::Impl::prepare(Stream stream, const Operation& operation) {
    const bool paced = operation.pace.has_value();
    ORRERY_CHECK(paced || !is_local(stream), "not a communication stream");
    ORRERY_CHECK(static_cast<int>(stream) < program::kStreamCount, "not a stream");
    ORRERY_CHECK(paced == pacing.has_value(), "an engine runs either paced operations or others");
    for (const Stream s : program::kStreams) {
        ORRERY_CHECK(operation.after[s] <= posted[s],
                     "operation on " + std::string(program::name_of(stream)) + " depends on one that is not posted");
    }
    return {operation, Collective(paced ? meeting_on(stream, operation) : arguments_of(operation)), stream,
            posted[stream] + 1, paced ? operation.pace->issued_ns : now_ns()};
}

CollectiveArguments ProgressEngine::Impl::arguments_of(const Operation& operation) const {
    if (operation.kind == CommKind::send || operation.kind == CommKind::recv) {
        return exec::arguments_of(operation, mpi.world_size, mpi.rank, operation.peer);
    }
    return exec::arguments_of(operation, static_cast<int>(transport.members(operation.group).size()),
                              mpi.groups[operation.group.index].me, 0);
}

// The collective that a paced operation runs in place of its data: the maximum of the members' ready times.
CollectiveArguments ProgressEngine::Impl::meeting_on(Stream stream, const Operation& operation) {
    std::int64_t& moment = streams[stream].ready_all;
    return {.kind = CommKind::all_reduce,
            .reduce = program::ReduceOp::max,
            .dtype = DType::int64,
            .elements = 1,
            .in = &moment,
            .out = &moment,
            .members = static_cast<int>(transport.members(operation.group).size()),
            .me = mpi.groups[operation.group.index].me};
}

void ProgressEngine::Impl::run() {
    // The default timer slack of 50 us would lengthen sleeps of tens of microseconds.
    prctl(PR_SET_TIMERSLACK, 1000UL, 0UL, 0UL, 0UL);
    try {
        loop();
    } catch (const std::exception& error) {
        transport.abort(kExitJobFailed, error.what());
    }
}

void ProgressEngine::Impl::loop() {
    while (!cancelled && !mpi.job_is_ending()) {
        if (has_inbox.load(std::memory_order_acquire)) take_inbox();
        bool news = start_ready();
        if (pacing) news = end_held() || news;
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
        } else if (pacing) {
            sleep_until_due();
        } else {
            back_off();
        }
    }
}

void ProgressEngine::Impl::take_inbox() {
    const std::lock_guard looking(mpi.mpi);
    const std::lock_guard lock(mutex);
    for (const Posted& taken : inbox) streams[taken.stream].queue.push_back(taken);
    inbox.clear();
    has_inbox.store(false, std::memory_order_relaxed);
}

bool ProgressEngine::Impl::queued() const {
    return std::any_of(streams.begin(), streams.end(), [](const StreamState& stream) { return !stream.queue.empty(); });
}

bool ProgressEngine::Impl::dependencies_met(const Operation& operation) const {
    for (const Stream s : program::kStreams) {
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
    const std::lock_guard lock(mpi.mpi);
    Posted& head = stream.queue.front();
    head.collective.begin();
    const bool collective = head.operation.group.valid();
    stream.active = true;
    stream.begun = false;
    stream.comm = collective ? mpi.groups[head.operation.group.index].comm : mpi.point_to_point;
    const std::int64_t ready = ready_time(head, stream);
    stream.times = {ready, ready, ready};
    if (pacing) stream.ready_all = ready + pacing->clock_offset_ns;
    const std::int64_t lanes = std::min<std::int64_t>(kLanes, head.collective.columns());
    stream.lanes_left = static_cast<int>(lanes);
    if (lanes == 0) {
        finish_messages(stream);
        return;
    }
    for (std::size_t l = 0; l < static_cast<std::size_t>(lanes); ++l) {
        Lane& lane = stream.lanes[l];
        lane.column = static_cast<std::int64_t>(l);
        lane.step = 0;
        lane.scratch = lane.staging.at_least(head.collective.staging_bytes());
    }
    for (std::size_t l = 0; l < static_cast<std::size_t>(lanes); ++l) launch_from(stream.lanes[l]);
}

// An operation is ready when it has been posted, the one before it on its stream has ended, and its dependencies have
// ended.
std::int64_t ProgressEngine::Impl::ready_time(const Posted& head, const StreamState& stream) const {
    std::int64_t ready = std::max(head.posted_ns, stream.times.end_ns);
    for (const Stream s : program::kStreams) {
        const std::int64_t sequence = head.operation.after[s];
        if (sequence == 0) continue;
        ready = std::max(ready, pacing ? moments.at(s, sequence).due_ns : streams[s].times.end_ns);
    }
    return ready;
}

// Hands the messages of the lane's step to MPI. Returns false if the step has none.
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
        // A Program's send is a rendezvous for any message size: it completes when the peer has received it.
        const auto send = head.operation.kind == CommKind::send ? MPI_Issend : MPI_Isend;
        mpi.check(
            send(step.send, static_cast<int>(step.send_bytes), MPI_BYTE, step.send_to, lane.tag, stream.comm, &request),
            "MPI_Isend");
        add(request, 0);
        sent[lane.stream][head.operation.kind].fetch_add(step.send_bytes, std::memory_order_relaxed);
    }
    return lane.outstanding > 0;
}

// Advances the lane from the beginning of its current step until messages are in flight or its columns are done.
void ProgressEngine::Impl::launch_from(Lane& lane) {
    StreamState& stream = streams[lane.stream];
    const Posted& head = stream.queue.front();
    while (!launch_step(lane, head)) {
        head.collective.finish_step(lane.column, lane.step, lane.scratch);
        if (++lane.step < head.collective.steps()) continue;
        lane.step = 0;
        lane.column += kLanes;
        if (lane.column < head.collective.columns()) continue;
        if (--stream.lanes_left == 0) finish_messages(stream);
        return;
    }
}

// MPI reports messages longer than expected as an error, but not shorter ones.
void ProgressEngine::Impl::check_size(int request, const MPI_Status& status) const {
    const std::int64_t expected = incoming[static_cast<std::size_t>(request)];
    if (expected == 0) return;
    int bytes = 0;
    MPI_Get_count(&status, MPI_BYTE, &bytes);
    ORRERY_CHECK(bytes == expected, "rank " + std::to_string(mpi.rank) + ": message of " + std::to_string(bytes) +
                                        " bytes received, " + std::to_string(expected) + " expected");
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
    mpi.recorder.count_messages(static_cast<std::uint64_t>(count));
    advanced.clear();
    for (int i = 0; i < count; ++i)
        check_size(finished[static_cast<std::size_t>(i)], statuses[static_cast<std::size_t>(i)]);
    finished.resize(static_cast<std::size_t>(count));
    std::sort(finished.begin(), finished.end(), std::greater<>());  // so that gaps can be filled from the back
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
            finish_messages(streams[lane->stream]);
        }
    }
    return true;
}

void ProgressEngine::Impl::finish_messages(StreamState& stream) {
    if (!pacing) {
        stream.times.end_ns = now_ns();
        complete(stream);
        return;
    }
    stream.times.begin_ns = stream.ready_all - pacing->clock_offset_ns;
    stream.times.end_ns = stream.times.begin_ns + stream.queue.front().operation.pace->duration_ns;
    stream.held = true;
}

bool ProgressEngine::Impl::end_held() {
    bool any = false;
    const std::lock_guard looking(mpi.mpi);
    for (StreamState& stream : streams) {
        const std::int64_t now = now_ns();
        if (!stream.held || stream.times.end_ns > now) continue;
        moments.add(stream.queue.front().stream, {stream.times.end_ns, now});
        stream.held = false;
        complete(stream);
        any = true;
    }
    return any;
}

// Precondition: stream.times are final.
void ProgressEngine::Impl::complete(StreamState& stream) {
    const Posted head = stream.queue.front();
    stream.queue.pop_front();
    stream.active = false;
    if (head.operation.times != nullptr) *head.operation.times = stream.times;
    // `completed` and `waiting` are sequentially consistent: either wait() sees the new count, or this thread sees that
    // wait() is waiting.
    completed[head.stream].fetch_add(1);
    if (waiting.load()) {
        const std::lock_guard lock(mutex);
        if (completed[waited_stream].load() >= waited_sequence) done.notify_one();
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

// Sleeps until the next paced operation ends. Polling for messages every poll_us suffices, because the times in them do
// not depend on when they are received.
void ProgressEngine::Impl::sleep_until_due() {
    std::int64_t wake_ns = std::numeric_limits<std::int64_t>::max();
    for (const StreamState& stream : streams) {
        if (stream.held) wake_ns = std::min(wake_ns, stream.times.end_ns);
    }
    const std::int64_t now = now_ns();
    if (!requests.empty() || wake_ns == std::numeric_limits<std::int64_t>::max()) {
        wake_ns = std::min(wake_ns, now + std::int64_t{pacing->poll_us} * 1000);
    }
    if (wake_ns > now) sleep(static_cast<int>((wake_ns - now) / 1000) + 1);
}

// Ends early when an operation is posted or when the compute thread begins to wait.
void ProgressEngine::Impl::sleep(int microseconds) {
    std::unique_lock lock(mutex);
    const bool was_waiting = waiting.load();
    asleep = true;
    wake.wait_for(lock, std::chrono::microseconds(microseconds),
                  [&] { return !inbox.empty() || stopping || (!was_waiting && waiting.load()); });
    asleep = false;
}

ProgressEngine::ProgressEngine(Transport& transport, const ProgressTuning& tuning, const std::optional<Pacing>& pacing)
    : impl_(std::make_unique<Impl>(transport, tuning, pacing)) {
    impl_->thread = std::thread([this] { impl_->run(); });
}

ProgressEngine::~ProgressEngine() {
    Impl& impl = *impl_;
    if (std::uncaught_exceptions() > impl.exceptions) {
        for (const Stream s : program::kStreams) {
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
    return ++impl.posted[stream];
}

Moment ProgressEngine::moment_of(Stream stream, std::int64_t sequence) const {
    return impl_->moments.at(stream, sequence);
}

std::int64_t ProgressEngine::posted(Stream stream) const {
    return impl_->posted[stream];
}

std::int64_t ProgressEngine::completed(Stream stream) const {
    return impl_->completed[stream].load(std::memory_order_acquire);
}

bool ProgressEngine::Impl::wait_until(Stream stream, std::int64_t sequence,
                                      std::chrono::steady_clock::time_point deadline) {
    using Clock = std::chrono::steady_clock;
    ORRERY_CHECK(sequence <= posted[stream], "waiting for operation " + std::to_string(sequence) + " on " +
                                                 std::string(program::name_of(stream)) + ", which was not posted");
    std::atomic<std::int64_t>& counter = completed[stream];
    if (counter.load(std::memory_order_acquire) >= sequence) return true;
    if (may_spin) {
        const auto give_up = std::min(deadline, Clock::now() + std::chrono::microseconds(tuning.wait_spin_us));
        while (Clock::now() < give_up) {
            if (counter.load(std::memory_order_acquire) >= sequence) return true;
        }
    }
    std::unique_lock lock(mutex);
    waited_stream = stream;
    waited_sequence = sequence;
    waiting.store(true);
    if (asleep) wake.notify_one();
    const auto is_done = [&] { return counter.load() >= sequence; };
    bool in_time = true;
    if (deadline == Clock::time_point::max()) {
        done.wait(lock, is_done);
    } else {
        in_time = done.wait_until(lock, deadline, is_done);
    }
    waiting.store(false);
    return in_time;
}

void ProgressEngine::wait(Stream stream, std::int64_t sequence) {
    if (completed(stream) >= sequence) return;
    FlightRecorder& recorder = impl_->mpi.recorder;
    recorder.wait_for({stream, sequence});
    while (!wait(stream, sequence, kLookInterval)) {
        if (recorder.is_asked()) recorder.answer(describe_pending());
    }
    recorder.stop_waiting();
}

bool ProgressEngine::wait(Stream stream, std::int64_t sequence, std::chrono::nanoseconds timeout) {
    using Clock = std::chrono::steady_clock;
    const Clock::time_point now = Clock::now();
    const bool is_forever = timeout >= Clock::time_point::max() - now;
    return impl_->wait_until(stream, sequence, is_forever ? Clock::time_point::max() : now + timeout);
}

void ProgressEngine::wait_all() {
    for (const Stream stream : program::kStreams) wait(stream, impl_->posted[stream]);
}

std::int64_t ProgressEngine::bytes_sent(Stream stream) const {
    std::int64_t sum = 0;
    for (const std::atomic<std::int64_t>& sent : impl_->sent[stream]) {
        sum += sent.load(std::memory_order_relaxed);
    }
    return sum;
}

std::int64_t ProgressEngine::bytes_sent(Stream stream, CommKind kind) const {
    return impl_->sent[stream][kind].load(std::memory_order_relaxed);
}

std::int64_t ProgressEngine::bytes_received(Stream stream) const {
    return impl_->received[stream].load(std::memory_order_relaxed);
}

}  // namespace orrery::exec
