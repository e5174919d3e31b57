#include "exec/transport/abort_flag.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <string>

#include "exec/transport/transport.h"

namespace orrery::exec {

static_assert(std::atomic<std::uint32_t>::is_always_lock_free);

AbortFlag::~AbortFlag() {
    if (word_ != nullptr) munmap(static_cast<void*>(word_), sizeof *word_);
}

void AbortFlag::share(Transport& transport) {
    char own[64] = {};
    const auto now = std::chrono::steady_clock::now().time_since_epoch().count();
    std::snprintf(own, sizeof own, "/orrery-%ld-%llx", static_cast<long>(getpid()),
                  static_cast<unsigned long long>(now));
    const std::string name = transport.broadcast(own);
    const int file = shm_open(name.c_str(), O_CREAT | O_RDWR | O_CLOEXEC, 0600);
    if (file >= 0) {
        if (ftruncate(file, sizeof *word_) == 0) {
            void* page = mmap(nullptr, sizeof *word_, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
            // New shared memory is zeroed, which is the initial state of the atomic.
            if (page != MAP_FAILED) word_ = static_cast<std::atomic<std::uint32_t>*>(page);
        }
        close(file);
    }
    transport.barrier();
    shm_unlink(name.c_str());  // succeeds on the first rank of a machine; the mappings stay valid
}

std::optional<int> AbortFlag::raise(int exit_code) {
    if (word_ == nullptr) return {};
    std::uint32_t first = 0;
    if (word_->compare_exchange_strong(first, static_cast<std::uint32_t>(std::max(1, exit_code)))) return {};
    return static_cast<int>(first);
}

}  // namespace orrery::exec
