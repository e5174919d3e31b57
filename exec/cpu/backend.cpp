#include "exec/cpu/backend.h"

#include <sys/mman.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "core/error.h"
#include "exec/host_memory.h"

namespace orrery::exec {

using program::is_local;
using program::Stream;

CpuBackend::CpuBackend(Transport& transport) : transport_(transport) {}

CpuBackend::~CpuBackend() {
    progress_.reset();
    if (memory_ != nullptr) munmap(memory_, static_cast<std::size_t>(bytes_));
}

ArenaMemory CpuBackend::reserve(std::int64_t device_bytes, std::int64_t host_bytes, const std::string& needs) {
    ORRERY_CHECK(memory_ == nullptr, "a rank reserves its memory once");
    const std::int64_t bytes = device_bytes + host_bytes;
    const std::int64_t free_bytes = available_memory_bytes();
    const int ranks = transport_.ranks_on_host();
    if (bytes > free_bytes / std::max(1, ranks)) {
        throw JobError(needs + ", and " + std::to_string(ranks) + " ranks share " + gib_text(free_bytes) +
                       " of free memory");
    }
    void* block =
        mmap(nullptr, static_cast<std::size_t>(bytes), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (block == MAP_FAILED) throw JobError("cannot reserve " + gib_text(bytes) + ": " + std::strerror(errno));
    memory_ = static_cast<std::byte*>(block);
    bytes_ = bytes;
    std::memset(memory_, 0, static_cast<std::size_t>(bytes));  // touch every page, so that no step pays for it
    return {memory_, memory_ + device_bytes};
}

void CpuBackend::write(void* device, std::int64_t /*bytes*/, const std::function<void(std::byte*)>& fill) {
    fill(static_cast<std::byte*>(device));
}

void CpuBackend::read(const void* device, std::int64_t /*bytes*/, const std::function<void(const std::byte*)>& use) {
    use(static_cast<const std::byte*>(device));
}

std::int64_t CpuBackend::peak_memory_bytes() const {
    return resident_memory().peak_bytes;
}

AxisGroups CpuBackend::connect(const Partners& partners) {
    AxisGroups groups;
    for (const program::GroupAxis axis : program::kAxes) {
        const std::vector<int>& members = partners.members[axis];
        if (!members.empty()) groups[axis] = transport_.create_group(members);
    }
    progress_ = std::make_unique<ProgressEngine>(transport_);
    return groups;
}

std::int64_t CpuBackend::run(const LocalWork& work, const OperatorContext& context) {
    for (const Stream stream : program::kStreams) wait(stream, work.after[stream]);
    work.times->ready_ns = work.times->begin_ns = now_ns();
    for (const BoundOperator& one : work.operators) run_operator(one, context);
    work.times->end_ns = now_ns();
    return ++done_[work.stream];
}

void CpuBackend::run_operator(const BoundOperator& one, const OperatorContext& context) {
    operators_.run(*one.op, one.at, context);
}

std::int64_t CpuBackend::post(Stream stream, const Operation& operation) {
    // Dependencies on local streams are met: this thread has completed their operations.
    Operation remote = operation;
    std::fill_n(remote.after.begin(), program::kLocalStreams, 0);
    return progress_->post(stream, remote);
}

void CpuBackend::clear(void* device, std::int64_t bytes) {
    std::memset(device, 0, static_cast<std::size_t>(bytes));
}

void CpuBackend::fetch(const double* device, double* host) {
    *host = *device;
}

void CpuBackend::stamp(std::int64_t* ns) {
    *ns = now_ns();
}

void CpuBackend::wait(Stream stream, std::int64_t sequence) {
    if (!is_local(stream) && sequence > 0) progress_->wait(stream, sequence);
}

void CpuBackend::wait_all() {
    progress_->wait_all();
}

std::int64_t CpuBackend::bytes_sent(Stream stream) const {
    return is_local(stream) ? 0 : progress_->bytes_sent(stream);
}

std::int64_t CpuBackend::bytes_sent_by(Stream stream, program::CommKind kind) const {
    return is_local(stream) ? 0 : progress_->bytes_sent(stream, kind);
}

std::int64_t CpuBackend::resident_bytes(const void* memory, std::int64_t bytes) const {
    return resident_bytes_of(memory, bytes);
}

std::map<std::string, std::string> CpuBackend::describe() const {
    return {{"backend", "cpu"}};
}

}  // namespace orrery::exec
