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
/// The loss, and the norm with its count of what is not finite.
constexpr std::int64_t kScalarBytes = 3 * static_cast<std::int64_t>(sizeof(double));
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

Arena::Arena(const program::Program& program, const program::RankClass& rank_class, const Shards& shards,
             int ranks_on_host)
    : class_(rank_class), shards_(shards) {
    const program::MemoryFootprint& memory = rank_class.memory;
    ORRERY_CHECK(rank_class.weight_copy_bytes == 0,
                 rank_class.name + " needs memory of a kind that only simulated programs have");
    const auto place = [&](std::int64_t bytes) {
        const std::int64_t offset = bytes_;
        bytes_ += align(bytes);
        return offset;
    };
    const bool gathers = memory.gathered > 0;
    parameters_ = place(gathers ? memory.gathered : memory.parameters);
    parameter_shards_ = gathers ? place(memory.parameters) : parameters_;
    // The window, and behind it the shards that have memory of their own.
    gradients_ = place(memory.gradients);
    const std::int64_t gradient_shards =
        rank_class.gradient_shards_alias
            ? 0
            : rank_class.shard_elements * size_of(program.plan->training.precision.gradient);
    gradient_shards_ = gradients_ + memory.gradients - gradient_shards;
    reductions_ = place(memory.reductions);
    offload_window_ = place(memory.offload_window);
    optimizer_ = place(memory.optimizer_states);
    for (const program::Chunk& chunk : rank_class.chunks) {
        frames_.push_back(place(chunk.frame_bytes * chunk.frame_count));
    }
    inputs_ = place(rank_class.boundary_bytes * rank_class.input_boundary_count);
    outputs_ = place(rank_class.boundary_bytes * rank_class.forward_boundary_count);
    hidden_gradients_ = place(rank_class.boundary_bytes * rank_class.backward_boundary_count);
    transients_ = place(memory.transients_arena);
    scalars_ = place(kScalarBytes);
    host_ = place(memory.host);
    std::int64_t host_frame = host_ + memory.host;
    for (auto chunk = rank_class.chunks.rbegin(); chunk != rank_class.chunks.rend(); ++chunk) {
        host_frame -= chunk->host_frame_bytes * chunk->frame_count;
        host_frames_.insert(host_frames_.begin(), host_frame);
    }

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

std::byte* Arena::host_frame(const program::Action& action) const {
    ORRERY_CHECK(action.activation_frame >= 0, "an action uses a frame that it does not hold");
    const auto chunk = static_cast<std::size_t>(action.chunk);
    return base_ + host_frames_[chunk] + action.activation_frame * class_.chunks[chunk].host_frame_bytes;
}

void* Arena::flat_address(const program::Slot& slot) const {
    switch (slot.space) {
        case Space::parameter:
            return base_ + parameters_;
        case Space::gradient:
            return base_ + gradients_;
        case Space::parameter_shard:
            return base_ + parameter_shards_;
        case Space::gradient_shard:
            return base_ + (class_.gradient_shards_alias ? gradients_ : gradient_shards_);
        case Space::optimizer:
            return base_ + optimizer_ + slot.offset;
        case Space::host:
            return base_ + host_ + slot.offset;
        case Space::scalars:
            return base_ + scalars_ + slot.offset;
        default:
            throw_bug(__FILE__, __LINE__, "Space", "slot " + slot.decl.name + " does not lie flat");
    }
}

std::byte* Arena::parameters_at_rest(const ShardPiece& piece, std::int64_t element_bytes) const {
    const bool apart = class_.shard_elements > 0 && !class_.parameter_shards_alias;
    return base_ + parameter_shards_ + (apart ? piece.shard : piece.flat) * element_bytes;
}

std::byte* Arena::gradients_at_rest(const ShardPiece& piece, std::int64_t element_bytes) const {
    const bool apart = class_.shard_elements > 0 && !class_.gradient_shards_alias;
    return base_ + (apart ? gradient_shards_ + piece.shard * element_bytes : gradients_ + piece.flat * element_bytes);
}

void* Arena::address(const program::Slot& slot, program::Phase phase, const program::Segment& segment,
                     const program::Action& action) const {
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
            return base_ + gradients_ + (segment.gradient_base[range] + slot.offset) * element;
        case Space::tied_parameter:
            return parameters() + (class_.tied_parameter_base + slot.offset) * element;
        case Space::tied_gradient:
            return base_ + gradients_ + (class_.tied_gradient_base + slot.offset) * element;
        case Space::hidden_in:
            return handed(segment.hidden_in_offset, action.input_boundary, inputs_);
        case Space::activation:
            return (segment.in_offload_window ? base_ + offload_window_ : frame(action)) + segment.activation_base +
                   slot.offset;
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
        case Space::parameter_shard: {
            const std::int64_t shard = segment.shard_base[range] + slot.offset;
            return base_ + parameter_shards_ + (class_.parameter_shards_alias ? shards_.flat(shard) : shard) * element;
        }
        case Space::gradient_shard: {
            const std::int64_t shard = segment.shard_base[range] + slot.offset;
            return base_ + (class_.gradient_shards_alias ? gradients_ + shards_.flat(shard) * element
                                                         : gradient_shards_ + shard * element);
        }
        case Space::reduction:
            return base_ + reductions_ + segment.reduction_base + slot.offset;
        case Space::host:
            return (phase == program::Phase::offload ? host_frame(action) : base_ + host_) + segment.host_base +
                   slot.offset;
        case Space::weight_copy:
            break;
    }
    throw_bug(__FILE__, __LINE__, "Space", "slot " + slot.decl.name + " lies where only simulated programs put one");
}

}  // namespace orrery::exec
