#include "exec/device/device_backend.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "core/error.h"
#include "exec/host_memory.h"
#include "exec/operator_rows.h"

namespace orrery::exec {

using models::OpKind;
using program::Stream;

DeviceBackend::DeviceBackend(std::unique_ptr<Device> device, FlightRecorder& recorder)
    : device_(std::move(device)), recorder_(recorder) {}

void DeviceBackend::prepare(const program::Program& program, const program::RankClass& rank_class) {
    device_->prepare(program::kernel_memory(program, rank_class), program.plan->model);
}

ArenaMemory DeviceBackend::reserve(std::int64_t device_bytes, std::int64_t host_bytes, const std::string& needs) {
    ORRERY_CHECK(!reserved_, "a rank reserves its memory once");
    reserved_ = true;
    ArenaMemory memory;
    memory.device = device_->allocate(device_bytes);
    if (memory.device == nullptr) {
        throw JobError(needs + ", and the device has " + gib_text(device_->free_bytes()) + " of free memory");
    }
    if (host_bytes == 0) return memory;
    memory.host = device_->allocate_host(host_bytes);
    if (memory.host == nullptr) {
        throw JobError(needs + ", of which " + gib_text(host_bytes) + " of host memory, and " +
                       gib_text(available_memory_bytes()) + " of it is free");
    }
    std::memset(memory.host, 0, static_cast<std::size_t>(host_bytes));
    return memory;
}

void DeviceBackend::copy_now(Stream stream, void* to, const void* from, std::int64_t bytes) {
    device_->copy(stream, to, from, bytes);
    const Device::Event done = device_->record(stream);
    device_->synchronize(done);
    device_->release(done);
}

void DeviceBackend::write(void* device, std::int64_t bytes, const std::function<void(std::byte*)>& fill) {
    std::vector<std::byte> host(static_cast<std::size_t>(bytes));
    fill(host.data());
    copy_now(Stream::compute, device, host.data(), bytes);
}

void DeviceBackend::read(const void* device, std::int64_t bytes, const std::function<void(const std::byte*)>& use) {
    std::vector<std::byte> host(static_cast<std::size_t>(bytes));
    copy_now(Stream::compute, host.data(), device, bytes);
    use(host.data());
}

std::int64_t DeviceBackend::peak_memory_bytes() const {
    return device_->used_bytes();  // use does not grow later: all memory is reserved before the first step
}

AxisGroups DeviceBackend::connect(const Partners& partners) {
    const AxisGroups groups = device_->connect(partners);
    for (const program::GroupAxis axis : program::kAxes) {
        if (groups[axis].valid()) members_of_group_[groups[axis].index] = std::ssize(partners.members[axis]);
    }
    return groups;
}

void DeviceBackend::hold(Stream stream, const Dependencies& after) {
    for (const Stream s : program::kStreams) {
        const Queue& other = queues_[s];
        ORRERY_CHECK(after[s] <= other.issued, "a dependency on an operation that has not been issued yet");
        if (after[s] == 0 || s == stream) continue;
        const auto entry = std::partition_point(other.entries.begin(), other.entries.end(),
                                                [&](const Entry& one) { return one.sequence < after[s]; });
        // An instruction whose entry is gone is complete. The entries of stamp() and fetch() have the same sequence
        // number as the instruction before them and come after its entry.
        if (entry != other.entries.end() && entry->sequence == after[s] && entry->times != nullptr) {
            device_->hold(stream, entry->end);
        }
    }
}

std::int64_t DeviceBackend::run(const LocalWork& work, const OperatorContext& context) {
    if (work.stream == Stream::host) return run_on_host(work, context);
    hold(work.stream, work.after);
    Queue& own = queues_[work.stream];
    Entry entry{.sequence = ++own.issued, .queued_ns = host_time_ns(), .times = work.times};
    entry.begin = device_->record(work.stream);
    for (const BoundOperator& one : work.operators) {
        if (one.op->kind == OpKind::load_tokens || one.op->kind == OpKind::load_targets) {
            load(work.stream, one, context, entry);
        } else {
            device_->run(work.stream, one, context);
        }
    }
    entry.end = device_->record(work.stream);
    own.entries.push_back(std::move(entry));
    return own.issued;
}

/// The two clocks are compared with a finite precision, which is poor on a busy host. Times of the host and of the
/// device keep the order of cause and effect nevertheless: what the host does next is later than all that it has seen
/// to be complete, and what it queues is later than the moment when it queued it.
std::int64_t DeviceBackend::host_time_ns() const {
    return std::max(now_ns(), latest_end_ns_);
}

std::int64_t DeviceBackend::time_ns(const Entry& entry, Device::Event event) {
    return std::max(device_->time_ns(event), entry.queued_ns);
}

/// Updates in host memory run here while the device goes on with what is queued.
std::int64_t DeviceBackend::run_on_host(const LocalWork& work, const OperatorContext& context) {
    for (const Stream stream : program::kStreams) wait(stream, work.after[stream]);
    work.times->ready_ns = work.times->begin_ns = host_time_ns();
    for (BoundOperator one : work.operators) {
        std::array<double, 2> norm{};  // the only operand of an update in host memory that is on the device
        if (one.op->is_update() && one.at.in[1] != nullptr) {
            copy_now(Stream::host, norm.data(), one.at.in[1], sizeof norm);
            one.at.in[1] = norm.data();
        }
        on_host_.run(*one.op, one.at, context);
    }
    work.times->end_ns = host_time_ns();
    return ++queues_[Stream::host].issued;
}

/// The device's library needs the counts when the operation is queued, but they are results of operations on the
/// device: waits until these are done.
Operation DeviceBackend::with_counts_on_host(Stream stream, const Operation& operation, Entry& entry) {
    Operation result = operation;
    const std::int64_t count = members_of_group_.at(operation.group.index) * operation.counts.counts_per_member;
    for (const std::int64_t** counts : {&result.counts.send, &result.counts.receive}) {
        const std::int64_t bytes = count * size_of(DType::int64);
        const Block block = take_block(bytes);
        device_->copy(stream, block.memory, *counts, bytes);
        *counts = reinterpret_cast<const std::int64_t*>(block.memory);
        entry.blocks.push_back(block);
    }
    const Device::Event copied = device_->record(stream);
    wait_for(stream, entry.sequence, copied);
    device_->release(copied);
    return result;
}

std::int64_t DeviceBackend::post(Stream stream, const Operation& operation) {
    hold(stream, operation.after);
    Queue& own = queues_[stream];
    Entry entry{.sequence = ++own.issued, .queued_ns = host_time_ns(), .times = operation.times};
    entry.begin = device_->record(stream);
    const bool has_counts = operation.counts.send != nullptr;
    bytes_sent_[stream] +=
        device_->communicate(stream, has_counts ? with_counts_on_host(stream, operation, entry) : operation);
    entry.end = device_->record(stream);
    own.entries.push_back(std::move(entry));
    return own.issued;
}

DeviceBackend::Block DeviceBackend::take_block(std::int64_t bytes) {
    if (bytes > block_bytes_) {
        block_bytes_ = bytes;
        free_blocks_.clear();
    }
    if (free_blocks_.empty()) {
        std::byte* memory = device_->allocate_host(block_bytes_);
        if (memory == nullptr)
            throw JobError("no host memory for " + std::to_string(block_bytes_) + " bytes of tokens");
        return {memory, block_bytes_};
    }
    const Block block = free_blocks_.back();
    free_blocks_.pop_back();
    return block;
}

void DeviceBackend::load(Stream stream, const BoundOperator& one, const OperatorContext& context, Entry& entry) {
    ORRERY_CHECK(one.at.out[0] != nullptr, "an operator that loads tokens has no output");
    const std::int64_t bytes = one.op->rows * static_cast<std::int64_t>(sizeof(std::int32_t));
    const Block block = take_block(bytes);
    load_rows(*one.op, context, reinterpret_cast<std::int32_t*>(block.memory));
    device_->copy(stream, one.at.out[0], block.memory, bytes);
    entry.blocks.push_back(block);
}

void DeviceBackend::clear(void* device, std::int64_t bytes) {
    device_->clear(Stream::compute, device, bytes);
}

void DeviceBackend::fetch(const double* device, double* host) {
    Queue& own = queues_[Stream::compute];
    const Block block = take_block(sizeof(double));
    device_->copy(Stream::compute, block.memory, device, sizeof(double));
    own.entries.push_back(
        {.sequence = own.issued, .end = device_->record(Stream::compute), .value = host, .blocks = {block}});
}

void DeviceBackend::stamp(std::int64_t* ns) {
    Queue& own = queues_[Stream::compute];
    own.entries.push_back(
        {.sequence = own.issued, .queued_ns = host_time_ns(), .end = device_->record(Stream::compute), .stamp = ns});
    // stamp() is called about once a step, so this is a good place to recycle events and blocks of complete entries.
    for (const Stream stream : program::kStreams) {
        const std::deque<Entry>& entries = queues_[stream].entries;
        while (!entries.empty() && device_->is_complete(entries.front().end)) finish_oldest(stream);
    }
}

/// Counts what has completed on all streams, as a sign of progress, and answers a launcher that asks.
void DeviceBackend::look_around() {
    std::uint64_t completed = 0;
    for (Queue& one : queues_) {
        for (; one.complete < one.entries.size() && device_->is_complete(one.entries[one.complete].end); ++completed) {
            ++one.complete;
        }
    }
    if (completed > 0) recorder_.count_messages(completed);
    if (recorder_.is_asked()) recorder_.answer(describe_pending());
}

std::string DeviceBackend::describe_pending() {
    std::string text;
    for (const Stream stream : program::kStreams) {
        const Queue& one = queues_[stream];
        if (one.complete >= one.entries.size()) continue;
        const Entry& entry = one.entries[one.complete];
        const bool begun = entry.times == nullptr || device_->is_complete(entry.begin);
        text += (text.empty() ? "" : "\n") + std::string(program::name_of(stream)) + ": instruction " +
                std::to_string(entry.sequence) + (begun ? " runs" : " waits") + " on the device, " +
                std::to_string(one.entries.size() - one.complete - 1) + " are queued behind it";
    }
    return text;
}

void DeviceBackend::wait_for(Stream stream, std::int64_t sequence, Device::Event event) {
    if (device_->is_complete(event)) return;
    recorder_.wait_for({stream, std::max<std::int64_t>(sequence, 1)});
    device_->synchronize(event, [this] { look_around(); });
    recorder_.stop_waiting();
}

void DeviceBackend::finish_oldest(Stream stream) {
    Queue& queue = queues_[stream];
    Entry& entry = queue.entries.front();
    if (queue.complete == 0) wait_for(stream, entry.sequence, entry.end);
    if (queue.complete > 0) {
        --queue.complete;
    } else {
        recorder_.count_messages(1);
    }
    if (entry.times != nullptr) {
        entry.times->ready_ns = entry.times->begin_ns = time_ns(entry, entry.begin);
        entry.times->end_ns = time_ns(entry, entry.end);
        latest_end_ns_ = std::max(latest_end_ns_, entry.times->end_ns);
        device_->release(entry.begin);
    }
    if (entry.stamp != nullptr) *entry.stamp = time_ns(entry, entry.end);
    if (entry.value != nullptr) std::memcpy(entry.value, entry.blocks.front().memory, sizeof(double));
    device_->release(entry.end);
    for (const Block& block : entry.blocks) {
        if (block.bytes == block_bytes_) free_blocks_.push_back(block);
    }
    queue.entries.pop_front();
}

void DeviceBackend::wait(Stream stream, std::int64_t sequence) {
    const Queue& own = queues_[stream];
    ORRERY_CHECK(sequence <= own.issued, "a wait for an operation that has not been issued yet");
    if (sequence == 0) return;
    while (!own.entries.empty() && own.entries.front().sequence <= sequence) finish_oldest(stream);
}

void DeviceBackend::wait_all() {
    for (const Stream stream : program::kStreams) {
        while (!queues_[stream].entries.empty()) finish_oldest(stream);
    }
}

std::int64_t DeviceBackend::bytes_sent(Stream stream) const {
    return bytes_sent_[stream];
}

std::map<std::string, std::string> DeviceBackend::describe() const {
    return device_->describe();
}

}  // namespace orrery::exec
