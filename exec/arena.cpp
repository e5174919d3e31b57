#include "exec/arena.h"

#include <string>

#include "core/error.h"
#include "exec/host_memory.h"
#include "exec/update_operator.h"

namespace orrery::exec {
namespace {

using program::Region;
using program::Space;

constexpr std::int64_t kPage = 4096;
/// The loss, the gradient norm and the count of gradients that are not finite.
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
    starts_.fill(-1);
    const bool gathers = memory.gathered > 0;
    const program::Slot* const updated = update_operator_of(program, rank_class).out(0);
    resting_dtype_ = updated != nullptr ? updated->decl.dtype : program.plan->training.precision.parameter;
    rests_on_host_ = gathers && memory.parameters == 0;
    starts_[Region::parameter] = place(gathers ? memory.gathered : memory.parameters);
    starts_[Region::parameter_shard] = gathers ? place(memory.parameters) : starts_[Region::parameter];
    // The window of whole gradients, followed by the gradient shards if they have memory of their own.
    starts_[Region::gradient] = place(memory.gradients);
    const std::int64_t gradient_shards = rank_class.shard_elements * size_of(program.plan->training.precision.gradient);
    starts_[Region::gradient_shard] =
        starts_[Region::gradient] + (rank_class.gradient_shards_alias ? 0 : memory.gradients - gradient_shards);
    starts_[Region::reduction] = place(memory.reductions);
    starts_[Region::offload_window] = place(memory.offload_window);
    starts_[Region::optimizer] = place(memory.optimizer_states);
    for (const program::Chunk& chunk : rank_class.chunks) {
        frames_.push_back(place(chunk.frame_bytes * chunk.frame_count));
    }
    starts_[Region::input_boundary] = place(rank_class.boundary_bytes * rank_class.input_boundary_count);
    starts_[Region::forward_boundary] = place(rank_class.boundary_bytes * rank_class.forward_boundary_count);
    starts_[Region::backward_boundary] = place(rank_class.boundary_bytes * rank_class.backward_boundary_count);
    starts_[Region::transient] = place(memory.transients_arena);
    starts_[Region::scalars] = place(kScalarBytes);
    starts_[Region::host] = 0;
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
    std::vector<Part> parts{{"parameters", start_of(Region::parameter_shard), memory.parameters},
                            {"gathered", start_of(Region::parameter), gathers ? memory.gathered : 0},
                            {"gradients", start_of(Region::gradient), memory.gradients},
                            {"reductions", start_of(Region::reduction), memory.reductions},
                            {"optimizer", start_of(Region::optimizer), memory.optimizer_states},
                            {"offload window", start_of(Region::offload_window), memory.offload_window},
                            {"activations", base_ + frames_.front(), memory.activations_arena},
                            {"transients", start_of(Region::transient), memory.transients_arena},
                            {"boundaries", start_of(Region::input_boundary), memory.boundaries_arena},
                            {"host memory", host_, memory.host}};
    std::erase_if(parts, [](const Part& part) { return part.bytes == 0; });
    return parts;
}

double* Arena::loss() const {
    return reinterpret_cast<double*>(start_of(Region::scalars));
}

std::byte* Arena::start_of(Region region) const {
    const std::int64_t start = starts_[region];
    ORRERY_CHECK(start >= 0, "region " + std::string(name_of(region)) + " is used by simulated programs only");
    return (region == Region::host ? host_ : base_) + start;
}

std::byte* Arena::start_of(const program::Instance& bound) const {
    ORRERY_CHECK(bound.index >= 0, "an action uses an instance of region " + std::string(name_of(bound.region)) +
                                       " that it does not hold");
    switch (bound.region) {
        case Region::activation:
            return base_ + frames_[bound.chunk] + bound.index * class_.chunks[bound.chunk].frame_bytes;
        case Region::host_frame:
            return host_ + host_frames_[bound.chunk] + bound.index * class_.chunks[bound.chunk].host_frame_bytes;
        case Region::input_boundary:
        case Region::forward_boundary:
        case Region::backward_boundary:
            return start_of(bound.region) + bound.index * class_.boundary_bytes;
        default:
            return start_of(bound.region);
    }
}

void* Arena::flat_address(const program::Slot& slot) const {
    switch (slot.space) {
        case Space::parameter:
            return start_of(Region::parameter);
        case Space::gradient:
            return start_of(Region::gradient);
        case Space::parameter_shard:
            return start_of(Region::parameter_shard);
        case Space::gradient_shard:
            return start_of(Region::gradient_shard);
        case Space::optimizer:
            return start_of(Region::optimizer) + slot.offset;
        case Space::host:
            return start_of(Region::host) + slot.offset;
        case Space::scalars:
            return start_of(Region::scalars) + slot.offset;
        default:
            throw_bug(__FILE__, __LINE__, "Space", "slot " + slot.decl.name + " is not in a flat buffer");
    }
}

std::byte* Arena::parameters_at_rest(const ShardPiece& piece) const {
    const bool apart = class_.shard_elements > 0 && !class_.parameter_shards_alias;
    std::byte* const first = start_of(rests_on_host_ ? Region::host : Region::parameter_shard);
    return first + (apart ? piece.shard : piece.flat) * size_of(resting_dtype_);
}

std::byte* Arena::gradients_at_rest(const ShardPiece& piece, std::int64_t element_bytes) const {
    const bool apart = class_.shard_elements > 0 && !class_.gradient_shards_alias;
    return start_of(apart ? Region::gradient_shard : Region::gradient) +
           (apart ? piece.shard : piece.flat) * element_bytes;
}

void* Arena::address(const program::Slot& slot, program::Phase phase, const program::Segment& segment,
                     const program::Action& action) const {
    const program::MemoryRange range = program::resolve(class_, phase, segment, slot);
    const std::int64_t element = size_of(slot.decl.dtype);
    std::int64_t offset = range.begin;
    switch (range.region) {
        case Region::parameter:
        case Region::gradient:
            offset *= element;
            break;
        case Region::parameter_shard:
            offset = (class_.parameter_shards_alias ? shards_.flat(offset) : offset) * element;
            break;
        case Region::gradient_shard:
            offset = (class_.gradient_shards_alias ? shards_.flat(offset) : offset) * element;
            break;
        default:
            break;
    }
    if (slot.own_block) offset += shards_.own_block(*slot.own_block, slot.bytes);
    return start_of(program::bound_by(action, range.region)) + offset;
}

}  // namespace orrery::exec
