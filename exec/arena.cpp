#include "exec/arena.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstring>
#include <fstream>
#include <sstream>

#include "core/error.h"
#include "core/units.h"

namespace orrery::exec {
namespace {

using program::Space;

constexpr std::int64_t kPage = 4096;
std::int64_t align(std::int64_t bytes) {
    return (bytes + kPage - 1) / kPage * kPage;
}

std::string gib(std::int64_t bytes) {
    std::ostringstream text;
    text.precision(3);
    text << std::fixed << to_gib(Bytes(bytes)) << " GiB";
    return text.str();
}

/// A value in kB of a /proc file of "Key:   123 kB" lines; -1 when absent.
std::int64_t proc_bytes(const char* path, const std::string& key) {
    std::ifstream file(path);
    std::string word;
    while (file >> word) {
        if (word == key + ":") {
            std::int64_t kilobytes = 0;
            if (file >> kilobytes) return kilobytes * 1024;
        }
    }
    return -1;
}

}  // namespace

ResidentMemory resident_memory() {
    const std::int64_t now = proc_bytes("/proc/self/status", "VmRSS");
    const std::int64_t peak = proc_bytes("/proc/self/status", "VmHWM");
    if (now < 0 || peak < 0) throw JobError("/proc/self/status does not tell this process's memory");
    return {now, peak};
}

std::int64_t available_memory_bytes() {
    std::int64_t available = proc_bytes("/proc/meminfo", "MemAvailable");
    if (available < 0) throw JobError("/proc/meminfo does not tell the available memory");
    std::ifstream limit_file("/sys/fs/cgroup/memory.max");
    std::ifstream used_file("/sys/fs/cgroup/memory.current");
    std::int64_t limit = 0, used = 0;
    if (limit_file >> limit && used_file >> used)
        available = std::min(available, std::max<std::int64_t>(0, limit - used));
    return available;
}

Arena::Arena(const program::RankClass& rank_class, int ranks_on_host) : class_(rank_class) {
    const program::MemoryFootprint& memory = rank_class.memory;
    ORRERY_CHECK(memory.gathered + memory.reductions + memory.offload_window + memory.host == 0 &&
                     rank_class.weight_copy_bytes == 0,
                 rank_class.name + " needs memory of a kind that only simulated programs have");
    const auto place = [&](std::int64_t bytes) {
        const std::int64_t offset = bytes_;
        bytes_ += align(bytes);
        return offset;
    };
    parameters_ = place(memory.parameters);
    gradients_ = place(memory.gradients);
    optimizer_ = place(memory.optimizer_states);
    for (const program::Chunk& chunk : rank_class.chunks) {
        frames_.push_back(place(chunk.frame_bytes * chunk.frame_count));
    }
    inputs_ = place(rank_class.boundary_bytes * rank_class.input_boundary_count);
    outputs_ = place(rank_class.boundary_bytes * rank_class.forward_boundary_count);
    hidden_gradients_ = place(rank_class.boundary_bytes * rank_class.backward_boundary_count);
    transients_ = place(memory.transients_arena);
    scalars_ = place(static_cast<std::int64_t>(sizeof(double)));

    const std::int64_t free_bytes = available_memory_bytes();
    if (bytes_ > free_bytes / std::max(1, ranks_on_host)) {
        throw JobError(rank_class.name + " needs " + gib(bytes_) + " a rank (parameters " + gib(memory.parameters) +
                       ", gradients " + gib(memory.gradients) + ", optimizer states " + gib(memory.optimizer_states) +
                       ", activations " + gib(memory.activations_arena) + ", transients " +
                       gib(memory.transients_arena) + ", boundaries " + gib(memory.boundaries_arena) + "), and " +
                       std::to_string(ranks_on_host) + " ranks share " + gib(free_bytes) + " of free memory");
    }
    void* memory_block =
        mmap(nullptr, static_cast<std::size_t>(bytes_), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory_block == MAP_FAILED) throw JobError("cannot reserve " + gib(bytes_) + ": " + std::strerror(errno));
    base_ = static_cast<std::byte*>(memory_block);
    std::memset(base_, 0, static_cast<std::size_t>(bytes_));  // every page is there before the first step is timed
}

Arena::~Arena() {
    if (base_ != nullptr) munmap(base_, static_cast<std::size_t>(bytes_));
}

double* Arena::loss() const {
    return reinterpret_cast<double*>(base_ + scalars_);
}

std::byte* Arena::boundary(std::int32_t index, std::int64_t pool) const {
    ORRERY_CHECK(index >= 0, "an action uses a boundary buffer that it does not hold");
    return base_ + pool + index * class_.boundary_bytes;
}

std::byte* Arena::frame(const program::Action& action) const {
    ORRERY_CHECK(action.activation_frame >= 0, "an action uses a frame that it does not hold");
    const auto chunk = static_cast<std::size_t>(action.chunk);
    return base_ + frames_[chunk] + action.activation_frame * class_.chunks[chunk].frame_bytes;
}

void* Arena::address(const program::Slot& slot, const program::Segment& segment, const program::Action& action) const {
    const auto range = static_cast<std::size_t>(slot.range);
    const std::int64_t element = size_of(slot.decl.dtype);
    // What the layers of a chunk hand each other lies in the frame, what comes from outside in a boundary buffer.
    const auto handed = [&](std::int64_t offset, std::int32_t index, std::int64_t pool) -> std::byte* {
        return offset >= 0 ? frame(action) + offset : boundary(index, pool);
    };
    switch (slot.space) {
        case Space::parameter:
            return parameters() + (segment.parameter_base[range] + slot.offset) * element;
        case Space::gradient:
            return gradients() + (segment.gradient_base[range] + slot.offset) * element;
        case Space::tied_parameter:
            return parameters() + (class_.tied_parameter_base + slot.offset) * element;
        case Space::tied_gradient:
            return gradients() + (class_.tied_gradient_base + slot.offset) * element;
        case Space::hidden_in:
            return handed(segment.hidden_in_offset, action.input_boundary, inputs_);
        case Space::activation:
            return frame(action) + segment.activation_base + slot.offset;
        case Space::hidden_out:
            return handed(segment.hidden_out_offset, action.forward_boundary, action.output_stays ? inputs_ : outputs_);
        case Space::hidden_gradient:
            return handed(segment.gradient_in_offset, action.backward_boundary, hidden_gradients_);
        case Space::hidden_gradient_out:
            return handed(segment.gradient_out_offset, action.gradient_out, hidden_gradients_);
        case Space::transient:
            return base_ + transients_ + slot.offset;
        case Space::scalars:
            return base_ + scalars_ + slot.offset;
        case Space::optimizer:
            return base_ + optimizer_ + slot.offset;
        case Space::parameter_shard:
        case Space::gradient_shard:
        case Space::reduction:
        case Space::weight_copy:
        case Space::host:
            break;
    }
    throw_bug(__FILE__, __LINE__, "Space", "slot " + slot.decl.name + " lies where only simulated programs put one");
}

}  // namespace orrery::exec
