#include "tests/emulator/device.h"

#include <pthread.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <string>
#include <utility>

#include "tests/emulator/fatal.h"

namespace emulated {
namespace {

// Between two looks at peers that a collective waits for: the first pause, doubled up to the longest one while nothing
// moves, because looks take processor time from the peers.
constexpr std::chrono::microseconds kPause{30}, kMostPause{400};
// Between two looks whether peers wait for a queued collective, and of a host that polls whether an event is complete.
constexpr std::chrono::microseconds kGlance{100};

bool is_lost_by_fork = false;

const Flow& device_flow() {
    static const Flow flow(Flow::Kind::current);
    return flow;
}

}  // namespace

std::int64_t setting(const char* name, std::int64_t otherwise) {
    const char* const text = std::getenv(name);
    if (text == nullptr) return otherwise;
    char* end = nullptr;
    const std::int64_t value = std::strtoll(text, &end, 10);
    if (end == text || *end != '\0') die(std::string(name) + ": got '" + text + "'; allowed: an integer");
    return value;
}

Device& Device::instance() {
    if (is_lost_by_fork) die("the process was forked from one that had used the device");
    static auto* const device = new Device;  // never destroyed, because its thread may still work at the end
    return *device;
}

Device::Device() : memory_(setting("EMULATED_CUDA_MEMORY_MIB", 4096) << 20U) {
    set_seed(setting("EMULATED_CUDA_SEED", 0));
    one_collective_ = setting("EMULATED_CUDA_ONE_COLLECTIVE", 0) != 0;
    fault_ = setting("EMULATED_CUDA_FAULT", 0);
    collective_fault_ = setting("EMULATED_NCCL_FAULT", 0);
    explain_faults(memory_);
    // As with CUDA: a child of a process that has used the device cannot use it. It lacks the device's thread.
    pthread_atfork(nullptr, nullptr, [] { is_lost_by_fork = true; });
    if (std::getenv("EMULATED_CUDA_COUNTS") != nullptr) std::atexit(write_counts);
    thread_ = std::thread([this] { work(); });
}

void Device::set_seed(std::int64_t seed) {
    const std::lock_guard lock(mutex_);
    random_.seed(static_cast<std::uint64_t>(seed * 1'000'003 + setting("RANK", 0)));
    policy_ = static_cast<int>(seed % 3);
}

void Device::write_counts() {
    const Device& device = instance();
    std::ofstream(std::getenv("EMULATED_CUDA_COUNTS"), std::ios::app)
        << device.grids_ << " " << device.collectives_ << "\n";
}

std::uint64_t Device::random() {
    const std::lock_guard lock(mutex_);
    return random_();
}

// ---- memory ---------------------------------------------------------------------------------------------------------

void* Device::allocate(std::int64_t bytes) {
    const std::lock_guard lock(mutex_);
    return memory_.allocate(bytes);
}

void* Device::allocate_pinned(std::int64_t bytes) {
    const std::lock_guard lock(mutex_);
    return memory_.allocate_pinned(bytes);
}

cudaError_t Device::free(void* memory) {
    std::unique_lock lock(mutex_);
    for (CUstream_st* const stream : std::vector(streams_)) static_cast<void>(wait_for(lock, stream, stream->last));
    return memory_.free(memory) ? broken_.load() : cudaErrorInvalidValue;
}

cudaError_t Device::free_pinned(void* memory) {
    std::unique_lock lock(mutex_);
    for (CUstream_st* const stream : std::vector(streams_)) static_cast<void>(wait_for(lock, stream, stream->last));
    return memory_.free_pinned(memory) ? broken_.load() : cudaErrorInvalidValue;
}

void Device::reserve(std::int64_t bytes) {
    const std::lock_guard lock(mutex_);
    memory_.reserve(bytes);
}

std::pair<std::int64_t, std::int64_t> Device::memory_use() {
    const std::lock_guard lock(mutex_);
    return {memory_.total(), memory_.used()};
}

Place Device::place_of(const void* memory) {
    const std::lock_guard lock(mutex_);
    return memory_.place_of(memory);
}

bool Device::is_whole(const void* memory, std::size_t bytes) {
    const std::lock_guard lock(mutex_);
    return memory_.is_whole(memory, bytes);
}

// ---- queueing -------------------------------------------------------------------------------------------------------

void Device::add(cudaStream_t stream, Operation operation) {
    operation.number = stream->last = ++queued_;
    operation.order = std::make_unique<char>();
    release(operation.order.get());
    if (operation.event != nullptr && operation.records) {
        operation.event->pending[operation.recording] = {stream, operation.number};
    }
    if (operation.collective.has_value()) {
        collectives_pending_.emplace(operation.number, std::pair{stream, *operation.collective});
    }
    stream->queue.push_back(std::move(operation));
}

cudaError_t Device::queue(cudaStream_t stream, Step step, std::optional<Collective> collective) {
    const std::lock_guard lock(mutex_);
    if (broken_ != cudaSuccess) return broken_;
    const bool wakes = collective.has_value();
    add(stream, {.step = std::move(step), .collective = std::move(collective)});
    if (wakes) wake_.notify_all();  // it then looks for peers that wait
    return cudaSuccess;
}

cudaError_t Device::queue_grid(cudaStream_t stream, Kernel kernel, const Extent& grid, const Extent& block) {
    const std::uint64_t seed = random();
    return queue(stream, [this, kernel = std::move(kernel), grid, block, seed, stream] {
        if (++grids_ == fault_) {
            break_down(cudaErrorLaunchFailure);
        } else if (kernel.has_bad_pointer) {
            break_down(cudaErrorIllegalAddress);
        } else {
            run_grid(kernel, grid, block, seed, stream);
        }
        return Progress::done;
    });
}

cudaError_t Device::record(cudaStream_t stream, cudaEvent_t event) {
    const std::lock_guard lock(mutex_);
    if (broken_ != cudaSuccess) return broken_;
    add(stream, {.event = event->state, .recording = ++event->state->recorded, .records = true});
    event->state->queries = 0;
    return cudaSuccess;
}

cudaError_t Device::hold(cudaStream_t stream, cudaEvent_t event) {
    const std::lock_guard lock(mutex_);
    if (broken_ != cudaSuccess) return broken_;
    if (event->state->recorded == 0) return cudaSuccess;  // as CUDA does: an event that was never recorded is complete
    add(stream, {.event = event->state, .recording = event->state->recorded});
    return cudaSuccess;
}

// ---- what is awaited ------------------------------------------------------------------------------------------------

/// Adds an operation and all that must run before it.
void Device::need(Demand& demand, CUstream_st* stream, std::uint64_t number) {
    std::uint64_t& upto = demand[stream];
    if (number <= upto) return;
    const std::uint64_t known = upto;
    upto = number;
    for (const Operation& one : stream->queue) {
        if (one.number > number) break;
        if (one.number <= known) continue;
        if (one.event != nullptr && !one.records) {
            const auto producer = one.event->pending.find(one.recording);
            if (producer != one.event->pending.end()) need(demand, producer->second.first, producer->second.second);
        }
        if (!one.collective.has_value()) continue;
        for (const auto& [earlier, where] : collectives_pending_) {
            if (earlier >= one.number) break;
            const bool comes_first = in_order_ || where.second.communicator == one.collective->communicator;
            if (comes_first) need(demand, where.first, earlier);
        }
    }
}

bool Device::is_done(CUstream_st* stream, std::uint64_t number) const {
    return stream->queue.empty() || stream->queue.front().number > number;
}

/// The queued collectives that peers have begun.
Device::Demand Device::wanted_by_peers() {
    Demand demand;
    for (const auto& [number, where] : collectives_pending_) {
        if (where.second.number <= where.second.wanted()) need(demand, where.first, number);
    }
    return demand;
}

cudaError_t Device::wait_for(std::unique_lock<std::mutex>& lock, CUstream_st* stream, std::uint64_t number) {
    if (broken_ == cudaSuccess && !is_done(stream, number)) {
        need(demand_, stream, number);
        wake_.notify_all();
        news_.wait(lock, [&] { return broken_ != cudaSuccess || is_done(stream, number); });
    }
    news_.wait(lock, [&] { return !works_; });
    memory_.lock();
    return broken_;
}

cudaError_t Device::finish(cudaStream_t stream) {
    std::unique_lock lock(mutex_);
    const cudaError_t error = wait_for(lock, stream, stream->last);
    acquire(&stream->order);
    return error;
}

cudaError_t Device::finish(cudaEvent_t event) {
    std::unique_lock lock(mutex_);
    EventState& state = *event->state;
    const auto pending = state.pending.find(state.recorded);
    cudaError_t error = broken_;
    if (pending != state.pending.end()) error = wait_for(lock, pending->second.first, pending->second.second);
    acquire(&state.order);
    return error;
}

/// The first query of a recording that is not complete only says so, since a device may be that late. The second one
/// makes the device work. The next ones take a while, because a host that polls takes processor time from the devices.
cudaError_t Device::query(cudaEvent_t event) {
    std::unique_lock lock(mutex_);
    if (broken_ != cudaSuccess) return broken_;
    EventState& state = *event->state;
    const auto pending = state.pending.find(state.recorded);
    if (pending == state.pending.end()) {
        acquire(&state.order);
        closes_memory_ = works_;
        if (!works_) memory_.lock();
        return cudaSuccess;
    }
    if (++state.queries == 2) {
        need(demand_, pending->second.first, pending->second.second);
        wake_.notify_all();
    } else if (state.queries > 2) {
        news_.wait_for(lock, kGlance);
    }
    return cudaErrorNotReady;
}

void Device::finish_collectives(const void* communicator) {
    std::unique_lock lock(mutex_);
    const auto pending = [&] {
        return std::find_if(collectives_pending_.rbegin(), collectives_pending_.rend(),
                            [&](const auto& one) { return one.second.second.communicator == communicator; });
    };
    for (auto last = pending(); last != collectives_pending_.rend(); last = pending()) {
        if (wait_for(lock, last->second.first, last->first) != cudaSuccess) return;
    }
}

void Device::drop(const void* communicator) {
    std::unique_lock lock(mutex_);
    news_.wait(lock, [&] { return running_ != communicator; });
    for (CUstream_st* const stream : streams_) {
        for (Operation& one : stream->queue) {
            if (!one.collective.has_value() || one.collective->communicator != communicator) continue;
            one.step = [] { return Progress::done; };
            if (one.has_begun) --begun_[one.collective->family];
            one.collective.reset();
            collectives_pending_.erase(one.number);
        }
    }
    wake_.notify_all();
}

// ---- streams and events ---------------------------------------------------------------------------------------------

cudaError_t Device::create(cudaStream_t* stream) {
    const std::lock_guard lock(mutex_);
    if (broken_ != cudaSuccess) return broken_;
    *stream = new CUstream_st;
    streams_.push_back(*stream);
    return cudaSuccess;
}

cudaError_t Device::destroy(cudaStream_t stream) {
    std::unique_lock lock(mutex_);
    const cudaError_t error = wait_for(lock, stream, stream->last);
    std::erase(streams_, stream);
    demand_.erase(stream);
    delete stream;
    return error;
}

cudaError_t Device::create(cudaEvent_t* event) {
    if (broken_ != cudaSuccess) return broken_;
    *event = new CUevent_st{std::make_shared<EventState>()};
    return cudaSuccess;
}

cudaError_t Device::destroy(cudaEvent_t event) {
    delete event;
    return broken_;
}

cudaError_t Device::elapsed(float* milliseconds, cudaEvent_t begin, cudaEvent_t end) {
    const std::lock_guard lock(mutex_);
    if (broken_ != cudaSuccess) return broken_;
    if (begin->state->recorded == 0 || end->state->recorded == 0) return cudaErrorInvalidResourceHandle;
    if (!begin->state->pending.empty() || !end->state->pending.empty()) return cudaErrorNotReady;
    *milliseconds = std::chrono::duration<float, std::milli>(end->state->time - begin->state->time).count();
    return cudaSuccess;
}

void Device::break_down(cudaError_t error) {
    cudaError_t none = cudaSuccess;
    broken_.compare_exchange_strong(none, error);
}

bool Device::collective_fails() {
    return ++collectives_ == collective_fault_;
}

void Device::begin_in_order() {
    const std::lock_guard lock(mutex_);
    in_order_ = true;
}

// ---- the device's thread --------------------------------------------------------------------------------------------

bool Device::may_run(const Operation& operation) const {
    if (operation.event != nullptr && !operation.records) return operation.event->completed >= operation.recording;
    return !operation.collective.has_value() || operation.has_begun || may_begin(operation);
}

/// A communicator runs its collectives one after the other, on whatever streams they are.
bool Device::may_begin(const Operation& collective) const {
    const auto begun = begun_.find(collective.collective->family);
    if (one_collective_ && begun != begun_.end() && begun->second > 0) return false;
    for (const auto& [number, where] : collectives_pending_) {
        if (number >= collective.number) break;
        if (where.second.communicator == collective.collective->communicator) return false;
        const Operation& head = where.first->queue.front();
        if (in_order_ && (head.number != number || !head.has_begun)) return false;
    }
    return true;
}

/// Runs the first operation of a stream, or looks again at a collective that waits. True if it is done.
bool Device::run(std::unique_lock<std::mutex>& lock, CUstream_st& stream) {
    Operation& operation = stream.queue.front();  // stays in place while the host queues others
    if (operation.collective.has_value()) {
        running_ = operation.collective->communicator;
        if (!operation.has_begun) ++begun_[operation.collective->family];
    }
    operation.has_begun = true;
    lock.unlock();
    stream.flow.enter();
    acquire(operation.order.get());
    if (operation.event != nullptr && !operation.records) acquire(&operation.event->order);
    const Progress progress = operation.step ? operation.step() : Progress::done;
    if (operation.event != nullptr && operation.records) release(&operation.event->order);
    if (progress == Progress::done) operation.step = {};  // here, because its memory belongs to this flow
    release(&stream.order);
    device_flow().enter();
    lock.lock();
    running_ = nullptr;
    if (progress == Progress::waits) return false;
    if (operation.collective.has_value()) {
        --begun_[operation.collective->family];
        collectives_pending_.erase(operation.number);
    }
    if (operation.records) {
        operation.event->completed = std::max(operation.event->completed, operation.recording);
        operation.event->pending.erase(operation.recording);
        operation.event->time = Clock::now();
    }
    stream.queue.pop_front();
    moved_ = Clock::now();
    return true;
}

/// Runs one operation of the policy's choice. False if all that may be chosen waits for other ranks.
bool Device::step_once(std::unique_lock<std::mutex>& lock, const Demand& demand) {
    std::vector<CUstream_st*> needed, others;
    for (CUstream_st* const stream : streams_) {
        if (stream->queue.empty() || !may_run(stream->queue.front())) continue;
        const auto upto = demand.find(stream);
        const bool is_needed = upto != demand.end() && stream->queue.front().number <= upto->second;
        (is_needed ? needed : others).push_back(stream);
    }
    std::shuffle(needed.begin(), needed.end(), random_);
    std::shuffle(others.begin(), others.end(), random_);
    std::vector<CUstream_st*> choice = needed;
    if (policy_ != 0) choice.insert(policy_ == 1 ? choice.end() : choice.begin(), others.begin(), others.end());
    if (policy_ == 1) std::shuffle(choice.begin(), choice.end(), random_);
    return std::any_of(choice.begin(), choice.end(), [&](CUstream_st* stream) { return run(lock, *stream); });
}

void Device::forget_done() {
    std::erase_if(demand_, [&](const auto& one) { return is_done(one.first, one.second); });
}

void Device::work() {
    static_cast<void>(device_flow());
    const std::chrono::seconds patience{setting("EMULATED_CUDA_PATIENCE_S", 120)};
    std::chrono::microseconds pause = kPause;
    std::unique_lock lock(mutex_);
    for (;;) {
        Demand demand = demand_;
        for (const auto& [stream, number] : wanted_by_peers()) need(demand, stream, number);
        if (demand.empty() || broken_ != cudaSuccess) {
            moved_ = Clock::now();
            if (collectives_pending_.empty() || broken_ != cudaSuccess) {
                wake_.wait(lock);
            } else {
                wake_.wait_for(lock, kGlance);
            }
            continue;
        }
        works_ = true;
        memory_.unlock();
        const auto before = moved_;
        bool moves = true;
        while (moves && !demand.empty() && broken_ == cudaSuccess) {
            moves = step_once(lock, demand);
            std::erase_if(demand, [&](const auto& one) { return is_done(one.first, one.second); });
        }
        std::exchange(closes_memory_, false) ? memory_.lock() : memory_.rest();
        works_ = false;
        forget_done();
        if (broken_ != cudaSuccess) drop_all();
        news_.notify_all();
        if (moves) continue;
        if (Clock::now() - moved_ > patience) die("nothing has moved for too long:" + describe());
        pause = moved_ > before ? kPause : std::min(2 * pause, kMostPause);
        wake_.wait_for(lock, pause);
    }
}

/// After a failure nothing runs any more.
void Device::drop_all() {
    for (CUstream_st* const stream : streams_) stream->queue.clear();
    collectives_pending_.clear();
    demand_.clear();
    begun_.clear();
}

std::string Device::describe() const {
    std::string text;
    for (std::size_t s = 0; s < streams_.size(); ++s) {
        if (streams_[s]->queue.empty()) continue;
        const Operation& head = streams_[s]->queue.front();
        text += " stream " + std::to_string(s) + " has " + std::to_string(streams_[s]->queue.size()) +
                " operations, the first of which is ";
        text += head.collective.has_value()
                    ? (head.has_begun ? "a collective that waits for its peers" : "a collective that may not begin yet")
                : head.event != nullptr ? "a wait for an event"
                                        : "a kernel or a copy";
        text += ";";
    }
    return text;
}

}  // namespace emulated
