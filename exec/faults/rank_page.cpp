#include "exec/faults/rank_page.h"

#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "core/error.h"

namespace orrery::exec {

RankSnapshot read_page(const RankPage& page) {
    RankSnapshot copy{.pid = page.pid,
                      .start_ticks = page.start_ticks,
                      .stage = page.stage,
                      .step = page.steps_begun - 1,
                      .finished = unpacked(page.finished),
                      .next = unpacked(page.next),
                      .instructions = page.instructions,
                      .messages = page.messages,
                      .awaited = unpacked_operation(page.awaited),
                      .exchanging = page.exchanging,
                      .exit_code = page.exit_code,
                      .signal = page.signal,
                      .signal_ns = page.signal_ns};
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

}  // namespace orrery::exec
