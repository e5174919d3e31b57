#include "exec/transport/heartbeat.h"

#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <exception>
#include <map>
#include <string>

#include "core/error.h"
#include "core/file_descriptor.h"
#include "exec/faults/diagnosis.h"
#include "exec/faults/place.h"
#include "exec/faults/rank_watch.h"
#include "exec/transport/beat_link.h"

namespace orrery::exec {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::chrono::milliseconds kInterval{1000};
/// Between two looks at the end, when the last beats are exchanged.
constexpr std::chrono::milliseconds kLastInterval{1};
/// How long this rank's waiting thread has to describe its pending operations; it looks for requests twice a second.
constexpr std::chrono::milliseconds kAnswerTime{1500};

Beat beat_of(const RankSnapshot& page, BeatKind kind) {
    return {.kind = kind,
            .stage = static_cast<std::int64_t>(page.stage),
            .step = page.step,
            .finished = packed(page.finished),
            .next = packed(page.next),
            .awaited = packed(page.awaited)};
}

RankSnapshot snapshot_of(const Beat& beat) {
    RankSnapshot page;
    page.stage = static_cast<RankStage>(beat.stage);
    page.step = beat.step;
    page.finished = unpacked(beat.finished);
    page.next = unpacked(beat.next);
    page.awaited = unpacked_operation(beat.awaited);
    return page;
}

double seconds_between(Clock::time_point earlier, Clock::time_point later) {
    return std::chrono::duration<double>(later - earlier).count();
}

std::string short_number(double value) {
    return std::to_string(std::lround(value));
}

}  // namespace

struct Heartbeat::Watch {
    /// A rank that this one hears.
    struct Source {
        Beat heard;  // its latest
        Clock::time_point heard_at = Clock::now();
        [[nodiscard]] bool has_finished() const { return heard.kind == BeatKind::last; }
    };
    const program::Program& program;
    Transport& transport;
    std::unique_ptr<BeatLink> link;
    const double timeout_s;
    const Clock::duration interval;
    FileDescriptor wake;  // written to end a wait
    std::map<int, Source> sources;
    RankWatch self;
    Clock::time_point woken = Clock::now(), next_beat = woken;
    std::atomic<bool> stopping = false, abandoned = false;
    bool last_is_sent = false;

    Watch(const program::Program& of, Transport& over, std::unique_ptr<BeatLink> on, double timeout);
    void run();
    [[nodiscard]] bool is_over() const;
    void send();
    void receive();
    void check_sources() const;
    void look_at_self();
    void forgive_lost_time();
    void wait() const;
    [[nodiscard]] std::string last_heard(int rank, const Source& source) const;
};

Heartbeat::Watch::Watch(const program::Program& of, Transport& over, std::unique_ptr<BeatLink> on, double timeout)
    : program(of),
      transport(over),
      link(std::move(on)),
      timeout_s(timeout),
      interval(timeout > 0 ? std::min<Clock::duration>(kInterval, std::chrono::duration_cast<Clock::duration>(
                                                                      std::chrono::duration<double>(timeout / 4)))
                           : kInterval),
      wake(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
    for (const int rank : link->sources()) sources[rank];
}

/// Ends when all last beats have been exchanged, so that no message stays pending.
void Heartbeat::Watch::run() {
    while (!is_over()) {
        forgive_lost_time();
        send();
        receive();
        if (timeout_s > 0) {
            check_sources();
            look_at_self();
        }
        wait();
    }
}

bool Heartbeat::Watch::is_over() const {
    return abandoned || (last_is_sent && std::all_of(sources.begin(), sources.end(),
                                                     [](const auto& source) { return source.second.has_finished(); }));
}

void Heartbeat::Watch::send() {
    const bool is_due = woken >= next_beat;
    if (stopping && !last_is_sent) {
        last_is_sent = link->send(beat_of(transport.recorder().snapshot(), BeatKind::last));
    } else if (!stopping && is_due) {
        (void)link->send(beat_of(transport.recorder().snapshot(), BeatKind::alive));
    }
    if (is_due) next_beat = woken + interval;
}

void Heartbeat::Watch::receive() {
    while (const std::optional<BeatLink::Arrival> news = link->receive()) {
        Source& source = sources.at(news->rank);
        if (news->beat.kind == BeatKind::failed) transport.abort(static_cast<int>(news->beat.exit_code), "");
        if (news->beat.kind == BeatKind::ended) {
            transport.abort(kExitJobFailed, "rank " + std::to_string(news->rank) +
                                                " has ended before its work was done" + last_heard(news->rank, source));
        }
        source.heard = news->beat;
        source.heard_at = Clock::now();
    }
}

std::string Heartbeat::Watch::last_heard(int rank, const Source& source) const {
    return ", when last heard of: " + describe_place(program, rank, snapshot_of(source.heard)) + "; reported by rank " +
           std::to_string(transport.rank());
}

void Heartbeat::Watch::check_sources() const {
    for (const auto& [rank, source] : sources) {
        const bool is_silent = seconds_between(source.heard_at, Clock::now()) >= timeout_s;
        if (!is_silent || source.has_finished()) continue;
        transport.abort(kExitJobFailed, "rank " + std::to_string(rank) + " does not respond for " +
                                            short_number(timeout_s) + " s" + last_heard(rank, source));
    }
}

void Heartbeat::Watch::look_at_self() {
    const RankSnapshot page = transport.recorder().snapshot();
    self.observe(Clock::now(), page);
    const bool is_patient =
        page.waits() && page.stage != RankStage::connecting;  // find_trouble() is patient with these
    const double patience_s = is_patient ? kBusyTimeouts * timeout_s : timeout_s;
    const auto verdict = find_trouble({&self.view(), 1}, patience_s);
    if (!verdict.has_value() || page.has_ended()) return;
    std::string message = "rank " + std::to_string(transport.rank()) + " ";
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
void Heartbeat::Watch::forgive_lost_time() {
    const Clock::time_point now = Clock::now();
    if (now - woken > kLostTime) {
        for (auto& [rank, source] : sources) source.heard_at += now - woken;
        self.forgive(now - woken);
    }
    woken = now;
}

/// Waits for a beat, the end of the training, or the time to send one.
void Heartbeat::Watch::wait() const {
    std::vector<pollfd> files = link->files();
    const bool must_look = stopping && (files.empty() || !last_is_sent);
    files.push_back({wake.get(), POLLIN, 0});
    const auto time = std::chrono::duration_cast<std::chrono::milliseconds>(
        must_look ? Clock::duration(kLastInterval)
                  : std::max(Clock::duration(kLastInterval), next_beat - Clock::now()));
    poll(files.data(), files.size(), static_cast<int>(time.count()));
    std::uint64_t ignored = 0;
    (void)!read(wake.get(), &ignored, sizeof ignored);
}

Heartbeat::Heartbeat(const program::Program& program, Transport& transport, double timeout_s)
    : exceptions_(std::uncaught_exceptions()) {
    if (transport.world_size() == 1 || transport.recorder().is_watched()) return;
    std::unique_ptr<BeatLink> link = make_beat_link(transport);
    if (timeout_s <= 0 && !link->shows_ends()) {
        link->close();
        return;
    }
    watch_ = std::make_unique<Watch>(program, transport, std::move(link), timeout_s);
    thread_ = std::thread([watch = watch_.get()] {
        try {
            watch->run();
        } catch (const std::exception& error) {
            watch->transport.abort(kExitJobFailed, error.what());
        }
    });
}

Heartbeat::~Heartbeat() {
    if (watch_ == nullptr) return;
    const bool job_is_ending = std::uncaught_exceptions() > exceptions_;
    watch_->abandoned = job_is_ending;
    watch_->stopping = true;
    const std::uint64_t one = 1;
    (void)!write(watch_->wake.get(), &one, sizeof one);
    watch_->transport.recorder().exchange(true);
    thread_.join();
    watch_->transport.recorder().exchange(false);
    if (job_is_ending) return;
    try {
        watch_->link->close();
    } catch (const std::exception& error) {
        watch_->transport.abort(kExitJobFailed, error.what());
    }
}

}  // namespace orrery::exec
