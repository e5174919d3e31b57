#include "exec/paced/backend.h"

#include <sys/mman.h>
#include <sys/prctl.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <ctime>
#include <tuple>

#include "core/error.h"
#include "core/units.h"
#include "exec/clock.h"
#include "exec/host_memory.h"
#include "exec/interpreter.h"

namespace orrery::exec {

using program::Stream;

namespace {

/// Between two polls for messages, times the ranks per core, because a poll takes some ten microseconds of the core.
constexpr int kPollMicroseconds = 50;

/// Sleeps until a time on the clock of now_ns().
void sleep_until(std::int64_t ns) {
    constexpr std::int64_t kNanosecondsPerSecond = 1'000'000'000;
    const timespec until{.tv_sec = ns / kNanosecondsPerSecond, .tv_nsec = ns % kNanosecondsPerSecond};
    while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, nullptr) == EINTR) {
    }
}

/// Enough moments for the steps that the host may be ahead of the device, and for dependencies on the step before.
std::size_t kept_moments(const program::IssueOrder& order) {
    std::size_t most = 1;
    for (const Stream stream : program::kStreams) most = std::max(most, order.on(stream).size());
    return most * static_cast<std::size_t>(kStepsWithSpans + 2);
}

}  // namespace

PacedBackend::PacedBackend(const program::Program& program, const program::Durations& durations, Transport& transport)
    : transport_(transport),
      program_(program),
      order_(program, program.class_of(transport.rank())),
      durations_ps_(durations.of_rank(transport.rank())),
      host_runs_compute_(program.plan->cluster.device.host_runs_compute),
      launch_ns_(program::launch_time(program.plan->cluster.device, program.plan->implementation.host).value() /
                 kPicosecondsPerNanosecond) {
    prctl(PR_SET_TIMERSLACK, 1000UL, 0UL, 0UL, 0UL);  // in ns; the default of 50 us would delay every sleep by as much
}

PacedBackend::~PacedBackend() {
    progress_.reset();
    if (memory_ != nullptr) munmap(memory_, static_cast<std::size_t>(bytes_));
}

ArenaMemory PacedBackend::reserve(std::int64_t device_bytes, std::int64_t host_bytes, const std::string& needs) {
    ORRERY_CHECK(memory_ == nullptr, "a rank reserves its memory once");
    bytes_ = device_bytes + host_bytes;
    void* block =
        mmap(nullptr, static_cast<std::size_t>(bytes_), PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (block == MAP_FAILED)
        throw JobError(needs + ", and so many addresses cannot be reserved: " + std::strerror(errno));
    memory_ = static_cast<std::byte*>(block);
    return {memory_, memory_ + device_bytes};
}

void PacedBackend::write(void*, std::int64_t, const std::function<void(std::byte*)>&) {}

void PacedBackend::read(const void*, std::int64_t, const std::function<void(const std::byte*)>&) {}

std::int64_t PacedBackend::peak_memory_bytes() const {
    return resident_memory().peak_bytes;
}

AxisGroups PacedBackend::connect(const Partners& partners) {
    AxisGroups groups;
    for (const program::GroupAxis axis : program::kAxes) {
        const std::vector<int>& members = partners.members[axis];
        if (!members.empty()) groups[axis] = transport_.create_group(members);
    }
    // All ranks create the groups of the pairs in the same order (axis, sender, receiver), so that the creations cannot
    // deadlock.
    const int me = transport_.rank();
    std::vector<std::tuple<program::GroupAxis, int, int, Stream>> pairs;
    for (const Stream stream : program::kStreams) {
        if (!is_pipeline(stream) || order_.on(stream).empty()) continue;
        const int peer = static_cast<int>(program_.peer_of(stream, me));
        const bool sends = order_.instruction(order_.on(stream).front()).communication.kind == program::CommKind::send;
        pairs.emplace_back(program::axis_of(stream), sends ? me : peer, sends ? peer : me, stream);
    }
    std::sort(pairs.begin(), pairs.end());
    for (const auto& [axis, sender, receiver, stream] : pairs) {
        meetings_[stream] = transport_.create_group({sender, receiver});
    }
    const GroupHandle alone = transport_.create_group({me});
    std::fill_n(meetings_.begin(), program::kLocalStreams, alone);
    progress_ = std::make_unique<ProgressEngine>(
        transport_, ProgressTuning{},
        Pacing{.clock_offset_ns = clock_offset_ns(transport_),
               .kept_moments = kept_moments(order_),
               .poll_us = kPollMicroseconds * std::max(1, transport_.ranks_on_host() / transport_.cores())});
    return groups;
}

void PacedBackend::start_clock() {
    if (host_due_ns_ == 0) host_due_ns_ = now_ns();
}

std::int64_t PacedBackend::next_duration_ns(Stream stream) {
    start_clock();
    ORRERY_CHECK(order_.at(next_).stream == stream, "instructions are not run in issue order: " + order_.key_at(next_));
    const std::int64_t duration = durations_ps_[static_cast<std::size_t>(next_)] / kPicosecondsPerNanosecond;
    next_ = (next_ + 1) % order_.size();
    if (stream != Stream::host) host_due_ns_ += launch_ns_;  // the host's own instructions have no launch overhead
    return duration;
}

Dependencies PacedBackend::elsewhere(const Dependencies& after) const {
    Dependencies result = after;
    for (const Stream stream : program::kStreams) {
        if (is_here(stream)) result[stream] = 0;
    }
    return result;
}

std::int64_t PacedBackend::run(const LocalWork& work, const OperatorContext&) {
    const std::int64_t duration_ns = next_duration_ns(work.stream);
    if (is_here(work.stream)) return run_here(work, duration_ns);
    return progress_->post(work.stream, {.group = meetings_[work.stream],
                                         .after = elsewhere(work.after),
                                         .times = work.times,
                                         .pace = Pace{host_due_ns_, duration_ns}});
}

std::int64_t PacedBackend::run_here(const LocalWork& work, std::int64_t duration_ns) {
    const Dependencies after = elsewhere(work.after);
    for (const Stream stream : program::kStreams) wait(stream, after[stream]);
    work.times->ready_ns = work.times->begin_ns = host_due_ns_;
    host_due_ns_ += duration_ns;
    work.times->end_ns = host_due_ns_;
    sleep_until(host_due_ns_);
    return ++done_here_[work.stream];
}

std::int64_t PacedBackend::post(Stream stream, const Operation& operation) {
    const std::int64_t duration_ns = next_duration_ns(stream);
    return progress_->post(stream, {.group = operation.group.valid() ? operation.group : meetings_[stream],
                                    .after = elsewhere(operation.after),
                                    .times = operation.times,
                                    .pace = Pace{host_due_ns_, duration_ns}});
}

void PacedBackend::clear(void*, std::int64_t) {}

void PacedBackend::fetch(const double*, double* host) {
    *host = 0;
}

void PacedBackend::stamp(std::int64_t* ns) {
    start_clock();
    const std::int64_t sequence = host_runs_compute_ ? 0 : progress_->posted(Stream::compute);
    *ns = now_ns();
    if (sequence > 0) stamps_.push_back({sequence, ns});
}

void PacedBackend::write_stamps(std::int64_t completed) {
    const auto later =
        std::find_if(stamps_.begin(), stamps_.end(), [&](const Stamp& stamp) { return stamp.sequence > completed; });
    std::for_each(stamps_.begin(), later, [&](const Stamp& stamp) {
        *stamp.ns = progress_->moment_of(Stream::compute, stamp.sequence).actual_ns;
    });
    stamps_.erase(stamps_.begin(), later);
}

void PacedBackend::wait(Stream stream, std::int64_t sequence) {
    if (sequence == 0 || is_here(stream)) return;
    progress_->wait(stream, sequence);
    host_due_ns_ = std::max(host_due_ns_, progress_->moment_of(stream, sequence).due_ns);
    if (stream == Stream::compute) write_stamps(sequence);
}

void PacedBackend::wait_all() {
    progress_->wait_all();
    write_stamps(progress_->posted(Stream::compute));
}

std::int64_t PacedBackend::bytes_sent(Stream stream) const {
    return progress_->bytes_sent(stream);
}

std::map<std::string, std::string> PacedBackend::describe() const {
    return {{"backend", "paced"}};
}

}  // namespace orrery::exec
