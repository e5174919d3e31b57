// The ProgressEngine of builds without MPI. In these a CPU job has a single rank, so every group has one member and
// every collective is a copy.
#include "exec/transport/progress.h"

#include <cstring>

#include "core/error.h"

namespace orrery::exec {

using program::CommKind;
using program::Stream;

std::int64_t now_ns() {
    return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now().time_since_epoch())
        .count();
}

struct ProgressEngine::Impl {
    program::PerStream<std::int64_t> completed{};
};

ProgressEngine::ProgressEngine(Transport& transport, const ProgressTuning& /*tuning*/,
                               const std::optional<Pacing>& pacing)
    : impl_(std::make_unique<Impl>()) {
    if (pacing.has_value()) throw JobError("paced runs need MPI, which this orrery was built without");
    ORRERY_CHECK(transport.world_size() == 1, "CPU ranks communicate over MPI, which this orrery was built without");
}
ProgressEngine::~ProgressEngine() = default;

std::int64_t ProgressEngine::post(Stream stream, const Operation& operation) {
    ORRERY_CHECK(operation.kind != CommKind::send && operation.kind != CommKind::recv, "there is no other rank");
    if (operation.times != nullptr) operation.times->ready_ns = operation.times->begin_ns = now_ns();
    const std::int64_t bytes = operation.elements * size_of(operation.dtype);
    if (operation.in != operation.out) std::memcpy(operation.out, operation.in, static_cast<std::size_t>(bytes));
    if (operation.times != nullptr) operation.times->end_ns = now_ns();
    return ++impl_->completed[stream];
}

std::int64_t ProgressEngine::posted(Stream stream) const {
    return impl_->completed[stream];
}
std::int64_t ProgressEngine::completed(Stream stream) const {
    return impl_->completed[stream];
}
void ProgressEngine::wait(Stream stream, std::int64_t sequence) {
    ORRERY_CHECK(sequence <= completed(stream), "a wait for an operation that was not posted");
}
bool ProgressEngine::wait(Stream stream, std::int64_t sequence, std::chrono::nanoseconds /*timeout*/) {
    wait(stream, sequence);
    return true;
}
void ProgressEngine::wait_all() {}
std::string ProgressEngine::describe_pending() const {
    return "";
}
std::int64_t ProgressEngine::bytes_sent(Stream /*stream*/) const {
    return 0;
}
std::int64_t ProgressEngine::bytes_sent(Stream /*stream*/, CommKind /*kind*/) const {
    return 0;
}
Moment ProgressEngine::moment_of(Stream /*stream*/, std::int64_t /*sequence*/) const {
    throw_bug(__FILE__, __LINE__, "pacing", "no operation is paced in a build without MPI");
}
std::int64_t ProgressEngine::bytes_received(Stream /*stream*/) const {
    return 0;
}

}  // namespace orrery::exec
