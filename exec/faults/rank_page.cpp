#include "exec/faults/rank_page.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "core/error.h"

namespace orrery::exec {

RankSnapshot read_page(const RankPage& page) {
    RankSnapshot copy{.pid = page.pid,
                      .start_ticks = page.start_ticks,
                      .stage = page.stage,
                      .step = page.steps_begun - 1,
                      .first_step = page.first_step,
                      .steps_done = page.steps_done,
                      .finished = unpacked(page.finished),
                      .next = unpacked(page.next),
                      .instructions = page.instructions,
                      .messages = page.messages,
                      .awaited = unpacked_operation(page.awaited),
                      .exchanging = page.exchanging,
                      .exit_code = page.exit_code,
                      .signal = page.signal,
                      .signal_ns = page.signal_ns,
                      .pending = {},
                      .has_stopped = page.has_stopped};
    if (page.answered.load() != 0) {
        copy.pending.assign(page.pending.data(), strnlen(page.pending.data(), page.pending.size()));
    }
    return copy;
}

JobPages::JobPages(int ranks) : ranks_(ranks) {
    ORRERY_CHECK(ranks >= 1, "ranks " + std::to_string(ranks));
    const std::size_t bytes = static_cast<std::size_t>(ranks) * sizeof(RankPage);
    file_ = memfd_create("orrery-rank-pages", MFD_CLOEXEC);
    void* pages = MAP_FAILED;
    if (file_ >= 0 && ftruncate(file_, static_cast<off_t>(bytes)) == 0) {
        pages = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file_, 0);
    }
    if (pages == MAP_FAILED) {
        const int reason = errno;
        if (file_ >= 0) close(file_);
        throw JobError("no memory to share with the ranks: " + std::string(std::strerror(reason)));
    }
    pages_ = static_cast<RankPage*>(pages);
}

JobPages::~JobPages() {
    munmap(static_cast<void*>(pages_), static_cast<std::size_t>(ranks_) * sizeof(RankPage));
    close(file_);
}

std::string JobPages::path() const {
    return "/proc/" + std::to_string(getpid()) + "/fd/" + std::to_string(file_);
}

bool JobPages::ask(int rank) {
    pages_[rank].asked = 1;
    return pages_[rank].answered.load() != 0;
}

std::int64_t JobPages::most_steps_begun() const {
    std::int64_t most = 0;
    for (int rank = 0; rank < ranks_; ++rank) most = std::max(most, pages_[rank].steps_begun.load());
    return most;
}

// A rank writes steps_begun and then reads stop_before; this function writes stop_before and then reads steps_begun.
// All accesses are sequentially consistent, so at least one of the two sees the other's write.
bool JobPages::stop_training(int signal) {
    std::int64_t before = most_steps_begun();
    if (before == 0) return false;
    for (;;) {
        for (int rank = 0; rank < ranks_; ++rank) {
            pages_[rank].stop_signal = signal;
            pages_[rank].stop_before = before;
        }
        const std::int64_t begun = most_steps_begun();
        if (begun <= before) break;
        before = begun;
    }
    for (int rank = 0; rank < ranks_; ++rank) pages_[rank].stop_is_settled = true;
    return true;
}

double JobPages::loss_sum(int rank, std::int64_t step) const {
    return pages_[rank].losses[static_cast<std::size_t>(step % kLossesInPage)];
}

void JobPages::show_progress(bool is_shown) {
    for (int rank = 0; rank < ranks_; ++rank) pages_[rank].progress_is_shown = is_shown;
}

}  // namespace orrery::exec
