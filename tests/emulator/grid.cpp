#include "tests/emulator/grid.h"

#include <cuda_runtime.h>

#include <algorithm>
#include <array>
#include <boost/context/fiber.hpp>
#include <boost/context/protected_fixedsize_stack.hpp>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <numeric>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "tests/emulator/fatal.h"
#include "tests/emulator/sanitizers.h"

emulated::Extent threadIdx, blockIdx, blockDim, gridDim;

namespace emulated {
namespace {

constexpr unsigned kWarp = 32;
constexpr std::size_t kMostThreads = 1024;  // of a block
constexpr unsigned kAllLanes = 0xffffffffU;
constexpr char kUnwritten = static_cast<char>(0xff);
constexpr std::size_t kStackBytes = std::size_t{256} << 10U;  // sanitizers make frames large

struct Copy {
    void* to;
    const void* from;
    std::size_t bytes;
};

/// What a thread has started and not yet waited for.
struct Copies {
    std::vector<Copy> all;
    std::vector<std::size_t> groups;  // how many each has
};

enum class State { fresh, ready, runs, exchanging, at_barrier, done };

struct Worker;

struct alignas(64) Lane {
    State state = State::fresh;
    Extent index;
    unsigned linear = 0;  // in its block
    Worker* worker = nullptr;
    std::uint64_t
        bits[2]{};  // offered in exchanges, by parity, so that a lane cannot overwrite what another still reads
    unsigned exchanges = 0;
    unsigned barriers = 0;
};

/// A fiber. It runs one thread after the other and is held by a thread that waits.
struct Worker {
    boost::context::fiber context;  // while it does not run
    const void* stack_bottom = nullptr;
    std::size_t stack_bytes = 0;
    void* fake_stack = nullptr;  // AddressSanitizer's
    Lane* lane = nullptr;
    const Flow* flow = nullptr;
};

/// Its memory never moves and is never freed: ThreadSanitizer would take that for accesses of the flow that happens to
/// run.
class Processor {
  public:
    Processor() {
        lanes_.reserve(kMostThreads);
        workers_.reserve(kMostThreads);
    }
    void run(const Kernel& kernel, const Extent& grid, const Extent& block, std::uint64_t seed, const void* stream);

    // Called by device code.
    int meet_block(int predicate);
    std::uint64_t exchange(unsigned mask, std::uint64_t bits, unsigned lanes);
    [[nodiscard]] std::uint64_t offered_by(unsigned lane) const;
    [[nodiscard]] char* dynamic_shared() const { return dynamic_.get(); }
    void start_copy(const Copy& copy);
    void end_group_of_copies();
    void wait_for_copies(std::size_t groups_left);

  private:
    void run_block();
    void run_warp(unsigned first);
    void start(Lane& one, Worker& on);
    void go_on_as(Lane* lane);
    [[nodiscard]] Lane* next_runnable();
    void leave();
    void switch_to(Worker& to);
    void arrive(boost::context::fiber&& from);
    [[noreturn]] void work(Worker& self);
    [[nodiscard]] Worker& worker_for(const Lane& lane);
    [[nodiscard]] Worker* make_worker();
    [[nodiscard]] const Flow& flow_for(const Lane& lane);
    [[noreturn]] void fail(const std::string& what) const;
    void clear_shared() const;
    [[nodiscard]] bool may_use_shared() const;
    void learn_about_shared();

    const Kernel* kernel_ = nullptr;
    std::mt19937_64 random_;
    std::vector<Lane> lanes_;
    std::set<const void*> without_shared_;  // kernels
    const void* stream_ = nullptr;
    std::map<const void*, std::array<const Flow*, kMostThreads>> flows_;  // by stream and thread
    std::vector<Worker*> free_;                                           // without ThreadSanitizer
    std::vector<Worker*> workers_;                                        // with it: by thread
    std::size_t made_ = 0;
    Worker scheduler_;
    Worker* active_ = &scheduler_;
    Worker* left_ = nullptr;  // the worker that was running before the last switch
    Lane* lane_ = nullptr;    // of the running thread
    unsigned warp_first_ = 0, warp_end_ = 0;
    unsigned exchanging_ = 0;
    int predicate_ = 0, result_ = 0;
    std::unique_ptr<char, decltype(&std::free)> dynamic_{nullptr, &std::free};
    std::map<unsigned, Copies> copies_;  // of the block's threads that have some
    // Places of ThreadSanitizer's orders.
    char begin_ = 0, end_ = 0, shared_ = 0;
    char barrier_[2]{};
    char warp_[2]{};
};

Processor& processor() {
    static auto* const one = new Processor;  // never destroyed, since that would unwind the fibers' stacks
    return *one;
}

/// Sets what device code reads of itself. ThreadSanitizer must not see it, since threads only read their own.
__attribute__((no_sanitize("thread"))) void set(Extent& variable, const Extent& value) {
    variable = value;
}

/// Allocates a worker's stack and tells it the bounds.
struct StackAllocator {
    Worker* worker;
    boost::context::protected_fixedsize_stack stacks{kStackBytes};
    std::size_t
        shift;  // of the first frame: if all stacks began at the same place of a page, they would share few cache sets
    boost::context::stack_context allocate() {
        boost::context::stack_context stack = stacks.allocate();
        worker->stack_bottom = static_cast<char*>(stack.sp) - stack.size;
        worker->stack_bytes = stack.size;
        stack.sp = static_cast<char*>(stack.sp) - shift;
        stack.size -= shift;
        return stack;
    }
    void deallocate(boost::context::stack_context& stack) noexcept {
        stack.sp = static_cast<char*>(stack.sp) + shift;
        stack.size += shift;
        stacks.deallocate(stack);
    }
};

void Processor::fail(const std::string& what) const {
    die(what + " in block (" + std::to_string(blockIdx.x) + ", " + std::to_string(blockIdx.y) + ", " +
            std::to_string(blockIdx.z) + ") of a grid of " + std::to_string(gridDim.volume()) + " blocks of " +
            std::to_string(blockDim.volume()) + " threads",
        kernel_->address);
}

/// With ThreadSanitizer a thread always runs on the same worker, since two that shared a stack would race there.
Worker& Processor::worker_for(const Lane& lane) {
    if (kFindsRaces) {
        while (workers_.size() <= lane.linear) workers_.push_back(make_worker());
        return *workers_[lane.linear];
    }
    if (free_.empty()) free_.push_back(make_worker());
    Worker& one = *free_.back();
    free_.pop_back();
    return one;
}

Worker* Processor::make_worker() {
    auto* const one = new Worker;
    one->context =
        boost::context::fiber(std::allocator_arg, StackAllocator{.worker = one, .shift = made_++ * 5 * 64 % 4096},
                              [this, one](boost::context::fiber&& from) -> boost::context::fiber {
                                  arrive(std::move(from));
                                  work(*one);
                              });
    return one;
}

/// To make a flow costs ThreadSanitizer a megabyte. The threads with the same number in the grids of one stream share
/// one, since these grids are in order anyway.
const Flow& Processor::flow_for(const Lane& lane) {
    const Flow*& flow = flows_[stream_][kFindsRaces ? lane.linear : 0];
    if (flow == nullptr) flow = new Flow(Flow::Kind::fresh);
    return *flow;
}

void Processor::switch_to(Worker& to) {
    Worker& self = *active_;
    left_ = &self;
    active_ = &to;
    go_on_as(to.lane);
    before_switch(&self.fake_stack, to.stack_bottom, to.stack_bytes);
    to.flow->enter();
    boost::context::fiber from = std::move(to.context).resume();
    arrive(std::move(from));
}

/// The first thing after each switch, on the new stack.
void Processor::arrive(boost::context::fiber&& from) {
    left_->context = std::move(from);
    const void* bottom = nullptr;
    std::size_t bytes = 0;
    after_switch(active_->fake_stack, &bottom, &bytes);
    if (left_ == &scheduler_) {
        scheduler_.stack_bottom = bottom;
        scheduler_.stack_bytes = bytes;
    }
}

void Processor::start(Lane& one, Worker& on) {
    one.worker = &on;
    on.lane = &one;
}

/// Null: as the scheduler.
void Processor::go_on_as(Lane* lane) {
    lane_ = lane;
    if (lane == nullptr) return;
    lane->state = State::runs;
    set(threadIdx, lane->index);
}

void Processor::work(Worker& self) {
    for (;;) {
        acquire(&begin_);
        kernel_->run();
        release(&end_);
        self.lane->state = State::done;
        Lane* const next = next_runnable();
        if (!kFindsRaces && next != nullptr && next->state == State::fresh) {  // without switching
            start(*next, self);
            go_on_as(next);
            continue;
        }
        if (!kFindsRaces) free_.push_back(&self);
        leave();
    }
}

/// Continues with another thread of the warp, or with the scheduler if none can run.
void Processor::leave() {
    Lane* const next = next_runnable();
    if (next == nullptr) return switch_to(scheduler_);
    if (next->state == State::fresh) {
        Worker& worker = worker_for(*next);
        start(*next, worker);
        worker.flow = &flow_for(*next);
    }
    switch_to(*next->worker);
}

/// The threads of a warp take turns, so that the order of lanes is not the same in all rounds.
Lane* Processor::next_runnable() {
    Lane* const first = lanes_.data() + warp_first_;
    Lane* const end = lanes_.data() + warp_end_;
    Lane* one = active_ == &scheduler_ ? end - 1 : active_->lane;
    for (unsigned left = warp_end_ - warp_first_; left > 0; --left) {
        if (++one == end) one = first;
        if (one->state <= State::ready) return one;
    }
    return nullptr;
}

int Processor::meet_block(int predicate) {
    Lane& self = *lane_;
    const unsigned parity = self.barriers++ % 2;
    predicate_ |= predicate != 0 ? 1 : 0;
    release(&barrier_[parity]);
    self.state = State::at_barrier;
    leave();
    acquire(&barrier_[parity]);
    return result_;
}

std::uint64_t Processor::exchange(unsigned mask, std::uint64_t bits, unsigned lanes) {
    Lane& self = *lane_;
    if (mask != kAllLanes) fail("a shuffle with a mask that is not the whole warp");
    if (lanes >= kWarp || warp_end_ - warp_first_ < kWarp) fail("a shuffle with lanes that the warp does not have");
    const unsigned parity = self.exchanges++ % 2;
    self.bits[parity] = bits;
    release(&warp_[parity]);
    if (++exchanging_ < kWarp) {
        self.state = State::exchanging;
        leave();
    } else {
        exchanging_ = 0;
        for (unsigned l = warp_first_; l < warp_end_; ++l) lanes_[l].state = State::ready;
        self.state = State::runs;
    }
    acquire(&warp_[parity]);
    return offered_by((self.linear % kWarp) ^ lanes);
}

std::uint64_t Processor::offered_by(unsigned lane) const {
    return lanes_[warp_first_ + lane].bits[(lane_->exchanges - 1) % 2];
}

void Processor::start_copy(const Copy& copy) {
    const auto is_aligned = [&](const void* memory) {
        return reinterpret_cast<std::uintptr_t>(memory) % copy.bytes == 0;
    };
    if (copy.bytes != 4 && copy.bytes != 8 && copy.bytes != 16) fail("an asynchronous copy of a size that CUDA lacks");
    if (!is_aligned(copy.to) || !is_aligned(copy.from)) fail("an asynchronous copy that is not aligned");
    std::memset(copy.to, kUnwritten, copy.bytes);
    copies_[lane_->linear].all.push_back(copy);
}

void Processor::end_group_of_copies() {
    Copies& own = copies_[lane_->linear];
    own.groups.push_back(own.all.size() - std::accumulate(own.groups.begin(), own.groups.end(), std::size_t{0}));
}

void Processor::wait_for_copies(std::size_t groups_left) {
    Copies& own = copies_[lane_->linear];
    while (own.groups.size() > groups_left) {
        const auto end = own.all.begin() + static_cast<std::ptrdiff_t>(own.groups.front());
        for (auto one = own.all.begin(); one != end; ++one) std::memcpy(one->to, one->from, one->bytes);
        own.all.erase(own.all.begin(), end);
        own.groups.erase(own.groups.begin());
    }
}

/// Runs a warp until each of its threads has ended or waits for the block.
void Processor::run_warp(unsigned first) {
    warp_first_ = first;
    warp_end_ = std::min(first + kWarp, static_cast<unsigned>(lanes_.size()));
    if (next_runnable() != nullptr) leave();
    if (exchanging_ > 0) fail("a shuffle that " + std::to_string(exchanging_) + " of the warp's lanes reach");
}

/// Fills the shared variables with NaN, as float and as double. ThreadSanitizer would take it for a use of them.
void Processor::clear_shared() const {
    char* const begin = kernel_->shared_begin;
    if (!kFindsRaces) return std::fill(begin, kernel_->shared_end, kUnwritten);
    for (volatile char* at = begin; at != kernel_->shared_end; ++at) *at = kUnwritten;
}

/// All kernels use the same shared variables, so that those that have some must be ordered for ThreadSanitizer, even on
/// two streams. It is known of a kernel after its first run.
bool Processor::may_use_shared() const {
    return kFindsRaces && !without_shared_.contains(kernel_->address);
}

void Processor::learn_about_shared() {
    const bool unused =
        std::all_of(kernel_->shared_begin, kernel_->shared_end, [](char one) { return one == kUnwritten; });
    if (unused) without_shared_.insert(kernel_->address);
}

void Processor::run_block() {
    clear_shared();
    copies_.clear();
    if (dynamic_ != nullptr) std::memset(dynamic_.get(), kUnwritten, kernel_->dynamic_shared_bytes);
    for (unsigned i = 0; i < lanes_.size(); ++i) {
        Lane& one = lanes_[i];
        one.index = {i % blockDim.x, i / blockDim.x % blockDim.y, i / blockDim.x / blockDim.y};
        one.linear = i;
        one.state = State::fresh;
        one.exchanges = one.barriers = 0;
    }
    release(&begin_);
    std::vector<unsigned> warps((lanes_.size() + kWarp - 1) / kWarp);
    std::iota(warps.begin(), warps.end(), 0U);
    for (;;) {
        std::shuffle(warps.begin(), warps.end(), random_);
        for (const unsigned warp : warps) run_warp(warp * kWarp);
        const auto count = [&](State state) {
            return std::count_if(lanes_.begin(), lanes_.end(), [&](const Lane& one) { return one.state == state; });
        };
        const auto all = static_cast<std::ptrdiff_t>(lanes_.size());
        if (count(State::done) == all) break;
        if (count(State::at_barrier) != all) {
            fail("a barrier that " + std::to_string(count(State::at_barrier)) +
                 " of the block's threads reach, while " + std::to_string(count(State::done)) + " have ended,");
        }
        result_ = predicate_;
        predicate_ = 0;
        for (Lane& one : lanes_) one.state = State::ready;
    }
    // Also orders the blocks, because they use the same shared variables: races between blocks are not seen.
    acquire(&end_);
}

void Processor::run(const Kernel& kernel, const Extent& grid, const Extent& block, std::uint64_t seed,
                    const void* stream) {
    kernel_ = &kernel;
    stream_ = stream;
    random_.seed(seed);
    set(gridDim, grid);
    set(blockDim, block);
    lanes_.resize(block.volume());
    if (kernel.dynamic_shared_bytes > 0) {
        constexpr std::size_t kAlignment = 128;
        dynamic_.reset(static_cast<char*>(
            std::aligned_alloc(kAlignment, (kernel.dynamic_shared_bytes + kAlignment - 1) / kAlignment * kAlignment)));
    }
    const bool is_ordered = may_use_shared();
    if (is_ordered) acquire(&shared_);
    const Flow scheduler(Flow::Kind::current);
    scheduler_.flow = &scheduler;
    // A random order of blocks: block n is n * factor + offset, with a factor that has no common divisor with the
    // count.
    const std::uint64_t blocks = grid.volume();
    const std::uint64_t offset = random_() % blocks;
    std::uint64_t factor = 1 + random_() % blocks % 1024;
    while (std::gcd(factor, blocks) != 1) ++factor;
    for (std::uint64_t n = 0; n < blocks; ++n) {
        const std::uint64_t at = (n * factor + offset) % blocks;
        set(blockIdx, {static_cast<unsigned>(at % grid.x), static_cast<unsigned>(at / grid.x % grid.y),
                       static_cast<unsigned>(at / grid.x / grid.y)});
        run_block();
    }
    dynamic_.reset();
    if (!is_ordered) return;
    release(&shared_);
    learn_about_shared();
}

}  // namespace

int meet_block(int predicate) {
    return processor().meet_block(predicate);
}
std::uint64_t exchange(unsigned mask, std::uint64_t bits, unsigned lanes) {
    return processor().exchange(mask, bits, lanes);
}
std::uint64_t offered_by(unsigned lane) {
    return processor().offered_by(lane);
}
char* dynamic_shared() {
    return processor().dynamic_shared();
}
void start_copy(void* to, const void* from, std::size_t bytes) {
    processor().start_copy({to, from, bytes});
}
void end_group_of_copies() {
    processor().end_group_of_copies();
}
void wait_for_copies(std::size_t groups_left) {
    processor().wait_for_copies(groups_left);
}
void run_grid(const Kernel& kernel, const Extent& grid, const Extent& block, std::uint64_t seed, const void* stream) {
    processor().run(kernel, grid, block, seed, stream);
}

}  // namespace emulated
