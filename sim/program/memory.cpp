// The memory of one rank: the parts that are alive throughout the step, and a walk in issue order for the others.
#include <algorithm>
#include <map>
#include <set>

#include "core/error.h"
#include "core/units.h"
#include "sim/program/lowering.h"

namespace orrery::program {
namespace {

/// One pass over the segment list, relative to its start.
BodyMemory walk_list(BodyLibrary& bodies, const RankClass& ranks, SegmentListId list) {
    BodyMemory total;
    for (const Segment& segment : ranks.segment_lists[list]) {
        const BodyMemory& one = bodies.memory(segment);
        const std::int64_t net = total.activation_net + total.transient_net;
        total.activation_peak = std::max(total.activation_peak, total.activation_net + one.activation_peak);
        total.joint_peak = std::max(total.joint_peak, net + one.joint_peak);
        total.transient_peak = std::max(total.transient_peak, total.transient_net + one.transient_peak);
        total.activation_net += one.activation_net;
        total.transient_net += one.transient_net;
    }
    return total;
}

/// The most bytes of fp32 copies of one operator's 16-bit operands, for kernels that support fp32 only.
std::int64_t conversion_bytes(const Body& body) {
    std::int64_t most = 0;
    for (const models::Operator& op : body.operators) {
        if (op.takes_any_type()) continue;
        std::set<models::SlotIndex> operands(op.in.begin(), op.in.end());
        operands.insert(op.out.begin(), op.out.end());
        operands.erase(models::kNoSlot);
        std::int64_t bytes = 0;
        for (const models::SlotIndex operand : operands) {
            const models::SlotDecl& decl = body.slots[operand].decl;
            if (decl.dtype == DType::bf16 || decl.dtype == DType::fp16) bytes += 2 * decl.bytes();
        }
        most = std::max(most, bytes);
    }
    return most;
}

/// A weight GEMM may add to the main gradient itself; autograd still needs a tensor as that weight's gradient. The
/// framework keeps one placeholder for each shape. Experts are matrices of one shape.
std::int64_t placeholder_bytes(const Program& program, const std::set<BodyId>& bodies) {
    std::set<std::pair<std::int64_t, std::int64_t>> shapes;
    for (const BodyId id : bodies) {
        const Body& body = program.bodies[id];
        if (!is_block(body.layer_kind)) continue;
        for (const models::Operator& op : body.operators) {
            if (!op.weight_gradient || !op.is_matmul()) continue;
            const std::vector<std::int64_t>& shape = body.slots[op.out[0]].decl.shape;
            shapes.insert({shape[shape.size() - 2], shape.back()});
        }
    }
    std::int64_t elements = 0;
    for (const auto& [n, k] : shapes) elements += checked_product(n, k);
    return checked_product(elements, size_of(program.plan->training.precision.activation));
}

/// The head's 16-bit logits, which an unfused loss reads.
std::int64_t narrow_logits_bytes(const Program& program, const std::set<BodyId>& bodies) {
    std::int64_t bytes = 0;
    for (const BodyId id : bodies) {
        const Body& body = program.bodies[id];
        if (body.layer_kind != models::LayerKind::head) continue;
        for (const Slot& slot : body.slots) {
            if (slot.decl.name == models::kNarrowLogits) bytes = std::max(bytes, slot.bytes);
        }
    }
    return bytes;
}

/// Bytes that the framework keeps beside the tensors of layers and optimizer (models::MemoryChoices).
std::int64_t framework_bytes(const Program& program, const RankLayout& layout, const RankClass& ranks,
                             const std::set<BodyId>& bodies) {
    const Plan& plan = *program.plan;
    const Parallelism& p = plan.parallelism;
    const models::MemoryChoices& choices = plan.implementation.memory;
    const Precision& precision = plan.training.precision;
    const bool narrow = size_of(precision.parameter) == 2;
    std::int64_t bytes = 0;
    if (choices.keeps_weight_gradient_stand_ins && narrow && plan.implementation.kernels.fused_weight_gradient) {
        bytes += placeholder_bytes(program, bodies);
    }
    // If states are not sharded, the copy is made during the update, when no activation is alive.
    if (choices.copies_gradients_for_update && layout.rules.shards_states &&
        size_of(layout.rules.gradient_dtype) == 2) {
        bytes += checked_product(ranks.optimizer_elements, size_of(DType::fp32));
    }
    if (choices.keeps_gradients_beside_sums && narrow && layout.rules.gradient_dtype == DType::fp32) {
        bytes += checked_product(ranks.parameter_elements, size_of(precision.parameter));
    }
    if (layout.rules.dense.ranks > 1) bytes += 2 * std::min(choices.buffer_elements, ranks.parameter_elements);
    if (choices.keeps_previous_logits && plan.micro_batches() > 1) bytes += narrow_logits_bytes(program, bodies);
    if (choices.keeps_stage_outputs && p.pp > 1) {
        const std::int64_t sent = ranks.boundary_bytes / layout.transfer_parts;
        for (const Chunk& chunk : ranks.chunks) bytes += checked_product(chunk.frame_count, sent);
    }
    return bytes;
}

/// Transients and fp32 copies: the largest need of any call of a body.
void measure_bodies(const Program& program, const std::set<BodyId>& bodies, RankClass& result) {
    MemoryFootprint& memory = result.memory;
    for (const SegmentList& list : result.segment_lists) {
        for (const Segment& segment : list) {
            const std::int64_t end = segment.transient_base + program.bodies[segment.body].transient_bytes;
            result.transient_bytes = std::max(result.transient_bytes, end);
        }
    }
    if (program.plan->cluster.device.host_runs_compute) {
        for (const BodyId id : bodies) {
            memory.conversions = std::max(memory.conversions, conversion_bytes(program.bodies[id]));
        }
    }
    memory.transients_arena = result.transient_bytes;
}

/// Parameters, gradients and states, on the device and in host memory.
void measure_states(const Plan& plan, const RankLayout& layout, RankClass& result) {
    const Precision& precision = plan.training.precision;
    const MemorySavings& savings = plan.training.memory;
    const ShardingRules& rules = layout.rules;
    MemoryFootprint& memory = result.memory;
    const std::int64_t states =
        checked_product(result.optimizer_elements, plan.training.state_bytes() + (layout.keeps_master ? 4 : 0));
    std::int64_t shards = 0, gradient_shards = 0;
    if (!result.parameter_shards_alias) {
        shards = checked_product(result.shard_elements, size_of(layout.stored_dtype));
    }
    if (!result.gradient_shards_alias) {
        gradient_shards = checked_product(result.shard_elements, size_of(precision.gradient));
    }
    const std::int64_t buffer = checked_product(result.parameter_buffer_elements, size_of(precision.parameter));
    const bool shards_on_host = savings.offload_parameters && rules.gathers_units;
    memory.parameters =
        (rules.gathers_units ? (shards_on_host ? 0 : shards) : buffer + shards) + result.weight_copy_bytes;
    memory.gathered = rules.gathers_units ? buffer : 0;
    memory.gradients =
        checked_product(result.gradient_buffer_elements, size_of(layout.rules.gradient_dtype)) + gradient_shards;
    memory.optimizer_states = savings.offload_optimizer ? 0 : states;
    result.host_bytes = shards_on_host ? shards : 0;
    if (savings.offload_optimizer) {
        result.host_bytes +=
            states + checked_product(result.optimizer_elements,
                                     size_of(precision.gradient) + (shards_on_host ? 0 : size_of(precision.parameter)));
    }
}

/// Frames, boundary buffers and the offload window.
void measure_activations(RankClass& result) {
    MemoryFootprint& memory = result.memory;
    memory.offload_window = result.offload_window_bytes;
    memory.boundaries_arena =
        checked_product(result.boundary_bytes,
                        result.input_boundary_count + result.forward_boundary_count + result.backward_boundary_count);
    for (const Chunk& chunk : result.chunks) {
        memory.activations_arena += checked_product(chunk.frame_bytes, chunk.frame_count);
        result.host_bytes += checked_product(chunk.host_frame_bytes, chunk.frame_count);
    }
}

/// Finds the most bytes alive at once by a walk over the step in issue order.
void find_live_peak(BodyLibrary& library, RankClass& result) {
    MemoryFootprint& memory = result.memory;
    std::map<SegmentListId, BodyMemory> walked;
    std::int64_t activations = 0, transients = 0;
    const std::int64_t fixed = memory.fixed();
    memory.live_peak = fixed;
    for (const ActionIndex a : result.actions.indices()) {
        const Action& action = result.actions[a];
        if (!is_pass(action.kind)) continue;
        const auto [entry, fresh] = walked.try_emplace(action.segments);
        if (fresh) entry->second = walk_list(library, result, action.segments);
        const BodyMemory& one = entry->second;
        memory.activations_live_peak = std::max(memory.activations_live_peak, activations + one.activation_peak);
        memory.transients_live_peak = std::max(memory.transients_live_peak, transients + one.transient_peak);
        const std::int64_t alive = fixed + activations + transients + one.joint_peak;
        if (alive > memory.live_peak) {
            memory.live_peak = alive;
            memory.peak_action = a;
            memory.activations_at_peak = activations + std::min(one.activation_peak, one.joint_peak);
            memory.transients_at_peak = alive - fixed - memory.activations_at_peak;
        }
        activations += one.activation_net;
        transients += one.transient_net;
    }
    ORRERY_CHECK(activations == 0 && transients == 0, result.name + ": " + std::to_string(activations) +
                                                          " bytes of activations and " + std::to_string(transients) +
                                                          " of transients are still alive at the end of the step");
}

}  // namespace

void measure_memory(const Program& program, const RankLayout& layout, BodyLibrary& library, RankClass& result) {
    MemoryFootprint& memory = result.memory;
    std::set<BodyId> bodies;
    for (const auto& list : result.segment_lists) {
        for (const Segment& segment : list) bodies.insert(segment.body);
    }
    measure_bodies(program, bodies, result);
    measure_states(*program.plan, layout, result);
    measure_activations(result);
    memory.reductions = result.reduction_bytes;
    memory.host = result.host_bytes;
    memory.framework = framework_bytes(program, layout, result, bodies);
    find_live_peak(library, result);
    memory.arena = memory.fixed() + memory.activations_arena + memory.transients_arena;
}

}  // namespace orrery::program
