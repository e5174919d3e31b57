// Describes pending operations for the error message of a stuck job.
#include <algorithm>
#include <chrono>
#include <set>
#include <string>
#include <thread>

#include "exec/transport/progress_state.h"

namespace orrery::exec {

using program::CommKind;
using program::Stream;

namespace {

// How long describe_pending() waits for the progress thread to leave MPI.
constexpr std::chrono::milliseconds kLookPatience{1000};

}  // namespace

int ProgressEngine::Impl::world_rank(const Operation& operation, int index) const {
    if (!operation.group.valid()) return index;
    return mpi.groups[operation.group.index].ranks[static_cast<std::size_t>(index)];
}

// The messages of the stream's head operation that are in flight.
std::string ProgressEngine::Impl::describe_messages(const Posted& head) const {
    std::set<int> sources;
    std::set<int> targets;
    for (std::size_t i = 0; i < requests.size(); ++i) {
        const Lane& lane = *owners[i];
        if (lane.stream != head.stream) continue;
        const Step step = head.collective.step(lane.column, lane.step, lane.scratch);
        if (incoming[i] > 0) {
            sources.insert(world_rank(head.operation, step.receive_from));
        } else {
            targets.insert(world_rank(head.operation, step.send_to));
        }
    }
    std::string text = "under way";
    for (const int rank : sources) text += ", waits for a message from rank " + std::to_string(rank);
    for (const int rank : targets) text += ", waits for rank " + std::to_string(rank) + " to take a message";
    return text;
}

std::string ProgressEngine::Impl::describe_state(const Posted& head, bool active) const {
    if (active) return describe_messages(head);
    std::string text;
    for (const Stream s : program::kStreams) {
        const std::int64_t reached = completed[s].load();
        if (reached >= head.operation.after[s]) continue;
        text += (text.empty() ? "waits for operation " : ", operation ") + std::to_string(head.operation.after[s]) +
                " of " + std::string(program::name_of(s)) + " (" + std::to_string(reached) + " completed)";
    }
    return text.empty() ? "ready" : text;
}

std::string ProgressEngine::Impl::describe(const Posted& head) const {
    const Operation& operation = head.operation;
    std::string text = std::string(program::name_of(head.stream)) + ": operation " + std::to_string(head.sequence) +
                       ", " + std::string(program::name_of(operation.kind)) + " of ";
    if (operation.counts.send == nullptr) text += std::to_string(operation.elements) + " ";
    text += name_of(operation.dtype);
    if (!operation.group.valid()) {
        return text + (operation.kind == CommKind::send ? " to rank " : " from rank ") + std::to_string(operation.peer);
    }
    text += " among ranks";
    for (const int rank : transport.members(operation.group)) text += " " + std::to_string(rank);
    return text;
}

std::string ProgressEngine::describe_pending() const {
    const Impl& impl = *impl_;
    std::unique_lock looking(impl.mpi.mpi, std::defer_lock);
    const auto give_up = std::chrono::steady_clock::now() + kLookPatience;
    while (!looking.try_lock()) {
        if (std::chrono::steady_clock::now() > give_up)
            return "the progress thread is inside MPI and does not return\n";
        std::this_thread::sleep_for(std::chrono::microseconds(50));
    }
    const std::lock_guard lock(impl_->mutex);
    std::string text;
    for (const Stream s : program::kStreams) {
        const StreamState& stream = impl.streams[s];
        const auto waiting = std::find_if(impl.inbox.begin(), impl.inbox.end(),
                                          [&](const Posted& operation) { return operation.stream == s; });
        if (stream.queue.empty() && waiting == impl.inbox.end()) continue;
        const Posted& head = stream.queue.empty() ? *waiting : stream.queue.front();
        text += impl.describe(head) + ": " + impl.describe_state(head, stream.active) + "\n";
    }
    return text;
}

}  // namespace orrery::exec
