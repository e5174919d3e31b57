#include "exec/arena.h"

#include <string>

#include "core/error.h"
#include "exec/host_memory.h"
#include "exec/update_operator.h"

namespace orrery::exec {
namespace {

using program::Space;

constexpr std::int64_t kPage = 4096;
/// The loss, and the norm with its count of what is not finite.
constexpr std::int64_t kScalarBytes = 3 * static_cast<std::int64_t>(sizeof(double));
std::int64_t align(std::int64_t bytes) {
    return (bytes + kPage - 1) / kPage * kPage;
}

}  // namespace

Arena::Arena(const program::Program& program, const program::RankClass& rank_class, const Shards& shards,
             Backend& backend)
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
    const program::Slot* const updated = update_operator_of(program, rank_class).out(0);
    resting_dtype_ = updated != nullptr ? updated->decl.dtype : program.plan->training.precision.parameter;
    rests_on_host_ = gathers && memory.parameters == 0;
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
    host_bytes_ = align(memory.host);
    std::int64_t host_frame = memory.host;
    for (auto chunk = rank_class.chunks.rbegin(); chunk != rank_class.chunks.rend(); ++chunk) {
        host_frame -= chunk->host_frame_bytes * chunk->frame_count;
        host_frames_.insert(host_frames_.begin(), host_frame);
    }

    const std::string needs = rank_class.name + " needs " + gib_text(bytes()) + " a rank (parameters " +
                              gib_text(memory.parameters) + ", gradients " + gib_text(memory.gradients) +
                              ", optimizer states " + gib_text(memory.optimizer_states) + ", activations " +
                              gib_text(memory.activations_arena) + ", transients " + gib_text(memory.transients_arena) +
                              ", boundaries " + gib_text(memory.boundaries_arena) + ")";
    const ArenaMemory blocks = backend.reserve(bytes_, host_bytes_, needs);
    base_ = blocks.device;
    host_ = blocks.host;
}

std::vector<Arena::Part> Arena::parts() const {
    const program::MemoryFootprint& memory = class_.memory;
    const bool gathers = memory.gathered > 0;
    std::vector<Part> parts{{"parameters", base_ + parameter_shards_, memory.parameters},
                            {"gathered", base_ + parameters_, gathers ? memory.gathered : 0},
                            {"gradients", base_ + gradients_, memory.gradients},
                            {"reductions", base_ + reductions_, memory.reductions},
                            {"optimizer", base_ + optimizer_, memory.optimizer_states},
                            {"offload window", base_ + offload_window_, memory.offload_window},
                            {"activations", base_ + frames_.front(), memory.activations_arena},
                            {"transients", base_ + transients_, memory.transients_arena},
                            {"boundaries", base_ + inputs_, memory.boundaries_arena},
                            {"host memory", host_, memory.host}};
    std::erase_if(parts, [](const Part& part) { return part.bytes == 0; });
    return parts;
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
    return host_ + host_frames_[chunk] + action.activation_frame * class_.chunks[chunk].host_frame_bytes;
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
            return host_ + slot.offset;
        case Space::scalars:
            return base_ + scalars_ + slot.offset;
        default:
            throw_bug(__FILE__, __LINE__, "Space", "slot " + slot.decl.name + " does not lie flat");
    }
}

std::byte* Arena::parameters_at_rest(const ShardPiece& piece) const {
    const bool apart = class_.shard_elements > 0 && !class_.parameter_shards_alias;
    std::byte* const first = rests_on_host_ ? host_ : base_ + parameter_shards_;
    return first + (apart ? piece.shard : piece.flat) * size_of(resting_dtype_);
}

std::byte* Arena::gradients_at_rest(const ShardPiece& piece, std::int64_t element_bytes) const {
    const bool apart = class_.shard_elements > 0 && !class_.gradient_shards_alias;
    return base_ + (apart ? gradient_shards_ + piece.shard * element_bytes : gradients_ + piece.flat * element_bytes);
}

void* Arena::address(const program::Slot& slot, program::Phase phase, const program::Segment& segment,
                     const program::Action& action) const {
    std::byte* const first = first_byte(slot, phase, segment, action);
    return slot.own_block ? first + shards_.own_block(*slot.own_block, slot.bytes) : first;
}

std::byte* Arena::first_byte(const program::Slot& slot, program::Phase phase, const program::Segment& segment,
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
            return (phase == program::Phase::offload ? host_frame(action) : host_) + segment.host_base + slot.offset;
        case Space::weight_copy:
            break;
    }
    throw_bug(__FILE__, __LINE__, "Space", "slot " + slot.decl.name + " lies where only simulated programs put one");
}

}  // namespace orrery::exec
